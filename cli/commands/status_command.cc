#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cairn/v1/inspector.grpc.pb.h"
#include "cli/commands/command.h"
#include "cli/commands/status_view.h"
#include "common/core/status.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "common/net/cluster/cluster_flags.h"
#include "common/net/cluster/cluster_spec.h"
#include "common/net/grpc/grpc_util.h"
#include "common/net/grpc/unreachable.h"
#include "common/net/security/access.h"
#include "common/net/security/local_token.h"
#include "common/system/thread.h"

namespace cairn::cli {
namespace {

constexpr char kStatusProgram[] = "cairn status";

// `cairn status`: shows the status that the servers report, once or repeatedly.
class StatusCommand final : public Command {
 public:
  void Declare(CLI::App& app) override {
    net::AddClusterFlags(app, flags_);
    net::AddAccessFlags(app, access_);
    AddFlags(app, {{"--watch SECONDS", &watch_seconds_,
                    "Repeat at this interval until interrupted; SECONDS may be omitted", NumberAbove(0)},
                   {"--json", &json_, "Print one JSON object"},
                   {"--timeout SECONDS", &timeout_seconds_, "Time limit for each server", NumberAbove(0)}});
    app.get_option("--watch")->expected(0, 1)->default_str("2");
  }

  int Run(const CLI::App& app) override {
    const auto cluster = net::ResolveCluster(flags_, std::getenv("TF_CONFIG"), /*require_task=*/false);
    if (!cluster.ok()) return static_cast<int>(UsageError(kStatusProgram, cluster.status().message()));
    const absl::Status access = net::CheckAccess(access_, std::getenv(net::kTokenVariable));
    if (!access.ok()) {
      return static_cast<int>(UsageError(kStatusProgram, access.message()));
    }
    net::TakeLocalToken(cluster->spec.servers().front(), access_);
    net::QuietGrpc();
    const auto credentials = net::CredentialsOf(access_);
    std::vector<std::unique_ptr<v1::Inspector::Stub>> stubs;
    for (const net::HostPort& server : cluster->spec.servers()) {
      stubs.push_back(v1::Inspector::NewStub(net::MakeChannel(server.ToString(), credentials)));
    }
    const bool watch = !app.get_option("--watch")->empty();
    const bool clears = watch && !json_ && isatty(STDOUT_FILENO) != 0;
    for (;;) {
      const ClusterView view = {.cluster = cluster->spec, .servers = QueryAll(stubs)};
      const std::string text = json_ ? AsJson(view) : AsTable(view);
      std::printf("%s%s%s", clears ? "\x1b[H\x1b[2J" : "", text.c_str(), watch && !json_ ? "\n" : "");
      if (std::fflush(stdout) != 0) return static_cast<int>(ExitCode::kFailure);  // main() logs the reason
      if (!watch) return static_cast<int>(view.well() ? ExitCode::kDone : ExitCode::kFailure);
      std::this_thread::sleep_for(std::chrono::duration<double>(watch_seconds_));
    }
  }

 private:
  // Queries all servers concurrently, so that a server that does not answer costs at most one time limit.
  std::vector<absl::StatusOr<v1::ServerStatus>> QueryAll(
      const std::vector<std::unique_ptr<v1::Inspector::Stub>>& stubs) const {
    std::vector<absl::StatusOr<v1::ServerStatus>> answers(stubs.size(), absl::UnknownError("not asked"));
    std::vector<Thread> threads;
    for (size_t i = 0; i < stubs.size(); ++i) {
      threads.emplace_back("ask", [this, &answers, &stubs, i] { answers[i] = Query(*stubs[i]); });
    }
    for (Thread& thread : threads) thread.Join();
    return answers;
  }

  absl::StatusOr<v1::ServerStatus> Query(v1::Inspector::Stub& stub) const {
    grpc::ClientContext context;
    net::SetDeadline(context, std::chrono::milliseconds(static_cast<int64_t>(timeout_seconds_ * 1000)));
    v1::ServerStatus answer;
    const absl::Status status = net::FromGrpc(stub.Describe(&context, v1::DescribeRequest(), &answer));
    if (status.ok()) return answer;
    if (absl::IsUnimplemented(status))
      return absl::UnimplementedError("its version does not support status queries");
    return absl::Status(status.code(), net::WhyUnreachable(status));
  }

  net::ClusterFlags flags_;
  net::Access access_;
  double watch_seconds_ = 2;
  double timeout_seconds_ = 3;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeStatusCommand() {
  return std::make_unique<StatusCommand>();
}

}  // namespace cairn::cli
