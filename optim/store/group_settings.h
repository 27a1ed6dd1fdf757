// The settings of a group of variables, by the job's chief. A value.
#pragma once

#include <optional>

namespace cairn::optim {

struct GroupSettings {
  std::optional<float> learning_rate{};  // in place of the job's; none: the job's
  bool untouched = false;                // updates leave values and slots as they are

  friend bool operator==(const GroupSettings&, const GroupSettings&) = default;
};

}  // namespace cairn::optim
