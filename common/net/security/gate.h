// Authenticates the callers of a server by job token and certificate (access.h). main() makes one for all
// services of a process. Thread-safe.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/net/security/access.h"
#include "common/net/security/caller.h"
#include "grpcpp/server_context.h"

namespace cairn::net {

class Gate {
 public:
  // `self`: this task, for messages: "ps/0". `access` has passed CheckAccess(). If this task's certificate
  // names a task, the certificates of all callers must name tasks too. Otherwise a caller whose certificate
  // names no task may make every call.
  Gate(std::string self, const Access& access);

  // UNAUTHENTICATED without the job token; PERMISSION_DENIED for a certificate that names no task although
  // ours does. Both messages say what to do. Refusals are logged, at most once in 10 s.
  absl::StatusOr<Caller> Admit(const grpc::ServerContextBase& context) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether certificates must name tasks.
  bool wants_names() const { return wants_names_; }

 private:
  absl::Status CheckToken(const grpc::ServerContextBase& context) const;
  absl::StatusOr<Caller> Identify(const grpc::ServerContextBase& context) const;

  const std::string self_;
  const std::string token_;
  const bool tls_;
  const bool wants_names_;
  mutable Mutex mutex_;
  mutable TimePoint said_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::net
