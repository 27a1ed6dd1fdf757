#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/commands/command.h"
#include "client/client.h"
#include "common/core/clock.h"
#include "common/core/status.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "common/net/cluster/cluster_flags.h"
#include "common/net/cluster/cluster_spec.h"
#include "common/net/grpc/grpc_util.h"
#include "common/net/security/access.h"
#include "common/net/security/local_token.h"

namespace cairn::cli {
namespace {

constexpr char kVarProgram[] = "cairn var";

// "3.5" or "1,2,3".
absl::StatusOr<std::vector<float>> ParseValues(const std::string& text) {
  std::vector<float> values;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    float value = 0;
    if (!absl::SimpleAtof(part, &value)) {
      return absl::InvalidArgumentError(absl::StrCat("'", part, "' is not a number"));
    }
    values.push_back(value);
  }
  return values;
}

std::string Join(const std::vector<float>& values) {
  return absl::StrJoin(values, ",", [](std::string* out, float value) { absl::StrAppend(out, value); });
}

// `cairn var`: sets, gets and lists variables on the servers, with or without a job.
class VarCommand final : public Command {
 public:
  void Declare(CLI::App& app) override {
    app.require_subcommand(1);
    set_ = app.add_subcommand("set", "Set the value of a variable; create the variable if it does not exist");
    get_ = app.add_subcommand("get", "Print the values of a variable");
    list_ = app.add_subcommand("list", "Print the name, shape and servers of all variables");
    for (CLI::App* command : {set_, get_, list_}) {
      net::AddClusterFlags(*command, flags_);
      net::AddAccessFlags(*command, access_);
      AddFlags(*command, {{"--timeout SECONDS", &timeout_seconds_, "Time limit for connecting to the servers",
                           NumberAbove(0)}});
    }
    for (CLI::App* command : {set_, get_})
      AddFlags(*command, {{"NAME", &name_, "Name of the variable", {}, kRequired}});
    AddFlags(*set_,
             {{"VALUE", &value_, "A number, or several numbers: 1,2,3", {}, kRequired},
              {"--force", &force_,
               "Set the variable even while a job is training; the job continues with the new value"}});
  }

  int Run(const CLI::App&) override {
    const auto cluster = net::ResolveCluster(flags_, std::getenv("TF_CONFIG"), /*require_task=*/false);
    if (!cluster.ok()) return static_cast<int>(UsageError(kVarProgram, cluster.status().message()));
    const absl::Status access = net::CheckAccess(access_, std::getenv(net::kTokenVariable));
    if (!access.ok()) {
      return static_cast<int>(UsageError(kVarProgram, access.message()));
    }
    net::TakeLocalToken(cluster->spec.servers().front(), access_);
    std::vector<float> values;
    if (set_->parsed()) {
      auto parsed = ParseValues(value_);
      if (!parsed.ok()) return static_cast<int>(UsageError(kVarProgram, parsed.status().message()));
      values = *std::move(parsed);
    }
    net::QuietGrpc();
    std::vector<std::string> servers;
    for (const net::HostPort& server : cluster->spec.servers()) servers.push_back(server.ToString());
    const auto timeout = FromSeconds(timeout_seconds_);
    auto client = client::Client::Connect(
        servers, {.task = kVarProgram, .cluster_hash = cluster->spec.Hash(), .connect_timeout = timeout},
        access_);
    absl::Status status = client.status();
    if (status.ok())
      status = set_->parsed() ? Set(**client, values) : get_->parsed() ? Get(**client) : List(**client);
    if (status.ok()) return 0;
    std::fprintf(stderr, "%s: %s\n", kVarProgram, std::string(status.message()).c_str());
    return static_cast<int>(ExitCodeOf(status));
  }

 private:
  // INVALID_ARGUMENT if a job trains the variables: setting one changes the job for all of its workers.
  absl::Status CheckNotTraining(client::Client& client) const {
    CAIRN_ASSIGN_OR_RETURN(const auto training, client.Training());
    if (!training.has_value()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("'", name_, "' is not set: job ", training->job().run_id(), " is training, at step ",
                     training->version(), ", and would continue with the new value; --force sets it anyway"));
  }

  absl::Status Set(client::Client& client, const std::vector<float>& values) {
    if (!force_) CAIRN_RETURN_IF_ERROR(CheckNotTraining(client));
    const absl::Status status = client.Write(name_, values);
    if (!absl::IsNotFound(status)) return status;
    const Shape shape = values.size() == 1 ? Shape({}) : Shape({static_cast<int64_t>(values.size())});
    return client.Create(name_, shape, values);
  }

  absl::Status Get(client::Client& client) {
    CAIRN_ASSIGN_OR_RETURN(const auto values, client.Read(name_));
    std::printf("%s\n", Join(values).c_str());
    return absl::OkStatus();
  }

  absl::Status List(client::Client& client) {
    CAIRN_ASSIGN_OR_RETURN(const auto variables, client.List());
    for (const auto& variable : variables) {
      const auto servers = absl::StrJoin(
          variable.servers, ",", [](std::string* out, int server) { absl::StrAppend(out, "ps/", server); });
      std::printf("%s\t%s\t%s\n", variable.name.c_str(), variable.shape.ToString().c_str(), servers.c_str());
    }
    return absl::OkStatus();
  }

  net::ClusterFlags flags_;
  net::Access access_;
  double timeout_seconds_ = 10;
  std::string name_, value_;
  bool force_ = false;
  CLI::App *set_ = nullptr, *get_ = nullptr, *list_ = nullptr;
};

}  // namespace

std::unique_ptr<Command> MakeVarCommand() {
  return std::make_unique<VarCommand>();
}

}  // namespace cairn::cli
