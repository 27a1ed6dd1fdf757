#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "common/core/clock.h"
#include "common/core/flags.h"
#include "common/core/status.h"
#include "common/net/access.h"
#include "common/net/cluster_flags.h"
#include "common/net/cluster_spec.h"
#include "common/net/grpc_util.h"
#include "common/net/local_token.h"
#include "common/net/unreachable.h"
#include "worker/client/grpc_transport.h"

namespace cairn::cli {
namespace {

constexpr char kProgram[] = "cairn job";

// Jobs from outside: ends one whose tasks are gone, so that its servers are free.
class JobCommand final : public Command {
 public:
  void Declare(CLI::App& app) override {
    app.require_subcommand(1);
    CLI::App* cancel = app.add_subcommand(
        "cancel", "End the job on its servers, which exit as at a job's end; nothing is saved");
    net::AddClusterFlags(*cancel, flags_);
    net::AddAccessFlags(*cancel, access_);
    cancel->add_option("--timeout", timeout_seconds_, "Seconds to wait for each server")
        ->check(NumberAbove(0))
        ->capture_default_str()
        ->type_name("SECONDS");
  }

  int Run(const CLI::App&) override {
    const auto cluster = net::ResolveCluster(flags_, std::getenv("TF_CONFIG"), /*require_task=*/false);
    if (!cluster.ok()) return static_cast<int>(UsageError(kProgram, cluster.status().message()));
    if (const absl::Status status = net::CheckAccess(access_, std::getenv(net::kTokenVariable));
        !status.ok()) {
      return static_cast<int>(UsageError(kProgram, status.message()));
    }
    net::TakeLocalToken(cluster->spec.servers().front(), access_);
    net::QuietGrpc();
    absl::Status first;
    int server = 0;
    for (const net::HostPort& address : cluster->spec.servers()) {
      const std::string name = absl::StrCat("ps/", server, " at ", address.ToString());
      const absl::Status status =
          Annotate(Cancel(server++, address.ToString(), name, cluster->spec.Hash()), name);
      if (!status.ok()) std::fprintf(stderr, "%s: %s\n", kProgram, std::string(status.message()).c_str());
      first.Update(status);
    }
    return static_cast<int>(ExitCodeOf(first));
  }

 private:
  // Cancels the job on one server. The answers of the other servers do not depend on this one.
  absl::Status Cancel(int server, const std::string& address, const std::string& name,
                      uint64_t cluster_hash) const {
    const auto stub = client::MakeGrpcStub(address, net::CredentialsOf(access_));
    const auto timeout = std::chrono::duration_cast<client::Timeout>(FromSeconds(timeout_seconds_));
    v1::ConnectRequest request;
    request.set_protocol(net::kProtocolVersion);
    request.set_cluster_hash(cluster_hash);
    request.set_server(server);
    request.set_client(kProgram);
    v1::ConnectResponse described;
    const absl::Status connected = stub->Connect(request, &described, timeout);
    if (absl::IsUnavailable(connected) || absl::IsDeadlineExceeded(connected)) {
      return absl::UnavailableError(net::WhyUnreachable(connected));
    }
    CAIRN_RETURN_IF_ERROR(connected);
    if (described.state() == v1::STATE_EMPTY) {
      std::printf("%s has no job\n", name.c_str());
      return absl::OkStatus();
    }
    v1::FinishResponse finished;
    CAIRN_RETURN_IF_ERROR(stub->Finish(v1::FinishRequest(), &finished, timeout));
    std::printf(
        "%s: %s ended at step %s\n", name.c_str(),
        described.job().run_id().empty() ? "its job" : absl::StrCat("job ", described.job().run_id()).c_str(),
        absl::StrCat(described.version()).c_str());
    return absl::OkStatus();
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
