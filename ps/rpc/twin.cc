#include "ps/rpc/twin.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "cairn/v1/inspector.grpc.pb.h"
#include "common/core/status.h"

namespace cairn::ps {

absl::Status CheckNoTwin(const TwinQuestion& question, const net::Credentials& credentials) {
  const auto stub = v1::Inspector::NewStub(net::MakeChannel(question.address, credentials));
  grpc::ClientContext context;
  net::SetDeadline(context, std::chrono::seconds(2));
  context.set_wait_for_ready(true);
  v1::ServerStatus answer;
  if (!stub->Describe(&context, v1::DescribeRequest(), &answer).ok()) return absl::OkStatus();
  const bool same_task = answer.task() == question.task && answer.cluster_hash() == question.cluster_hash;
  if (!same_task || answer.incarnation() == question.incarnation) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(question.task, " is already running: another process serves at ", question.address,
                   ", for ", static_cast<int64_t>(answer.uptime_seconds()),
                   " s now, and clients would never reach this one; give every server its own index "
                   "(--task_index, TF_CONFIG)"));
}

}  // namespace cairn::ps
