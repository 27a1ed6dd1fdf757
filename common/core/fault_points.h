// Moments in a process's life at which a test makes it fail, by the signal that would come from outside.
//
// A program passes by its points by name; "applied:12:KILL" raises SIGKILL when it comes by "applied" for the
// 12th time. Made by main from a flag that help does not show, handed down by reference; thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

class FaultPoints {
 public:
  struct Fault {
    std::string point;    // empty: none
    int64_t passing = 0;  // from 1
    int signal = 0;
  };
  // POINT:PASSING:KILL|STOP|TERM|INT; an empty text is no fault.
  static absl::StatusOr<Fault> Parse(absl::string_view text);

  explicit FaultPoints(Fault fault) : fault_(std::move(fault)) {}

  void Pass(absl::string_view point) {
    if (fault_.passing > 0 && point == fault_.point) Count();
  }

 private:
  void Count();

  const Fault fault_;
  std::atomic<int64_t> passings_{0};
};

}  // namespace cairn
