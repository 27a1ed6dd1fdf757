// Fault points: named places in the code at which a test can make the process fail by a signal.
//
// The program calls Pass() with the name of each point that it reaches; "applied:12:KILL" raises SIGKILL when
// it reaches "applied" for the 12th time. Created by main from a flag that --help does not show, and passed
// down by reference. Thread-safe.
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
    int64_t passing = 0;  // counts from 1
    int signal = 0;
  };
  // Parses POINT:PASSING:KILL|STOP|TERM|INT; an empty text means no fault. INVALID_ARGUMENT quoting the text.
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
