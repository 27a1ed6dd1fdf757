#include "worker/peer/link.h"

#include "absl/strings/str_cat.h"
#include "common/net/grpc/grpc_util.h"

namespace cairn::allreduce {

absl::Status CheckCaller(const v1::GreetRequest& request, uint64_t cluster_hash) {
  if (request.protocol() != net::kProtocolVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("it speaks protocol ", net::kProtocolVersion, ", and the caller ", request.protocol()));
  }
  if (request.cluster_hash() != 0 && cluster_hash != 0 && request.cluster_hash() != cluster_hash) {
    return absl::FailedPreconditionError(absl::StrCat("it belongs to a cluster with other workers: hash ",
                                                      absl::Hex(cluster_hash), " there, and the caller's is ",
                                                      absl::Hex(request.cluster_hash())));
  }
  return absl::OkStatus();
}

absl::Status SentStatus(int code, absl::string_view message) {
  const auto sent = static_cast<absl::StatusCode>(code);
  const bool known = sent > absl::StatusCode::kOk && sent <= absl::StatusCode::kUnauthenticated;
  return {known ? sent : absl::StatusCode::kUnknown, message};
}

bool IsLoss(const absl::Status& status) {
  return status.ok() || absl::IsUnavailable(status) || absl::IsCancelled(status) || absl::IsUnknown(status) ||
         absl::IsInternal(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace cairn::allreduce
