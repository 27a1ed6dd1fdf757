// An optimizer's rule: how the elements of a variable move (plain descent, momentum, Adam). One class per
// file, one row in the table of optimizer.cc.
//
// An UpdateRule is created once per job and shared by all shards and threads. It holds nothing but
// hyperparameters, constant after construction. The state of a variable (its slots), the count of updates and
// the learning rate belong to the caller. It knows no shapes: every rule is element-wise, so any sub-range of
// a variable may be updated separately, in any order, by any thread, with the same bits.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn::optim {

struct UpdateStep {
  int64_t t = 1;            // 1 for the first update of a variable
  float learning_rate = 0;  // Optimizer::learning_rate(t - 1)
  bool last = false;        // the job's last update: with use_ema, the average replaces the values
};

// An array with one number per element that a rule keeps between updates. The update reads `from` and writes
// `to`; they are equal for an update in place.
struct Slot {
  const float* from;
  float* to;

  Slot at(int64_t element) const { return {from + element, to + element}; }
};

inline Slot InPlace(float* slot) {
  return {slot, slot};
}

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  // The names of the slots, as in Keras: "momentum", or "m" and "v". Each has one float per element.
  virtual absl::Span<const absl::string_view> slot_names() const = 0;
  // The value of every element of slot `slot` (an index of slot_names()) before the first update.
  virtual float initial_slot_value(int /*slot*/) const { return 0; }
  // If true, Update() stores in new_values the direction u in which the values move. The caller then
  // subtracts learning_rate |values| / |u| u from the values, with norms over the whole variable (LAMB).
  virtual bool layerwise() const { return false; }

  // Computes new_values[i], slots[..].to[i] = f(old_values[i], gradient[i], slots[..].from[i]), usually out
  // of place, so that readers of the old version are not disturbed. new_values may equal old_values, and a
  // slot's `to` its `from`; no other arrays may overlap. `gradient`, `new_values` and each slot are parallel
  // to old_values. No alignment is required.
  virtual void Update(const UpdateStep& step, absl::Span<const float> old_values,
                      absl::Span<const float> gradient, absl::Span<const Slot> slots,
                      float* new_values) const = 0;
};

}  // namespace cairn::optim
