#include "ps/log/config_change.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::ps {

namespace {

absl::Status CheckRate(float rate) {
  if (std::isfinite(rate) && rate >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a learning rate of ", rate, " is invalid"));
}

}  // namespace

absl::Status CheckConfigChange(const v1::ConfigChange& config_change, const v1::OptimizerConfig& optimizer) {
  for (int group = 0; group < config_change.groups_size(); ++group) {
    const v1::GroupSettings& settings = config_change.groups(group);
    if (!settings.has_learning_rate()) continue;
    CAIRN_RETURN_IF_ERROR(Annotate(CheckRate(settings.learning_rate()), absl::StrCat("group ", group)));
  }
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
  for (const v1::GroupSettings& group : proto.groups()) config_change.groups.push_back(FromProto(group));
  return config_change;
}

v1::GroupSettings ToProto(const optim::GroupSettings& settings) {
  v1::GroupSettings proto;
  if (settings.learning_rate.has_value()) proto.set_learning_rate(*settings.learning_rate);
  proto.set_untouched(settings.untouched);
  return proto;
}

optim::GroupSettings FromProto(const v1::GroupSettings& proto) {
  optim::GroupSettings settings = {.untouched = proto.untouched()};
  if (proto.has_learning_rate()) settings.learning_rate = proto.learning_rate();
  return settings;
}

}  // namespace cairn::ps
