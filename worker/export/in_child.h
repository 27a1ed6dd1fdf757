// Runs code that may fail badly on its input, such as a C library on a damaged file, in a separate process:
// if it crashes, hangs or exhausts memory, the caller gets an error.
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
  int64_t seconds = 300;                      // limit for processor time, and for elapsed time
  int64_t memory_bytes = int64_t{256} << 20;  // in addition to what this process uses
};

// Returns the values that `work` writes to its argument [values], or its error. INVALID_ARGUMENT if `work`
// ends in any other way. `work` runs in a forked copy of this process, which has only one thread: it must not
// take a lock that another thread may hold, log, or start threads. Any thread; blocks.
absl::StatusOr<std::vector<float>> RunInChild(size_t values, const ChildLimits& limits,
                                              absl::FunctionRef<absl::Status(absl::Span<float>)> work);

// The same for `work` that returns a text. INVALID_ARGUMENT if the text is longer than `max_bytes`.
absl::StatusOr<std::string> ReadTextInChild(size_t max_bytes, const ChildLimits& limits,
                                            absl::FunctionRef<absl::StatusOr<std::string>()> work);

}  // namespace cairn::worker
