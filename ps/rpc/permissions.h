// The calls that one caller may make on a parameter server, as determined by the tasks that its certificate
// names (common/net/security/caller.h). docs/security.md has the table of calls. A value type; any thread.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cairn/v1/parameter_server.pb.h"
#include "common/net/security/caller.h"

namespace cairn::ps {

class Server;

class Permissions {
 public:
  // Allows every call: for servers that do not distinguish callers.
  Permissions() = default;
  // `chief`: the task that is the chief, "chief/0" or "worker/0". A caller whose role is chief may also make
  // the calls of that task.
  Permissions(net::Caller caller, std::string chief) : caller_(std::move(caller)), chief_(std::move(chief)) {}

  // Each Check() returns PERMISSION_DENIED if the caller may not make the call, and names the caller, the
  // call and the tasks that may make it. `server` provides the names of the workers.
  absl::Status Check(const v1::ConnectRequest&, const Server&) const { return absl::OkStatus(); }
  absl::Status Check(const v1::CreateRequest& request, const Server& server) const;
  absl::Status Check(const v1::WaitRequest&, const Server&) const { return absl::OkStatus(); }
  absl::Status Check(const v1::JoinRequest& request, const Server& server) const;
  absl::Status Check(const v1::HeartbeatRequest& request, const Server& server) const;
  absl::Status Check(const v1::BatchMeanRequest& request, const Server& server) const;
  absl::Status Check(const v1::LeaveRequest& request, const Server& server) const;
  absl::Status Check(const v1::PlaceMarkerRequest& request, const Server& server) const;
  absl::Status Check(const v1::ChangeConfigRequest& request, const Server& server) const;
  absl::Status Check(const v1::FinishRequest& request, const Server& server) const;
  // Any caller may ask for a promotion; the backup itself decides whether it is due.
  absl::Status Check(const v1::PromoteRequest&, const Server&) const { return absl::OkStatus(); }

  absl::Status CheckPush(int worker, const Server& server) const;
  absl::Status CheckWrite() const;
  // Whether the caller may follow the round log as ps/`server`.
  absl::Status CheckFollow(int server) const;
  absl::Status CheckReplicate() const;

 private:
  bool IsChief() const { return caller_.HasRole("chief") || caller_.IsExactly(chief_); }
  bool IsOperator() const { return caller_.HasRole("operator"); }
  bool Is(absl::string_view task) const;
  absl::Status Denied(absl::string_view what, absl::string_view who) const;

  net::Caller caller_ = net::Caller::Anyone();
  std::string chief_;
};

}  // namespace cairn::ps
