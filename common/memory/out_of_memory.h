// Reports a lack of memory as an error that names the purpose and the size of the memory, never by an abort.
//
// An allocation whose size comes from a flag, a file or the wire may fail. If it fails, AlignedBuffer,
// SharedBuffer and FloatVector() throw OutOfMemory; containers throw std::bad_alloc or std::length_error. The
// caller that knows the purpose of the memory catches these with CatchOutOfMemory(). An exception that is not
// caught, on any thread, ends the program with code 1 and a message (ReportOutOfMemory()).
#pragma once

#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cairn {

class OutOfMemory : public std::bad_alloc {
 public:
  // `floats`: the number requested; its size in bytes may exceed an int64. `what`: the purpose of the memory,
  // if known.
  explicit OutOfMemory(int64_t floats, absl::string_view what = "");
  // "batches of 60000 examples: no memory for 5.8 GiB"
  const char* what() const noexcept override { return text_.c_str(); }
  int64_t floats() const { return floats_; }

 private:
  int64_t floats_;
  std::string text_;
};

// `count` zeros. Throws OutOfMemory with `what`, the purpose of the memory.
std::vector<float> FloatVector(int64_t count, absl::string_view what);

namespace out_of_memory_internal {
// The status for the exception being handled: OutOfMemory, std::bad_alloc or std::length_error.
absl::Status StatusOfCurrent(absl::string_view what);
}  // namespace out_of_memory_internal

// Returns body(), an absl::Status or StatusOr; RESOURCE_EXHAUSTED, "what: no memory for 5.8 GiB", if body()
// runs out of memory.
template <typename Body>
auto CatchOutOfMemory(absl::string_view what, const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return out_of_memory_internal::StatusOfCurrent(what);
  } catch (const std::length_error&) {
    return out_of_memory_internal::StatusOfCurrent(what);
  }
}

// For main(): from now on an uncaught lack of memory, on any thread, ends the program with exit code 1
// (ExitCode::kFailure) and "<program>: no memory for ..." on stderr. Other uncaught exceptions end it as
// before. `program` must outlive the process' threads.
void ReportOutOfMemory(const char* program);

}  // namespace cairn
