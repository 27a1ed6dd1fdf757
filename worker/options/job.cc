#include "worker/options/job.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/core/status.h"
#include "common/flags/words.h"
#include "worker/checkpoint/run_proto.h"
#include "worker/model/digest.h"
#include "worker/options/schedule.h"

namespace cairn::worker {
namespace {

// The number of updates in an asynchronous epoch: all workers' batches that contain examples.
int64_t PushesPerEpoch(const TrainOptions& options, int64_t num_examples, int num_workers) {
  int64_t pushes = 0;
  for (int worker = 0; worker < num_workers; ++worker) {
    data::SamplerOptions sampler = *MakeSamplerOptions(options, num_examples, num_workers, worker);
    pushes += data::Sampler(sampler).batches_with_examples();
  }
  return pushes;
}

}  // namespace

absl::StatusOr<data::SamplerOptions> MakeSamplerOptions(const TrainOptions& options, int64_t num_examples,
                                                        int num_workers, int worker) {
  if (options.dynamic_sharding()) num_workers = 1, worker = 0;
  const data::SamplerOptions sampler = {
      .num_examples = num_examples,
      .num_workers = num_workers,
      .worker = worker,
      // A worker has only its share of the examples, so a larger batch size would have no effect.
      .batch_size =
          std::min(options.batch_size, std::max<int64_t>(1, (num_examples + num_workers - 1) / num_workers)),
      .shuffle = options.shuffle,
      .seed = options.seed,
      .tail = options.shard_tail == "pad"    ? data::Tail::kPad
              : options.shard_tail == "drop" ? data::Tail::kDrop
                                             : data::Tail::kExact,
  };
  CAIRN_RETURN_IF_ERROR(data::Validate(sampler));
  return sampler;
}

int64_t BatchesPerEpoch(const TrainOptions& options, int64_t num_examples, int num_workers) {
  return data::Sampler(*MakeSamplerOptions(options, num_examples, num_workers, 0)).batches_per_epoch();
}

int64_t StepsPerEpoch(const TrainOptions& options, int64_t num_examples, int num_workers) {
  if (options.mode == "sync" || options.all_reduce())
    return BatchesPerEpoch(options, num_examples, num_workers);
  // With bounded staleness, empty batches are also pushed, because clocks count them.
  if (options.mode == "ssp") return BatchesPerEpoch(options, num_examples, num_workers) * num_workers;
  return PushesPerEpoch(options, num_examples, num_workers);
}

absl::StatusOr<nn::Objective> MakeObjective(const TrainOptions& options, const nn::Model& model) {
  nn::CompileConfig compiled = model.compile_config();
  if (!options.loss.empty()) compiled.losses = {{.output = {}, .loss = {.class_name = options.loss}}};
  auto objective = nn::ObjectiveOf(compiled, model);
  if (absl::IsNotFound(objective.status()))
    return absl::InvalidArgumentError(absl::StrCat(objective.status().message(), ": give --loss"));
  return objective;
}

absl::StatusOr<std::vector<nn::MetricSpec>> MakeMetrics(const TrainOptions& options, const nn::Model& model,
                                                        const nn::Objective& objective) {
  if (options.metrics.empty()) return nn::MetricsOf(model.compile_config().metrics, objective, model);
  std::vector<nn::CompiledMetric> named;
  for (absl::string_view name : absl::StrSplit(options.metrics, ',')) {
    named.push_back({.metric = nn::MetricOfName(std::string(absl::StripAsciiWhitespace(name)))});
  }
  return nn::MetricsOf(named, objective, model);
}

absl::StatusOr<v1::OptimizerConfig> MakeOptimizer(const TrainOptions& options, const nn::Model& model) {
  const OptimizerFlags& flags = options.optimizer;
  v1::OptimizerConfig config;
  const auto& compiled = model.compile_config().optimizer;
  if (flags.name.empty() && !compiled.has_value()) {
    return absl::InvalidArgumentError("the model file names no optimizer: give --optimizer");
  }
  // An optimizer other than the file's starts with Keras' defaults; the same optimizer keeps the file's
  // hyperparameters.
  const bool from_file = compiled.has_value() &&
                         (flags.name.empty() ||
                          absl::AsciiStrToLower(flags.name) == absl::AsciiStrToLower(compiled->class_name));
  config.set_name(from_file ? compiled->class_name : flags.name);
  auto& hyperparameters = *config.mutable_hyperparameters();
  if (from_file) hyperparameters.insert(compiled->config.begin(), compiled->config.end());
  const auto& schedule = model.compile_config().learning_rate_schedule;
  if (from_file && schedule.has_value() && !flags.learning_rate.has_value()) {
    CAIRN_ASSIGN_OR_RETURN(*config.mutable_learning_rate_schedule(), MakeSchedule(*schedule));
    if (options.callbacks.plateau_factor.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--reduce_lr_on_plateau does not go with the model file's learning rate schedule ",
                       schedule->class_name, ": replace it by --learning_rate"));
    }
  }
  // Only one kind of clipping can be active.
  if (flags.clipvalue.has_value() || flags.clipnorm.has_value() || flags.global_clipnorm.has_value()) {
    for (const char* name : {"clipvalue", "clipnorm", "global_clipnorm"}) hyperparameters.erase(name);
  }
  const std::pair<std::string, const std::optional<double>&> overrides[] = {
      {LearningRateName(config), flags.learning_rate},
      {"momentum", flags.momentum},
      {"clipvalue", flags.clipvalue},
      {"clipnorm", flags.clipnorm},
      {"global_clipnorm", flags.global_clipnorm},
      {"weight_decay", flags.weight_decay}};
  for (const auto& [name, value] : overrides) {
    if (value.has_value()) hyperparameters[name] = *value;
  }
  return config;
}

namespace {

absl::Status CheckReplication(const v1::Job& job) {
  if (job.ps_replication() == 0) return absl::OkStatus();
  const std::string flag = absl::StrCat("--ps_replication=", job.ps_replication());
  if (job.servers_size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": a backup needs another server, and the cluster has ", job.servers_size()));
  }
  return absl::OkStatus();
}

// A synchronized layer needs a part of the batch from every worker in every step.
absl::Status CheckSynchronizedLayers(const TrainOptions& options, const nn::Model& model, int num_workers) {
  if (options.mode != "sync" && !options.all_reduce()) {
    return model.CheckBatchMayBeDivided(absl::StrCat("the workers of --mode ", options.mode));
  }
  if (options.replicas_to_aggregate > 0 && options.replicas_to_aggregate < num_workers) {
    return model.CheckBatchMayBeDivided("workers of which a round takes the first (--replicas_to_aggregate)");
  }
  if (!options.bucket_boundaries.empty()) {
    return model.CheckBatchMayBeDivided("workers with different lengths (--bucket_boundaries)");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::Job> MakeJob(const TrainOptions& options, const nn::Model& model,
                                const net::ClusterSpec& cluster, int64_t num_examples) {
  v1::Job job;
  const bool sync = options.mode == "sync" || options.all_reduce();
  const bool ssp = options.mode == "ssp";
  job.set_mode(sync ? v1::MODE_SYNC : ssp ? v1::MODE_SSP : v1::MODE_ASYNC);
  job.set_model_sha256(Sha256Hex(model.canonical_json()));
  const auto trainers = cluster.trainers();
  const std::string chief = cluster.chief().ToString();
  const bool lists_chief = !trainers.empty() && trainers.front() == cluster.chief();
  if (options.elastic && !lists_chief) job.add_workers(chief);
  for (const net::TaskId& task : trainers) job.add_workers(task.ToString());
  for (const net::HostPort& server : cluster.servers()) job.add_servers(server.ToString());
  const int num_workers = std::max(1, job.workers_size());
  const bool dynamic = options.dynamic_sharding();
  if (num_workers > 1 || options.elastic) {
    CAIRN_RETURN_IF_ERROR(CheckSynchronizedLayers(options, model, num_workers));
  }
  if (options.replicas_to_aggregate > num_workers) {
    return absl::InvalidArgumentError(absl::StrCat("--replicas_to_aggregate: ", options.replicas_to_aggregate,
                                                   " is more than ", Counted(num_workers, "worker")));
  }
  if (sync && !dynamic) {
    job.set_replicas_to_aggregate(
        static_cast<int>(options.replicas_to_aggregate > 0 ? options.replicas_to_aggregate : num_workers));
  }
  if (options.max_staleness >= 0) job.set_max_staleness(options.max_staleness);
  job.set_staleness_aware_learning_rate(options.staleness_aware_learning_rate);
  CAIRN_RETURN_IF_ERROR(MakeSamplerOptions(options, num_examples, num_workers, 0));
  // If workers join and leave, the number of updates per epoch is not known in advance.
  job.set_final_version(options.train_steps > 0 ? options.train_steps
                        : dynamic               ? 0
                                  : options.epochs * StepsPerEpoch(options, num_examples, num_workers));
  job.set_dynamic_sharding(dynamic);
  CAIRN_RETURN_IF_ERROR(SetWire(options.wire, VariablesOf(model), job));
  if (dynamic) job.set_num_examples(num_examples);
  job.set_elastic(options.elastic);
  if (options.elastic) {
    job.set_min_workers(static_cast<int>(options.min_workers));
    job.set_max_workers(static_cast<int>(options.max_workers));
  }
  CAIRN_ASSIGN_OR_RETURN(*job.mutable_optimizer(), MakeOptimizer(options, model));
  job.set_batch_size(options.batch_size);
  job.set_epochs(options.epochs);
  job.set_seed(options.seed);
  job.set_lease_seconds(options.lease_seconds);
  job.set_wait_for_return(options.lost_workers == "wait" || options.all_reduce());
  job.set_restorable(!options.train_dir.empty());
  job.set_ps_replication(options.ps_replication);
  CAIRN_RETURN_IF_ERROR(CheckReplication(job));
  return job;
}

std::vector<net::VariableInfo> VariablesOf(const nn::Model& model) {
  std::vector<net::VariableInfo> variables;
  for (const nn::ModelVariable& variable : model.variables()) {
    variables.push_back({variable.name, variable.shape, variable.offset, variable.moving_average_momentum,
                         variable.constraint});
  }
  return variables;
}

}  // namespace cairn::worker
