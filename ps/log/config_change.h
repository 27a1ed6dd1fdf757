// Changes of a running job's config by the chief, as messages.
#pragma once

#include "absl/status/status.h"
#include "cairn/v1/follow.pb.h"
#include "cairn/v1/job.pb.h"
#include "ps/log/log_entry.h"

namespace cairn::ps {

// INVALID_ARGUMENT for an invalid learning rate, of the job or of a group, or for any learning rate of the job
// if it has a schedule.
absl::Status CheckConfigChange(const v1::ConfigChange& config_change, const v1::OptimizerConfig& optimizer);
ConfigChange ConfigChangeOf(const v1::ConfigChange& proto);

}  // namespace cairn::ps
