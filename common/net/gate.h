// A server's door: who makes a call, by its job token and its certificate (access.h). Made by main, one for
// all services of a process; thread-safe.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/net/access.h"
#include "common/net/caller.h"
#include "grpcpp/server_context.h"

namespace cairn::net {

class Gate {
 public:
  // `self`: this task, for messages: "ps/0". `access` was checked. Where our own certificate names a task, so
  // must those of all callers; else a certificate without such a name may do everything.
  Gate(std::string self, const Access& access);

  // UNAUTHENTICATED without the job token, PERMISSION_DENIED for a certificate that names no task where ours
  // does. Both say what to do, and are logged, at most once in 10 s.
  absl::StatusOr<Caller> Admit(const grpc::ServerContextBase& context) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Certificates must name tasks.
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
