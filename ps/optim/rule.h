// How the elements of a variable move: plain descent, momentum, Adam. One class per file, one row in the
// table of optimizer.cc.
//
// An UpdateRule is made once per job and shared by all shards and threads: it holds hyperparameters, constant
// after construction, and nothing else. The state of a variable (its slots), the count of updates and the
// learning rate belong to the caller. It knows no shapes: every rule here is element-wise, so any sub-range
// of a variable may be updated on its own, in any order, by any thread, and gives the same bits as the whole.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn::ps {

struct UpdateStep {
  int64_t t = 1;            // 1 for the first update of a variable
  float learning_rate = 0;  // Optimizer::learning_rate(t - 1)
  bool last = false;        // the job's last update, after which use_ema leaves the average
};

// One number for each element that a rule keeps between updates: what the update finds, and where it leaves
// what there is then. The same place for an update in place.
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

  // One float per element of the variable for each; the names are Keras': "momentum", or "m" and "v".
  virtual absl::Span<const absl::string_view> slot_names() const = 0;
  // What every element of slot `slot` (an index of slot_names()) holds before the first update.
  virtual float initial_slot_value(int /*slot*/) const { return 0; }
  // True: Update() leaves in new_values not the new values but the direction u in which they move, and the
  // caller subtracts learning_rate |values| / |u| u, with norms over the whole variable (LAMB).
  virtual bool layerwise() const { return false; }

  // new_values[i], slots[..].to[i] = f(old_values[i], gradient[i], slots[..].from[i]). Out of place, so that
  // readers of the old version are undisturbed; new_values may equal old_values, and a slot's `to` its
  // `from`, nothing else may overlap. `gradient`, `new_values` and each of `slots` run parallel to
  // old_values. No alignment is required.
  virtual void Update(const UpdateStep& step, absl::Span<const float> old_values,
                      absl::Span<const float> gradient, absl::Span<const Slot> slots,
                      float* new_values) const = 0;
};

}  // namespace cairn::ps
