#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/commands/command.h"
#include "cli/planner/planner.h"
#include "cli/planner/ring_plan.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "common/net/cluster/task_needs.h"
#include "common/net/wire/codec.h"
#include "common/net/wire/wire_choice.h"
#include "nn/model.h"
#include "worker/export/model_source.h"
#include "worker/options/job.h"
#include "worker/options/wire_flags.h"

namespace cairn::cli {
namespace {

constexpr char kPlanProgram[] = "cairn plan";
// Upper limit of servers in the search for the best number.
constexpr int kMaxServers = 256;
constexpr int kTableWorkers[] = {1, 8, 64, 256, 1000};
constexpr int kTableServers[] = {1, 4, 16, 64, 200};

class PlanCommand final : public Command {
 public:
  void Declare(CLI::App& app) override {
    AddFlags(
        app,
        {{"MODEL FILE",
          &model_,
          "Model file: Keras JSON, .keras, or a .h5 file with a whole model",
          {},
          kRequired},
         {"--ps N", &servers_, "Number of parameter servers", WholeNumberFrom(1)},
         {"--workers N", &input_.workers, "Number of workers", WholeNumberFrom(1)},
         {"--link RATE", &link_,
          "Bandwidth of each machine's network link in each direction, for example 10Gbit or 100Mbit",
          ParsedBy(&ParseLinkRate)},
         {"--step_compute TIME", &compute_,
          "Compute time of one step of a worker, for example 30ms; `step_bench --compute_only` measures it",
          ParsedBy(&ParseSeconds), kRequired},
         {"--round_trip TIME", &round_trip_, "Round-trip time of a small message between two machines",
          ParsedBy(&ParseSeconds)},
         {"--task_rate RATE", &task_rate_,
          "Largest rate at which one task sends or receives, whatever its link; push_pull_bench measures it",
          ParsedBy(&ParseLinkRate)},
         {"--memory_bandwidth X", &memory_gigabytes_,
          "Memory bandwidth of a server's update, in GB/s; apply_bench measures it", NumberAbove(0)},
         {"--optimizer_slots N", &input_.optimizer_slots,
          "Optimizer slots of each parameter: 0 for SGD, 1 with momentum, 2 for Adam", WholeNumberFrom(0)},
         {"--norms", &input_.norms,
          "The optimizer needs norms (clipnorm, global_clipnorm, LAMB): servers send values only after all "
          "gradients have arrived"}});
    worker::AddWireFlags(app, wire_);
    AddFlags(app, {{"--table", &table_,
                    "Print a table of step times for clusters of up to 1000 workers and 200 servers"},
                   {"--json", &json_, "Print one JSON object, in seconds and bytes"}});
  }

  int Run(const CLI::App&) override {
    const auto model = worker::ReadModelFile(model_);
    if (!model.ok()) return static_cast<int>(UsageError(kPlanProgram, model.status().message()));
    input_.variables = worker::VariablesOf(*model);
    input_.link = ParseLinkRate(link_).value();
    input_.step_compute = ParseSeconds(compute_).value();
    input_.round_trip = ParseSeconds(round_trip_).value();
    input_.task_rate = ParseLinkRate(task_rate_).value();
    input_.memory_bandwidth = memory_gigabytes_ * 1e9;
    v1::Job job;
    absl::Status wire = worker::ValidateWireFlags(wire_);
    if (wire.ok()) wire = worker::SetWire(wire_, input_.variables, job);
    if (!wire.ok()) return static_cast<int>(UsageError(kPlanProgram, wire.message()));
    input_.gradient_bytes = net::GradientBytesPerElement(job, input_.variables);
    input_.value_bytes = net::CodecOf(job.wire()) == nullptr ? 4 : 2;
    if (table_) {
      std::printf("%s", AsTable(input_, kTableWorkers, kTableServers).c_str());
      return 0;
    }
    const StepPlan plan = PlanStep(input_, servers_);
    const StepPlan best =
        BestPlan(input_, std::clamp(2 * input_.workers, servers_, std::max(servers_, kMaxServers)));
    const RingPlan ring = PlanRing(input_);
    const std::string text = json_
                                 ? AsJson(plan, best, ring)
                                 : absl::StrCat(AsText(input_, plan, best), AsText(input_, ring, plan, best),
                                                DescriptorsAsText(input_, servers_));
    std::printf("%s", text.c_str());
    return 0;
  }

 private:
  std::string AsJson(const StepPlan& plan, const StepPlan& best, const RingPlan& ring) const {
    const nlohmann::ordered_json document = {{"ps", plan.servers},
                                             {"workers", input_.workers},
                                             {"step_seconds", plan.step},
                                             {"compute_seconds", plan.compute},
                                             {"push_seconds", plan.push},
                                             {"update_seconds", plan.update},
                                             {"pull_seconds", plan.pull},
                                             {"latency_seconds", plan.latency},
                                             {"ahead_seconds", plan.ahead},
                                             {"worker_link_bytes", plan.worker_bytes},
                                             {"worker_link_pull_bytes", plan.worker_pull_bytes},
                                             {"server_link_bytes", plan.server_bytes},
                                             {"server_link_pull_bytes", plan.server_pull_bytes},
                                             {"imbalance", plan.imbalance},
                                             {"bottleneck", plan.bottleneck},
                                             {"best_ps", best.servers},
                                             {"best_step_seconds", best.step},
                                             {"server_open_files", net::ServerDescriptors(input_.workers)},
                                             {"worker_open_files", net::WorkerDescriptors(plan.servers)},
                                             {"allreduce_step_seconds", ring.step},
                                             {"allreduce_link_bytes", ring.worker_bytes}};
    return document.dump(2) + "\n";
  }

  std::string model_, link_ = "10Gbit", compute_, round_trip_ = "200us", task_rate_ = "8Gbit";
  worker::WireFlags wire_;
  double memory_gigabytes_ = 8;
  int servers_ = 1;
  bool table_ = false, json_ = false;
  PlanInput input_ = {.variables = {}, .optimizer_slots = 2};
};

}  // namespace

std::unique_ptr<Command> MakePlanCommand() {
  return std::make_unique<PlanCommand>();
}

}  // namespace cairn::cli
