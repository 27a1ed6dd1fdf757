// Measurements in a machine-readable file: each line is a JSON object, for one contender in one run.
//
//   {"name": "cairn shm push", "transport": "shm", "encoding": "float32", "size_bytes": 67108864,
//    "variables": 1, "workers": 1, "ps": 1, "rounds": 5, "gbps_median": 2.1, "gbps_least": 1.9,
//    "gbps_most": 2.3, "p50_us": 31900.0, "p99_us": 35100.0, "cpu_seconds_per_gb_here": 0.11,
//    "cpu_seconds_per_gb_there": 0.38, "machine": {"processor": "Intel(R) Xeon(R)", "cores": 2},
//    "load": 0.4, "date": "2026-11-23"}
//
// `transport` and `encoding` are there where the contender has one. GB/s, 10^9 bytes, are of goodput, the
// median, least and most of the rounds; bytes count as float32 whatever the encoding, those of all workers
// together. Microseconds are of one call, of all rounds. `load` is of the minute before the run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/bench/wire/contest.h"

namespace cairn::bench {

// One run: its shape, and the machine that it is made on.
struct RunRecord {
  int64_t size_bytes = 0;  // of all variables
  int variables = 1;       // of the same size
  int workers = 0;
  int servers = 0;
  int rounds = 0;
  double load = 0;
  std::string date;  // "2026-11-23", UTC
};

// With the date and the load of now.
RunRecord RunOf(int64_t size_bytes, int workers, int servers, int rounds);

// Appends a line for each contender, or fails naming `path`. `measured` [contender].
absl::Status AppendJsonLines(const std::string& path, const RunRecord& run,
                             const std::vector<Contender>& contenders, const std::vector<Measured>& measured);

}  // namespace cairn::bench
