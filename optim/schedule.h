// Keras' learning-rate schedules: the rate as a function of the updates made so far.
//
// Evaluated in double, on the server, at the version from which an update starts. Every server of a job
// computes the same rate: differences in the last bit of the C library's pow and cos vanish in the rounding
// to float, except in rare cases on machines with different libraries.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn::optim {

// A Keras schedule's class name (in any case), the numbers of its config under Keras' names (a boolean is 0
// or 1, a null is a missing key), and its lists.
struct ScheduleConfig {
  std::string name;
  std::map<std::string, double> numbers;
  std::vector<double> boundaries{};  // for PiecewiseConstantDecay, in updates
  std::vector<double> values{};      // for PiecewiseConstantDecay, one more than boundaries
};

// Thread-safe. `iterations` is 0 for a job's first update.
using Schedule = std::function<double(int64_t iterations)>;

// INVALID_ARGUMENT for an unknown name (lists the supported ones) and for a number that is missing, unknown
// or out of range. No rate may become negative.
absl::StatusOr<Schedule> MakeSchedule(const ScheduleConfig& config);

}  // namespace cairn::optim
