#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/commands/command.h"
#include "cli/preflight/preflight.h"
#include "common/core/clock.h"
#include "common/core/status.h"
#include "common/flags/edit_distance.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "common/memory/memory_size.h"
#include "common/net/cluster/cluster_flags.h"
#include "common/net/cluster/ignored_jobs.h"
#include "common/net/grpc/grpc_util.h"
#include "common/net/security/access.h"
#include "common/net/security/local_token.h"
#include "common/net/security/tls.h"

namespace cairn::cli {
namespace {

// `cairn check`: checks from this machine whether a job can start. Accepts the same flags as the tasks.
class CheckCommand final : public Command {
 public:
  void Declare(CLI::App& app) override {
    net::AddClusterFlags(app, flags_);
    net::AddAccessFlags(app, access_);
    AddFlags(app, {{"--timeout SECONDS", &timeout_seconds_, "Time limit for each server", NumberAbove(0)},
                   {"--memory_limit SIZE", &memory_limit_,
                    "The --memory_limit of servers that do not run yet, to check that the job fits",
                    ParsedBy(&ParseMemorySize)}});
    worker::AddTrainOptions(app, options_);
  }

  int Run(const CLI::App&) override {
    net::QuietGrpc();
    std::vector<Finding> findings = Findings();
    std::printf("%s", AsText(findings).c_str());
    const bool faults =
        std::any_of(findings.begin(), findings.end(), [](const Finding& finding) { return finding.fault; });
    return static_cast<int>(faults ? ExitCode::kFailure : ExitCode::kDone);
  }

 private:
  std::vector<Finding> Findings() {
    net::ClusterFlags flags = flags_;
    flags.needs_servers = !options_.all_reduce();
    const auto cluster =
        net::ResolveCluster(flags, std::getenv("TF_CONFIG"),
                            /*require_task=*/!flags.job_name.empty() || flags.task_index.has_value());
    if (!cluster.ok()) {
      return {{.subject = "cluster",
               .fault = true,
               .what = std::string(cluster.status().message()),
               .remedy = "correct the cluster's description; docs/guides/cluster.md shows the forms"}};
    }
    if (const absl::Status status = net::CheckAccess(access_, std::getenv(net::kTokenVariable));
        !status.ok()) {
      return {{.subject = "access",
               .fault = true,
               .what = std::string(status.message()),
               .remedy = "docs/security.md explains how to create certificates and a job token"}};
    }
    if (cluster->spec.num_tasks("ps") > 0) net::TakeLocalToken(cluster->spec.servers().front(), access_);
    Examination examination = OfThisMachine(*cluster);
    examination.access = access_;
    examination.options = options_;
    if (!memory_limit_.empty()) examination.memory_limit = ParseMemorySize(memory_limit_).value();
    examination.timeout = FromSeconds(timeout_seconds_);
    std::vector<Finding> findings = Examine(examination);
    for (const std::string& job : net::IgnoredJobs(flags, std::getenv("TF_CONFIG"))) {
      findings.push_back(FindingOfIgnored(job));
    }
    return findings;
  }

  // Reports a job in the cluster that Cairn does not know: it belongs to another program, or its name is
  // misspelt.
  static Finding FindingOfIgnored(const std::string& job) {
    for (const char* known : {"ps", "worker", "chief", "evaluator"}) {
      const size_t distance = EditDistance(absl::AsciiStrToLower(job), known);
      if (distance > 2 || distance >= std::string(known).size()) continue;
      return {.subject = "cluster",
              .fault = true,
              .what = absl::StrCat("\"", job, "\" is not a known job and is ignored; did you mean \"", known,
                                   "\"?"),
              .remedy = "correct its name: jobs are ps, worker, chief and evaluator"};
    }
    return {.subject = "cluster",
            .what = absl::StrCat("job \"", job, "\" belongs to another program and is ignored")};
  }

  net::ClusterFlags flags_;
  net::Access access_;
  worker::TrainOptions options_;
  std::string memory_limit_;
  double timeout_seconds_ = 3;
};

}  // namespace

std::unique_ptr<Command> MakeCheckCommand() {
  return std::make_unique<CheckCommand>();
}

}  // namespace cairn::cli
