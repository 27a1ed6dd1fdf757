#include "ps/log/config_change.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace cairn::ps {

absl::Status CheckConfigChange(const v1::ConfigChange& config_change, const v1::OptimizerConfig& optimizer) {
  if (!config_change.has_learning_rate()) return absl::OkStatus();
  if (!std::isfinite(config_change.learning_rate()) || config_change.learning_rate() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a learning rate of ", config_change.learning_rate(), " is invalid"));
  }
  if (!optimizer.has_learning_rate_schedule()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a learning rate of ", config_change.learning_rate(),
                                                 " cannot replace the schedule ",
                                                 optimizer.learning_rate_schedule().name()));
}

ConfigChange ConfigChangeOf(const v1::ConfigChange& proto) {
  ConfigChange config_change = {.end = proto.end()};
  if (proto.has_learning_rate()) config_change.learning_rate = proto.learning_rate();
  return config_change;
}

}  // namespace cairn::ps
