// The settings of a group of variables, by the job's chief, and counts of the updates that variables did not have.
// Values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace cairn::optim {

struct GroupSettings {
  std::optional<float> learning_rate{};             // in place of the job's; none: the job's
  bool untouched = false;                           // updates leave values and slots as they are
  std::map<std::string, double> hyperparameters{};  // in place of those of the job's optimizer

  friend bool operator==(const GroupSettings&, const GroupSettings&) = default;
};

// Updates that left variables as they were: each raised the version, and no optimizer counts it.
struct SkippedUpdates {
  int64_t empty = 0;                 // updates of all variables, without examples
  std::vector<int64_t> untouched{};  // [group] other updates that left the group untouched; 0 beyond the end

  int64_t of_group(int group) const {
    return group >= 0 && group < static_cast<int>(untouched.size()) ? untouched[static_cast<size_t>(group)]
                                                                    : 0;
  }
  friend bool operator==(const SkippedUpdates&, const SkippedUpdates&) = default;
};

}  // namespace cairn::optim
