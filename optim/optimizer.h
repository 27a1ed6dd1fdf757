// How a server updates values by the mean gradient: a rule, with the learning rate of a schedule, and the
// options of every optimizer.
//
// Created once per job from the chief's configuration, constant after construction, shared by all shards and
// threads. It does no arithmetic on variables: apply.h does.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "optim/rules/rule.h"
#include "optim/schedule.h"
#include "optim/simd/isa.h"

namespace cairn::optim {

// A Keras optimizer's class name (in any case) and the numbers of its config under Keras' names: "SGD",
// "learning_rate". Or a torch optimizer's class name after "torch." and its settings under torch's names: "torch.SGD",
// "lr", "beta1" and "beta2" for its betas. A boolean is 0 or 1, a null is a missing key.
struct OptimizerConfig {
  std::string name;
  std::map<std::string, double> hyperparameters;
  std::optional<ScheduleConfig> schedule{};  // replaces the hyperparameter learning_rate
};

// The options of every optimizer; 0 is off. At most one of the three clips is on. The order is Keras' and torch's: the
// mean gradient is clipped, then negated, the penalty is added to it, the values decay, the rule moves them, the
// average follows.
struct CommonOptions {
  float clipvalue = 0;        // limits every element of the gradient to [-clipvalue, clipvalue]
  float clipnorm = 0;         // limits the norm of each variable's gradient
  float global_clipnorm = 0;  // limits the norm of all variables' gradients together
  bool maximize = false;      // torch's: gradient = -gradient
  float l2_penalty = 0;       // torch's coupled weight decay: gradient += l2_penalty * values
  float weight_decay = 0;     // decoupled: values -= learning_rate * weight_decay * values
  bool use_ema = false;       // slot "average" = ema_momentum * average + (1 - ema_momentum) * values
  float ema_momentum = 0;
  int64_t ema_overwrite_frequency = 0;  // number of updates after which the average replaces the values
};

// Norms of whole variables, which an update needs before it can move their elements.
enum class Norms {
  kGradient,  // the norms of the mean gradient, for clipnorm and global_clipnorm
  // The norms of the values, and of the direction in which a layerwise rule (LAMB) moves them.
  kLayer,
};

class Optimizer {
 public:
  // `config`: what the optimizer was made from.
  Optimizer(OptimizerConfig config, std::unique_ptr<const UpdateRule> rule, Schedule learning_rate,
            const CommonOptions& options);

  // As in OptimizerConfig, in the case of Keras and torch: "SGD", "torch.Adam".
  absl::string_view name() const { return config_.name; }
  const OptimizerConfig& config() const { return config_; }
  const UpdateRule& rule() const { return *rule_; }
  const CommonOptions& options() const { return options_; }
  // The learning rate of the update that follows `iterations` updates.
  float learning_rate(int64_t iterations) const { return static_cast<float>(learning_rate_(iterations)); }
  // The norms that each update needs, in the order in which they are measured; later norms may depend on
  // earlier ones.
  absl::Span<const Norms> norms() const { return norms_; }

  // The slots of the rule and, with use_ema, "average" as the last one. Each has one float per element.
  absl::Span<const absl::string_view> slot_names() const { return slot_names_; }
  // The value of every element of slot `slot` (an index of slot_names()) before the first update.
  float initial_slot_value(int slot) const;

 private:
  const OptimizerConfig config_;
  const std::unique_ptr<const UpdateRule> rule_;
  const Schedule learning_rate_;
  const CommonOptions options_;
  std::vector<absl::string_view> slot_names_;
  std::vector<Norms> norms_;
};

// INVALID_ARGUMENT for an unknown name (lists the supported ones), and for a hyperparameter that is unknown,
// out of range, or switches on a feature that Cairn lacks (gradient accumulation, loss scaling, ...). A missing
// hyperparameter has Keras' or torch's default. Results do not depend on `isa`: only tests pass it.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const OptimizerConfig& config,
                                                         Isa isa = WidestIsa());

// The optimizer of some variables, for which these hyperparameters replace those of `optimizer`. It has the same slots
// and norms. INVALID_ARGUMENT as MakeOptimizer(), and for a hyperparameter that would change them, or that is the
// learning rate, which is given to each update.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeVariant(const Optimizer& optimizer,
                                                       const std::map<std::string, double>& hyperparameters);

}  // namespace cairn::optim
