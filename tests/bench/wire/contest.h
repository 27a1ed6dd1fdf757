// Contenders that are measured in turn, so that what else the machine does meets all of them alike.
//
// Each round runs every contender once for about the same time. What is quoted is the median over the rounds,
// and ratios are taken within a round before their median is.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace cairn::bench {

struct Contender {
  std::string name;
  double bytes = 0;                    // of goodput that one call moves; 0: only the time counts
  std::vector<pid_t> other_processes;  // whose processor time counts as the other side's
  std::function<absl::Status()> once;
  std::string transport{};  // "tcp", "unix", "shm"; empty: none
  std::string encoding{};   // in which gradients travel, "int8"; empty: bytes are only bytes
};

struct Measured {
  std::vector<double> rate;      // [round] GB/s, or calls/s where no bytes are moved
  std::vector<double> seconds;   // [call] of all rounds
  std::vector<double> near_cpu;  // [round] seconds for each GB, of this process
  std::vector<double> far_cpu;   // [round] the same, of the other processes
};

struct ContestOptions {
  int rounds = 5;
  double seconds_each = 0.3;  // at least, for each contender in each round
};

// Runs all of them; the first failure ends it. [contender]
absl::Status RunContest(const std::vector<Contender>& contenders, const ContestOptions& options,
                        std::vector<Measured>* measured);

double Median(std::vector<double> values);
double Percentile(std::vector<double> values, double part);
// The median of the ratios within each round.
double Ratio(const Measured& one, const Measured& other);

// One line for each: rate, p50 and p99 of a call, processor time on both sides.
void PrintTable(const std::vector<Contender>& contenders, const std::vector<Measured>& measured);

}  // namespace cairn::bench
