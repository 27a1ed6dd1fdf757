#include "ps/rpc/permissions.h"

#include "absl/strings/str_cat.h"
#include "ps/job/server.h"

namespace cairn::ps {

bool Permissions::Is(absl::string_view task) const {
  return caller_.Is(task) || (task == chief_ && caller_.HasRole("chief"));
}

absl::Status Permissions::Denied(absl::string_view what, absl::string_view who) const {
  return absl::PermissionDeniedError(absl::StrCat("the certificate of ", caller_.ToString(), " may not ",
                                                  what, ": only that of ", who, " may"));
}

absl::Status Permissions::Check(const v1::CreateRequest& request, const Server&) const {
  const bool variables = request.job().mode() == v1::MODE_VARIABLES;
  if (IsChief() || (variables && IsOperator())) return absl::OkStatus();
  return Denied(variables ? "create variables" : "create a job",
                variables ? absl::StrCat("the chief (", chief_, ") or an operator")
                          : absl::StrCat("the chief (", chief_, ")"));
}

absl::Status Permissions::Check(const v1::JoinRequest& request, const Server& server) const {
  if (!caller_.named()) return absl::OkStatus();
  // The task that has this number. An elastic job assigns a free number to any task, under the task's
  // own name.
  const std::string task = server.TaskOf(request.worker());
  if (!task.empty() && !Is(task)) return Denied(absl::StrCat("join as ", task), task);
  if (server.elastic() && !Is(request.task()))
    return Denied(absl::StrCat("join as ", request.task()), request.task());
  if (task.empty() && !server.elastic())
    return Denied(absl::StrCat("join as worker ", request.worker()), "that worker");
  return absl::OkStatus();
}

absl::Status Permissions::Check(const v1::HeartbeatRequest& request, const Server& server) const {
  const std::string task = server.TaskOf(request.worker());
  return Is(task) ? absl::OkStatus() : Denied(absl::StrCat("keep the lease of ", task), task);
}

absl::Status Permissions::Check(const v1::BatchMeanRequest& request, const Server& server) const {
  const std::string task = server.TaskOf(request.worker());
  return Is(task) ? absl::OkStatus() : Denied(absl::StrCat("send values of ", task), task);
}

absl::Status Permissions::Check(const v1::LeaveRequest& request, const Server& server) const {
  const std::string task = server.TaskOf(request.worker());
  return Is(task) ? absl::OkStatus() : Denied(absl::StrCat("leave as ", task), task);
}

absl::Status Permissions::Check(const v1::PlaceMarkerRequest& request, const Server&) const {
  if (!request.snapshot()) {
    if (IsChief() || IsOperator() || caller_.HasRole("worker") || caller_.HasRole("evaluator")) {
      return absl::OkStatus();
    }
    return Denied("write a marker", "a worker, an evaluator or an operator");
  }
  return IsChief() ? absl::OkStatus() : Denied("take a snapshot", absl::StrCat("the chief (", chief_, ")"));
}

absl::Status Permissions::Check(const v1::ChangeConfigRequest&, const Server&) const {
  return IsChief() ? absl::OkStatus() : Denied("change the job", absl::StrCat("the chief (", chief_, ")"));
}

absl::Status Permissions::Check(const v1::FinishRequest&, const Server&) const {
  if (IsChief() || IsOperator()) return absl::OkStatus();
  return Denied("end the job", absl::StrCat("the chief (", chief_, ") or an operator"));
}

absl::Status Permissions::CheckPush(int worker, const Server& server) const {
  if (!caller_.named()) return absl::OkStatus();
  const std::string task = server.TaskOf(worker);
  return Is(task) ? absl::OkStatus() : Denied(absl::StrCat("push as ", task), task);
}

absl::Status Permissions::CheckWrite() const {
  if (IsChief() || IsOperator()) return absl::OkStatus();
  return Denied("write variables", absl::StrCat("the chief (", chief_, ") or an operator"));
}

absl::Status Permissions::CheckFollow(int server) const {
  const std::string task = absl::StrCat("ps/", server);
  return caller_.Is(task) ? absl::OkStatus() : Denied(absl::StrCat("follow the log as ", task), task);
}

absl::Status Permissions::CheckReplicate() const {
  return caller_.HasRole("ps") ? absl::OkStatus() : Denied("replicate a shard", "a server");
}

}  // namespace cairn::ps
