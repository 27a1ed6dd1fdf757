#include <pwd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/commands/command.h"
#include "client/transport/grpc_transport.h"
#include "common/core/clock.h"
#include "common/core/status.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "common/net/cluster/cluster_flags.h"
#include "common/net/cluster/cluster_spec.h"
#include "common/net/grpc/grpc_util.h"
#include "common/net/grpc/unreachable.h"
#include "common/net/security/access.h"
#include "common/net/security/local_token.h"

namespace cairn::cli {
namespace {

constexpr char kJobProgram[] = "cairn job";

// "alice@host7". The tasks of the cancelled job log this name.
std::string UserAndHost() {
  const passwd* const user = getpwuid(geteuid());
  char host[HOST_NAME_MAX + 1] = "an unknown host";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(user != nullptr ? user->pw_name : absl::StrCat("user ", geteuid()), "@", host);
}

// Describes the end of a job that was in `state` when Finish was called.
const char* HowItEnds(v1::State state) {
  switch (state) {
    case v1::STATE_FINISHED:
      return "had ended";
    case v1::STATE_FAILED:
      return "had failed";
    default:
      return "cancelled";
  }
}

// `cairn job cancel`: cancels a job, whether its workers still run or have disappeared, to free its servers.
class JobCommand final : public Command {
 public:
  void Declare(CLI::App& app) override {
    app.require_subcommand(1);
    CLI::App* cancel = app.add_subcommand(
        "cancel",
        "Cancel the job: workers exit with code 1, servers with 0 within 10 s; no checkpoint is saved");
    net::AddClusterFlags(*cancel, flags_);
    net::AddAccessFlags(*cancel, access_);
    AddFlags(*cancel,
             {{"--timeout SECONDS", &timeout_seconds_, "Time limit for each server", NumberAbove(0)}});
  }

  int Run(const CLI::App&) override {
    const auto cluster = net::ResolveCluster(flags_, std::getenv("TF_CONFIG"), /*require_task=*/false);
    if (!cluster.ok()) return static_cast<int>(UsageError(kJobProgram, cluster.status().message()));
    if (const absl::Status status = net::CheckAccess(access_, std::getenv(net::kTokenVariable));
        !status.ok()) {
      return static_cast<int>(UsageError(kJobProgram, status.message()));
    }
    net::TakeLocalToken(cluster->spec.servers().front(), access_);
    net::QuietGrpc();
    std::vector<Found> servers;
    for (const net::HostPort& address : cluster->spec.servers()) {
      servers.push_back(Find(static_cast<int>(servers.size()), address.ToString(), cluster->spec.Hash()));
    }
    // Announces the cancellation to all servers first: as soon as one server notifies a worker of it, the
    // worker leaves the other servers as failed.
    for (Found& server : servers) {
      if (HasJob(server)) server.reached = Finish(server, /*announce=*/true);
    }
    absl::Status first;
    for (const Found& server : servers) {
      const absl::Status status = Annotate(Cancel(server), server.name);
      if (!status.ok()) std::fprintf(stderr, "%s: %s\n", kJobProgram, std::string(status.message()).c_str());
      first.Update(status);
    }
    return static_cast<int>(ExitCodeOf(first));
  }

 private:
  struct Found {
    std::string name;  // "ps/0 at localhost:2222"
    std::unique_ptr<client::ServerStub> stub;
    absl::Status reached{};
    v1::ConnectResponse described{};
  };

  Found Find(int index, const std::string& address, uint64_t cluster_hash) const {
    Found server = {.name = absl::StrCat("ps/", index, " at ", address),
                    .stub = client::MakeGrpcStub(address, net::CredentialsOf(access_))};
    v1::ConnectRequest request;
    request.set_protocol(net::kProtocolVersion);
    request.set_cluster_hash(cluster_hash);
    request.set_server(index);
    request.set_client(kJobProgram);
    server.reached = server.stub->Call(request, &server.described, timeout());
    if (absl::IsUnavailable(server.reached) || absl::IsDeadlineExceeded(server.reached)) {
      server.reached = absl::UnavailableError(net::WhyUnreachable(server.reached));
    }
    return server;
  }

  static bool HasJob(const Found& server) {
    return server.reached.ok() && server.described.state() != v1::STATE_EMPTY;
  }

  absl::Status Finish(const Found& server, bool announce) const {
    v1::FinishRequest request;
    request.set_cancelled_by(UserAndHost());
    request.set_announce(announce);
    v1::FinishResponse response;
    return server.stub->Call(request, &response, timeout());
  }

  // Cancels the job on one server. The answers of the other servers do not depend on this one.
  absl::Status Cancel(const Found& server) const {
    CAIRN_RETURN_IF_ERROR(server.reached);
    const v1::ConnectResponse& described = server.described;
    if (!HasJob(server)) {
      std::printf("%s has no job\n", server.name.c_str());
      return absl::OkStatus();
    }
    CAIRN_RETURN_IF_ERROR(Finish(server, /*announce=*/false));
    const std::string job =
        described.job().run_id().empty() ? "its job" : absl::StrCat("job ", described.job().run_id());
    std::printf("%s: %s %s at step %s\n", server.name.c_str(), job.c_str(), HowItEnds(described.state()),
                absl::StrCat(described.version()).c_str());
    return absl::OkStatus();
  }

  client::Timeout timeout() const {
    return std::chrono::duration_cast<client::Timeout>(FromSeconds(timeout_seconds_));
  }

  net::ClusterFlags flags_;
  net::Access access_;
  double timeout_seconds_ = 10;
};

}  // namespace

std::unique_ptr<Command> MakeJobCommand() {
  return std::make_unique<JobCommand>();
}

}  // namespace cairn::cli
