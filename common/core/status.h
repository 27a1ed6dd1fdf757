// Errors are absl::Status. This header has the macros that propagate them and the exit code for each.
//
// The code of a status is advice to the caller. UNAVAILABLE: retry this call. ABORTED: redo the larger step.
// Any other code: stop until something is fixed. Callers add context with Annotate().
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

// "context: message" with the code of `status`. An OK status is returned unchanged.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

// Exit codes of Cairn's programs. Schedulers use them: Kubeflow restarts a pod for codes of 128 and above.
enum class ExitCode : int {
  kDone = 0,
  kFailure = 1,        // permanent: bad data, NaN, internal error
  kUsage = 2,          // usage or config error
  kIncompatible = 3,   // checkpoint, model, protocol or credentials that do not fit
  kRetryable = 138,    // the cluster could not be reached in time, or a task was lost
  kInterrupted = 130,  // SIGINT
  kTerminated = 143,   // SIGTERM
};

// The exit code for the failure of a running job. UNAVAILABLE, DEADLINE_EXCEEDED and ABORTED are retryable,
// FAILED_PRECONDITION, DATA_LOSS and UNAUTHENTICATED incompatible, all others permanent. Errors found before
// the job runs (flags, config, model file, a job beyond the servers' memory) exit with kUsage whatever their
// code.
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

// Aborts if `condition` is false. For bugs in Cairn only, never for input from the wire, a file or a flag.
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
