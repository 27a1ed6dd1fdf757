// How a lack of memory is reported: as an error that says what needs how much, never by an abort.
//
// Memory whose size comes from a flag, a file or the wire may not be there. AlignedBuffer, SharedBuffer and
// FloatVector() then throw OutOfMemory, containers std::bad_alloc or std::length_error. Whoever knows what
// the memory was for catches these with CatchOutOfMemory(). What nobody catches ends the program with code 1
// and a message, in whatever thread (ReportOutOfMemory()).
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
  // `floats`: how many were asked for; perhaps more than can be counted in bytes. `what` they were for, if
  // known.
  explicit OutOfMemory(int64_t floats, absl::string_view what = "");
  // "batches of 60000 examples: no memory for 5.8 GiB"
  const char* what() const noexcept override { return text_.c_str(); }
  int64_t floats() const { return floats_; }

 private:
  int64_t floats_;
  std::string text_;
};

// `count` zeros. Throws OutOfMemory, with what they are for.
std::vector<float> FloatVector(int64_t count, absl::string_view what);

namespace out_of_memory_internal {
// Of the exception that is being handled, one of the three.
absl::Status StatusOfCurrent(absl::string_view what);
}  // namespace out_of_memory_internal

// Returns body(), an absl::Status or StatusOr; RESOURCE_EXHAUSTED, "what: no memory for 5.8 GiB", where it
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

// For main(): from now on a lack of memory that no thread catches ends the program with ExitCode::kFailure
// and
// "<program>: no memory for ..." on stderr. Other exceptions end as before. `program` must live on.
void ReportOutOfMemory(const char* program);

}  // namespace cairn
