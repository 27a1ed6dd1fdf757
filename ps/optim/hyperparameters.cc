#include "ps/optim/hyperparameters.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cairn::ps {
namespace {

bool Within(Domain domain, double value) {
  // As the float that it becomes: a positive epsilon must not turn into 0, nor a beta below 1 into 1.
  const float x = static_cast<float>(value);
  if (!std::isfinite(x)) return false;
  switch (domain) {
    case Domain::kNonNegative:
      return x >= 0;
    case Domain::kPositive:
      return x > 0;
    case Domain::kUnit:
      return x >= 0 && x <= 1;
    case Domain::kBelowOne:
      return x >= 0 && x < 1;
    case Domain::kFlag:
      return value == 0 || value == 1;
  }
  return false;
}

absl::string_view Describe(Domain domain) {
  switch (domain) {
    case Domain::kNonNegative:
      return "a finite number of at least 0";
    case Domain::kPositive:
      return "a finite number above 0";
    case Domain::kUnit:
      return "in [0, 1]";
    case Domain::kBelowOne:
      return "in [0, 1)";
    case Domain::kFlag:
      return "0 or 1";
  }
  return "";
}

// Keys of the config of every Keras optimizer.
struct BaseClassKey {
  absl::string_view name;
  std::optional<double> off;  // none: the value alone changes nothing
};
constexpr BaseClassKey kBaseClassKeys[] = {
    {"weight_decay", 0},
    {"clipnorm", 0},
    {"clipvalue", 0},
    {"global_clipnorm", 0},
    {"use_ema", 0},
    {"ema_momentum", std::nullopt},             // read by use_ema only
    {"ema_overwrite_frequency", std::nullopt},  // read by use_ema only
    {"loss_scale_factor", 1},
    {"gradient_accumulation_steps", 1},
    {"jit_compile", std::nullopt},
    {"is_legacy_optimizer", std::nullopt},
    {"decay", 0},  // of Keras' legacy optimizers
};

}  // namespace

HyperparameterReader::HyperparameterReader(absl::string_view optimizer, const OptimizerConfig& config)
    : optimizer_(optimizer), config_(config) {}

double HyperparameterReader::Take(absl::string_view name, double default_value, Domain domain) {
  known_.emplace_back(name);
  const auto found = config_.hyperparameters.find(known_.back());
  if (found == config_.hyperparameters.end()) return default_value;
  if (!Within(domain, found->second)) {
    Report(absl::StrCat("hyperparameter '", name, "' is ", found->second, ", must be ", Describe(domain)));
  }
  return found->second;
}

void HyperparameterReader::RefuseUnless(absl::string_view name, double off) {
  known_.emplace_back(name);
  const auto found = config_.hyperparameters.find(known_.back());
  if (found == config_.hyperparameters.end() || found->second == off) return;
  Report(absl::StrCat("'", name, "' is ", found->second,
                      ", but Cairn lacks this feature of Keras; leave it out"));
}

absl::Status HyperparameterReader::Finish() {
  const std::vector<std::string> own = known_;
  for (const BaseClassKey& key : kBaseClassKeys) {
    if (key.off.has_value()) {
      RefuseUnless(key.name, *key.off);
    } else {
      known_.emplace_back(key.name);
    }
  }
  for (const auto& [name, value] : config_.hyperparameters) {
    if (std::find(known_.begin(), known_.end(), name) == known_.end()) {
      Report(absl::StrCat("unknown hyperparameter '", name, "'; known: ", absl::StrJoin(own, ", ")));
    }
  }
  return first_error_;
}

void HyperparameterReader::Report(absl::string_view what) {
  if (first_error_.ok()) {
    first_error_ = absl::InvalidArgumentError(absl::StrCat("optimizer ", optimizer_, ": ", what));
  }
}

}  // namespace cairn::ps
