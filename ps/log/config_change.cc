#include "ps/log/config_change.h"

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "ps/policy/policy_proto.h"

namespace cairn::ps {

absl::Status CheckConfigChange(const v1::ConfigChange& config_change, const v1::OptimizerConfig& optimizer) {
  CAIRN_RETURN_IF_ERROR(CheckGroups(FromProto(config_change.groups())));
  if (!config_change.has_learning_rate()) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(CheckRate(config_change.learning_rate()));
  if (!optimizer.has_learning_rate_schedule()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a learning rate of ", config_change.learning_rate(),
                                                 " cannot replace the schedule ",
                                                 optimizer.learning_rate_schedule().name()));
}

ConfigChange ConfigChangeOf(const v1::ConfigChange& proto) {
  ConfigChange config_change = {.end = proto.end()};
  if (proto.has_learning_rate()) config_change.learning_rate = proto.learning_rate();
  config_change.groups = FromProto(proto.groups());
  return config_change;
}

}  // namespace cairn::ps
