#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/commands/command.h"
#include "cli/planner/planned_tables.h"
#include "cli/planner/planner.h"
#include "cli/planner/ring_plan.h"
#include "common/core/status.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "common/memory/memory_size.h"
#include "common/net/cluster/task_needs.h"
#include "common/net/wire/codec.h"
#include "common/net/wire/wire_choice.h"
#include "nn/model.h"
#include "worker/embedding/table_needs.h"
#include "worker/export/model_source.h"
#include "worker/options/job.h"
#include "worker/options/options.h"
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
    AddFlags(
        app,
        {{"--batch_size N", &options_.batch_size, "Examples per step and worker, for embedding tables",
          WholeNumberFrom(1)},
         {"--optimizer NAME", &options_.optimizer.name,
          "Optimizer of embedding tables without one of their own, by Keras' name [from the model file]"},
         {"--dynamic_rows N", &assumptions_.dynamic_rows,
          "Rows to expect in each table of --dynamic_tables [counted in --data_dir]", WholeNumberFrom(1),
          kDefaultInText},
         {"--distinct_ids SHARE", &assumptions_.distinct_ids,
          "Share of the ids of a batch that are different [counted in --data_dir; otherwise as of ids that "
          "are drawn uniformly]",
          NumberBetween(0, 1)},
         {"--bag_ids X", &assumptions_.bag_ids,
          "Ids of an example in a ragged input, on average, unless they are counted in --data_dir",
          NumberAbove(0)},
         {"--memory_limit SIZE", &memory_limit_,
          "The --memory_limit of each server: exit with 1 if embedding tables and variables need more",
          ParsedBy(&ParseMemorySize)},
         {"--[no]checkpoints", &assumptions_.checkpoints,
          "The job has a --train_dir: servers have a second copy of their rows while a checkpoint is made"},
         {"--ps_replication 0|1", &options_.ps_replication,
          "1: servers have backups of each other, and each can use half of --memory_limit",
          WholeNumberBetween(0, 1)}});
    worker::AddEmbeddingFlags(app, options_.embedding);
    worker::AddDataFlags(app, options_);
    worker::AddWireFlags(app, options_.wire);
    AddFlags(app, {{"--table", &table_,
                    "Print a table of step times for clusters of up to 1000 workers and 200 servers"},
                   {"--json", &json_, "Print one JSON object, in seconds and bytes"}});
  }

  int Run(const CLI::App&) override {
    const auto model = worker::ReadModelFile(model_, {.given = options_.input_shapes});
    if (!model.ok()) return static_cast<int>(UsageError(kPlanProgram, model.status().message()));
    if (!memory_limit_.empty()) assumptions_.memory_limit = ParseMemorySize(memory_limit_).value();
    const auto tables = PlanTables(options_, *model, servers_, input_.workers, assumptions_);
    if (!tables.ok()) return static_cast<int>(UsageError(kPlanProgram, tables.status().message()));
    input_.variables = worker::VariablesOf(tables->has_value() ? (*tables)->trained : *model);
    input_.link = ParseLinkRate(link_).value();
    input_.step_compute = ParseSeconds(compute_).value();
    input_.round_trip = ParseSeconds(round_trip_).value();
    input_.task_rate = ParseLinkRate(task_rate_).value();
    input_.memory_bandwidth = memory_gigabytes_ * 1e9;
    v1::Job job;
    absl::Status wire = worker::ValidateWireFlags(options_.wire);
    if (wire.ok()) wire = worker::SetWire(options_.wire, input_.variables, job);
    if (!wire.ok()) return static_cast<int>(UsageError(kPlanProgram, wire.message()));
    input_.gradient_bytes = net::GradientBytesPerElement(job, input_.variables);
    input_.value_bytes = net::CodecOf(job.wire()) == nullptr ? 4 : 2;
    input_.row_bytes = input_.value_bytes;
    input_.stale_rows = options_.embedding.staleness > 0;
    if (tables->has_value()) input_.tables = (*tables)->traffic();
    if (table_) {
      std::printf("%s", AsTable(input_, kTableWorkers, kTableServers).c_str());
    } else {
      std::printf("%s", Report(*tables).c_str());
    }
    if (!tables->has_value()) return 0;
    const absl::Status fits = CheckPlannedMemory(**tables, assumptions_);
    if (!fits.ok()) std::fprintf(stderr, "%s: %s\n", kPlanProgram, std::string(fits.message()).c_str());
    return static_cast<int>(fits.ok() ? ExitCode::kDone : ExitCode::kFailure);
  }

 private:
  std::string Report(const std::optional<PlannedTables>& tables) const {
    const StepPlan plan = PlanStep(input_, servers_);
    const StepPlan best =
        BestPlan(input_, std::clamp(2 * input_.workers, servers_, std::max(servers_, kMaxServers)));
    if (json_) return AsJson(plan, best, tables);
    std::string text = AsText(input_, plan, best);
    if (!tables.has_value()) absl::StrAppend(&text, AsText(input_, PlanRing(input_), plan, best));
    absl::StrAppend(&text, DescriptorsAsText(input_, servers_));
    if (tables.has_value()) absl::StrAppend(&text, AsText(*tables, assumptions_));
    return text;
  }

  std::string AsJson(const StepPlan& plan, const StepPlan& best,
                     const std::optional<PlannedTables>& tables) const {
    nlohmann::ordered_json document = {{"ps", plan.servers},
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
                                       {"worker_open_files", net::WorkerDescriptors(plan.servers)}};
    if (!tables.has_value()) {
      const RingPlan ring = PlanRing(input_);
      document["allreduce_step_seconds"] = ring.step;
      document["allreduce_link_bytes"] = ring.worker_bytes;
      return document.dump(2) + "\n";
    }
    document["tables_seconds"] = plan.tables;
    document["worker_link_row_bytes"] = plan.worker_row_bytes;
    document["worker_link_row_pull_bytes"] = plan.worker_row_pull_bytes;
    document["server_rows_per_second"] = plan.server_rows_per_second;
    document["server_row_memory_bytes"] = tables->server_bytes();
    document["distinct_from"] = tables->distinct_from;
    for (const PlannedTables::Table& table : tables->tables) {
      document["tables"].push_back({{"name", table.needs.name},
                                    {"rows", table.rows},
                                    {"rows_from", table.rows_from},
                                    {"width", table.needs.dim},
                                    {"optimizer", table.needs.optimizer},
                                    {"slot_floats", table.needs.slots},
                                    {"combiner", table.combiner},
                                    {"row_bytes", table.needs.row_bytes()},
                                    {"server_bytes", worker::PartBytes(table.needs, table.rows, tables->job)},
                                    {"batch_ids", table.ids},
                                    {"batch_distinct_ids", table.distinct}});
    }
    return document.dump(2) + "\n";
  }

  std::string model_, link_ = "10Gbit", compute_, round_trip_ = "200us", task_rate_ = "8Gbit";
  std::string memory_limit_;
  worker::TrainOptions options_;
  TableAssumptions assumptions_;
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
