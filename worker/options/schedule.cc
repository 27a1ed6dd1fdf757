#include "worker/options/schedule.h"

#include "absl/strings/str_cat.h"

namespace cairn::worker {

absl::StatusOr<v1::LearningRateSchedule> MakeSchedule(const nn::KerasObject& object) {
  v1::LearningRateSchedule schedule;
  schedule.set_name(object.class_name);
  schedule.mutable_numbers()->insert(object.config.begin(), object.config.end());
  for (const auto& [name, numbers] : object.lists) {
    if (name != "boundaries" && name != "values") {
      return absl::InvalidArgumentError(
          absl::StrCat("learning_rate: ", object.class_name, " has an unknown list '", name, "'"));
    }
    auto& list = name == "boundaries" ? *schedule.mutable_boundaries() : *schedule.mutable_values();
    list.Add(numbers.begin(), numbers.end());
  }
  return schedule;
}

}  // namespace cairn::worker
