// The gradients that have been announced in a step.
//
// Thread-safe, but for Reset().
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/net/cluster/placement.h"

namespace cairn::api {

class Announcements {
 public:
  // `variables` has `count` entries when a step begins, and must outlive this object.
  Announcements(const std::vector<net::VariableInfo>& variables, size_t count)
      : variables_(variables), announced_(count) {}

  void Reset() {
    for (std::atomic<bool>& one : announced_) one = false;
  }
  // INVALID_ARGUMENT for a variable that does not exist, FAILED_PRECONDITION for a second announcement.
  absl::Status Add(int variable) {
    if (variable < 0 || variable >= static_cast<int>(announced_.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("Announce: no variable ", variable, ", there are ", announced_.size()));
    }
    const auto index = static_cast<size_t>(variable);
    if (!announced_[index].exchange(true)) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("Announce: the gradient of '", variables_[index].name,
                                                      "' has been sent already in this step"));
  }
  // Calls announce(variable) for all that have not been announced.
  void AddRest(absl::FunctionRef<void(int)> announce) {
    for (size_t i = 0; i < announced_.size(); ++i) {
      if (!announced_[i].exchange(true)) announce(static_cast<int>(i));
    }
  }

 private:
  const std::vector<net::VariableInfo>& variables_;
  std::vector<std::atomic<bool>> announced_;  // [variable]
};

}  // namespace cairn::api
