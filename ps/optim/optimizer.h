// How a server turns a gradient into a variable's next value. One class per file, one row in the table of
// optimizer.cc.
//
// An Optimizer is made once per job and shared by all shards and threads: it holds hyperparameters, constant
// after construction, and nothing else. The state of a variable (its slots) and the count of updates belong
// to the caller. It knows no shapes: every rule here is element-wise, so any sub-range of a variable may be
// updated on its own, in any order, by any thread, and gives the same bits as the whole.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ps/optim/isa.h"

namespace cairn::ps {

// A Keras optimizer's class name (any case) and the numbers of its config under Keras' names; a boolean is 0
// or 1, a null is an absent key.
struct OptimizerConfig {
  std::string name;
  std::map<std::string, double> hyperparameters;
};

struct UpdateStep {
  int64_t t = 1;            // 1 for the first update of a variable
  float learning_rate = 0;  // the caller's: Optimizer::learning_rate(), or what a schedule makes of it
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Keras' class name: "SGD", "Adam".
  virtual absl::string_view name() const = 0;
  // The configured rate, before any schedule.
  virtual float learning_rate() const = 0;
  // One float per element of the variable for each; the names are Keras': "momentum", or "m" and "v".
  virtual absl::Span<const absl::string_view> slot_names() const = 0;
  // What every element of slot `slot` (an index of slot_names()) holds before the first update.
  virtual float initial_slot_value(int slot) const = 0;

  // new_values[i] = f(old_values[i], gradient[i], slots[..][i]); slots are updated in place. Out of place, so
  // that readers of the old version are undisturbed; new_values may equal old_values, nothing else may
  // overlap. `gradient`, `new_values` and each of `slots` run parallel to old_values. No alignment is
  // required.
  virtual void Update(const UpdateStep& step, absl::Span<const float> old_values,
                      absl::Span<const float> gradient, absl::Span<float* const> slots,
                      float* new_values) const = 0;
};

// INVALID_ARGUMENT for an unknown name (lists the supported ones) and for a hyperparameter that is unknown,
// out of range, or a feature of Keras that Cairn lacks (amsgrad, weight_decay, clipnorm, ...) and that is
// switched on. An absent hyperparameter has Keras' default. Results do not depend on `isa`: only tests pass
// one.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const OptimizerConfig& config,
                                                         Isa isa = WidestIsa());

}  // namespace cairn::ps
