#include "api/group_settings.h"

#include <cmath>
#include <cstddef>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "optim/optimizer.h"
#include "optim/store/group_settings.h"
#include "optim/store/optimizer_of.h"
#include "optim/store/update_plan.h"

namespace cairn::api {
namespace {

// A header has room for these and for the counts of 65536 groups.
constexpr size_t kMaxBytes = size_t{128} << 10;

std::map<std::string, double> HyperparametersOf(const v1::GroupSettings& settings) {
  return {settings.hyperparameters().begin(), settings.hyperparameters().end()};
}

}  // namespace

bool SameSettings(const v1::GroupSettings& a, const v1::GroupSettings& b) {
  return a.has_learning_rate() == b.has_learning_rate() && a.learning_rate() == b.learning_rate() &&
         a.untouched() == b.untouched() && HyperparametersOf(a) == HyperparametersOf(b);
}

absl::Status CheckGroups(const v1::Job& job, const std::vector<v1::GroupSettings>& groups) {
  std::vector<optim::GroupSettings> settings(groups.size());
  for (size_t group = 0; group < groups.size(); ++group) {
    const float rate = groups[group].learning_rate();
    if (!std::isfinite(rate) || rate < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("group ", group, ": a learning rate of ", rate, " is invalid"));
    }
    settings[group].hyperparameters = HyperparametersOf(groups[group]);
  }
  CAIRN_ASSIGN_OR_RETURN(const auto optimizer, optim::MakeOptimizer(optim::OptimizerOf(job)));
  return optim::CheckGroupSettings(*optimizer, settings);
}

absl::StatusOr<std::vector<v1::GroupSettings>> JoinEqual(const std::vector<v1::GroupSettings>& groups) {
  std::vector<v1::GroupSettings> joined;
  for (size_t group = 0; group < groups.size(); ++group) {
    if (group > 0 && SameSettings(groups[group], groups[group - 1])) {
      joined.back().set_count(joined.back().count() + 1);
    } else {
      joined.push_back(groups[group]);
      joined.back().set_count(1);
    }
  }
  size_t bytes = 0;
  for (const v1::GroupSettings& settings : joined) bytes += settings.ByteSizeLong();
  if (bytes <= kMaxBytes) return joined;
  return absl::InvalidArgumentError(absl::StrCat(
      "SetGroups: the settings of ", groups.size(), " groups take ", bytes, " bytes, must be at most ",
      kMaxBytes, ": consecutive groups with equal settings count once"));
}

}  // namespace cairn::api
