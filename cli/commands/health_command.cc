#include <chrono>
#include <cstdio>
#include <string>

#include "cli/commands/command.h"
#include "common/core/clock.h"
#include "common/core/status.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "common/net/cluster/host_port.h"
#include "common/net/grpc/grpc_util.h"
#include "common/net/security/tls.h"
#include "common/net/server/health.h"

namespace cairn::cli {
namespace {

constexpr char kHealthProgram[] = "cairn health";

// `cairn health`: reports the health of a server as an exit code, for container health checks.
class HealthCommand final : public Command {
 public:
  void Declare(CLI::App& app) override {
    AddFlags(app, {{"HOST:PORT", &address_, "Address of the server", {}, kRequired},
                   {"--service NAME", &service_,
                    "Health service to check: ready fails until the variables are initialized [only that the "
                    "server responds]"},
                   {"--timeout SECONDS", &timeout_seconds_, "Time limit", NumberAbove(0)}});
    net::AddTlsFlags(app, tls_);
  }

  int Run(const CLI::App&) override {
    if (const auto address = net::HostPort::Parse(address_); !address.ok()) {
      return static_cast<int>(UsageError(kHealthProgram, address.status().message()));
    }
    if (const absl::Status status = net::CheckTlsFiles(tls_); !status.ok()) {
      return static_cast<int>(UsageError(kHealthProgram, status.message()));
    }
    net::QuietGrpc();
    const auto timeout = FromSeconds(timeout_seconds_);
    const absl::Status status = net::CheckHealth(address_, service_, timeout, tls_);
    if (status.ok()) {
      std::printf("%s: SERVING\n", address_.c_str());
      return static_cast<int>(ExitCode::kDone);
    }
    std::fprintf(stderr, "%s: %s\n", kHealthProgram, std::string(status.message()).c_str());
    return static_cast<int>(ExitCode::kFailure);
  }

 private:
  std::string address_, service_;
  double timeout_seconds_ = 3;
  net::TlsFiles tls_;
};

}  // namespace

std::unique_ptr<Command> MakeHealthCommand() {
  return std::make_unique<HealthCommand>();
}

}  // namespace cairn::cli
