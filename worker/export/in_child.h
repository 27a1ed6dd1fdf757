// Runs code that cannot be trusted with what it reads, as libraries of C with damaged files, in a process of
// its own: when it crashes, hangs or takes all memory, there is an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace cairn::worker {

struct ChildLimits {
  int64_t seconds = 300;                      // of processor time, and of waiting
  int64_t memory_bytes = int64_t{256} << 20;  // beyond what this process has
};

// What `work` puts into its argument [values], or its error. INVALID_ARGUMENT when it ended in another way.
// `work` runs in a copy of this process with one thread: it must take no lock that another thread may hold,
// logs nothing and starts no threads. Any thread; blocks.
absl::StatusOr<std::vector<float>> RunInChild(size_t values, const ChildLimits& limits,
                                              absl::FunctionRef<absl::Status(absl::Span<float>)> work);

// The same of work that returns a text. INVALID_ARGUMENT where the text has more than `max_bytes`.
absl::StatusOr<std::string> ReadTextInChild(size_t max_bytes, const ChildLimits& limits,
                                            absl::FunctionRef<absl::StatusOr<std::string>()> work);

}  // namespace cairn::worker
