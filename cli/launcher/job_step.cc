#include "cli/launcher/job_step.h"

#include <algorithm>
#include <chrono>

#include "cairn/v1/inspector.grpc.pb.h"
#include "common/net/grpc/grpc_util.h"

namespace cairn::cli {

std::optional<int64_t> RequestStep(const std::vector<std::string>& servers, const net::Access& access,
                                   Duration timeout) {
  const TimePoint deadline = std::chrono::steady_clock::now() + timeout;
  const auto credentials = net::CredentialsOf(access);
  std::optional<int64_t> step;
  for (const std::string& address : servers) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) break;
    const auto stub = v1::Inspector::NewStub(net::MakeChannel(address, credentials));
    grpc::ClientContext context;
    net::SetDeadline(context, left);
    v1::ServerStatus server;
    if (!stub->Describe(&context, v1::DescribeRequest(), &server).ok()) continue;
    step = std::max(step.value_or(server.version()), server.version());
  }
  return step;
}

}  // namespace cairn::cli
