// Errors: absl::Status everywhere a thing can fail, and what a program's exit code makes of one.
//
// The code of a status is advice to the caller: UNAVAILABLE, retry this call; ABORTED, redo the larger
// step; anything else, stop until something is fixed. Context is added going up, with Annotate().
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

// "context: message" with the code of `status`; an OK status stays as it is.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

// How a process of Cairn ends. Schedulers read these: Kubeflow restarts a pod from 128 up.
enum class ExitCode : int {
  kDone = 0,
  kFailure = 1,        // permanent: bad data, NaN, internal error
  kUsage = 2,          // usage or config error
  kIncompatible = 3,   // checkpoint, model, protocol or credentials that do not fit
  kRetryable = 138,    // the cluster could not be reached in time, or a task was lost
  kInterrupted = 130,  // SIGINT
  kTerminated = 143,   // SIGTERM
};

// The exit code of a running job's failure. UNAVAILABLE, DEADLINE_EXCEEDED and ABORTED are retryable,
// FAILED_PRECONDITION, DATA_LOSS and UNAUTHENTICATED incompatible, the rest permanent. Errors found before
// the job runs (flags, config, model file, a job beyond the servers' memory) are kUsage by where they occur,
// not by this table.
ExitCode ExitCodeOf(const absl::Status& status);

namespace status_internal {
[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);
inline absl::Status ToStatus(const absl::Status& status) {
  return status;
}
template <typename T>
absl::Status ToStatus(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}
}  // namespace status_internal

}  // namespace cairn

// For our own bugs only, never for bytes from the wire, a file or a flag. Aborts.
#define CAIRN_CHECK(condition) \
  ((condition) ? (void)0 : ::cairn::status_internal::CheckFailed(#condition, __FILE__, __LINE__))

#define CAIRN_CONCAT_INNER(a, b) a##b
#define CAIRN_CONCAT(a, b) CAIRN_CONCAT_INNER(a, b)

#define CAIRN_RETURN_IF_ERROR(expression)                                         \
  do {                                                                            \
    absl::Status cairn_status = ::cairn::status_internal::ToStatus((expression)); \
    if (!cairn_status.ok()) return cairn_status;                                  \
  } while (false)

// CAIRN_ASSIGN_OR_RETURN(auto value, MakeValue());
#define CAIRN_ASSIGN_OR_RETURN(target, expression) \
  CAIRN_ASSIGN_OR_RETURN_IMPL(CAIRN_CONCAT(cairn_status_or_, __LINE__), target, expression)
#define CAIRN_ASSIGN_OR_RETURN_IMPL(status_or, target, expression) \
  auto status_or = (expression);                                   \
  if (!status_or.ok()) return status_or.status();                  \
  target = *std::move(status_or)
