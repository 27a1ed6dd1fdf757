// Checks which training flags can be combined.
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/flags/flag_table.h"
#include "worker/options/options.h"

namespace cairn::worker {
namespace {

// Checks the rules between two flags, except those of device_flags.h and wire_flags.h.
absl::Status CheckPairs(const TrainOptions& options) {
  const FlagUse all_reduce{"--mode allreduce", options.all_reduce()};
  const FlagUse sync{"--sync_replicas", options.mode == "sync"};
  const FlagUse rounds{"--sync_replicas", options.mode == "sync" || options.all_reduce()};
  const FlagUse ssp{"--mode ssp", options.mode == "ssp"};
  const FlagUse replicas{"--replicas_to_aggregate", options.replicas_to_aggregate > 0};
  const FlagUse staleness{"--max_staleness", options.max_staleness >= 0};
  const FlagUse staleness_aware{"--staleness_aware_learning_rate", options.staleness_aware_learning_rate};
  const FlagUse lost_wait{"--lost_workers=wait", options.lost_workers == "wait"};
  const FlagUse replication{"--ps_replication", options.ps_replication > 0};
  const FlagUse elastic{"--elastic", options.elastic};
  const FlagUse data_static{"--data_sharding static", options.data_sharding == "static"};
  const FlagUse data_dynamic{"--data_sharding dynamic", options.data_sharding == "dynamic"};
  const FlagUse dynamic{"dynamic sharding", options.dynamic_sharding()};
  const FlagUse tail{absl::StrCat("--shard_tail ", options.shard_tail), options.shard_tail != "exact"};
  const FlagUse wire_dtype{"--wire_dtype", options.wire.dtype != "float32"};
  const FlagUse wire_values{"--wire_values", options.wire.values != "auto"};
  const FlagUse topk{"--topk_fraction", options.wire.topk_fraction.has_value()};
  const FlagUse histograms{"--histogram_freq", options.histogram_freq > 0};
  const FlagUse updates{"--update_freq", options.update_freq > 0};
  const FlagUse train_dir{"--train_dir, where TensorBoard's files go", !options.train_dir.empty()};
  return CheckRules({
      {replicas, kExcludes, all_reduce, "every worker is in every round"},
      {staleness, kExcludes, all_reduce, "no gradient is late"},
      {staleness_aware, kExcludes, all_reduce, "no gradient is stale"},
      {elastic, kExcludes, all_reduce, "the ring consists of the workers that the cluster lists"},
      {data_dynamic, kExcludes, all_reduce, "there is no server to assign the data"},
      {replication, kExcludes, all_reduce, "there are no servers"},
      {wire_dtype, kExcludes, all_reduce, "the ring sends its sums as float32"},
      {wire_values, kExcludes, all_reduce, "every worker computes the values itself"},
      {topk, kExcludes, all_reduce, "the ring sends its sums as float32"},
      {replicas, kNeeds, rounds, "there are no rounds otherwise"},
      {staleness, kExcludes, sync, "no late gradient is applied"},
      {lost_wait, kNeeds, rounds, "only rounds wait"},
      {ssp, kNeeds, staleness, "how far ahead a worker may go"},
      {staleness_aware, kExcludes, sync, "no gradient is stale"},
      {elastic, kExcludes, data_static, "a worker that joins would have no share of the data"},
      {lost_wait, kExcludes, elastic, "a lost worker has left the job"},
      {replicas, kExcludes, dynamic,
       "it leaves out the gradients of slow workers, and dynamic sharding uses every example"},
      {tail, kExcludes, dynamic, "each example is used once"},
      {histograms, kNeeds, train_dir},
      {updates, kNeeds, train_dir},
  });
}

// Checks the rules between --embedding_tables and other flags.
absl::Status CheckTables(const TrainOptions& options, const FlagUse& tables) {
  const FlagUse all_reduce{"--mode allreduce", options.all_reduce()};
  const FlagUse staleness{"--embedding_staleness", options.embedding.staleness > 0};
  const FlagUse two_ahead{"--embedding_staleness above 1", options.embedding.staleness > 1};
  const FlagUse dynamic{"dynamic sharding", options.dynamic_sharding()};
  const FlagUse sync{"--sync_replicas", options.mode == "sync"};
  return CheckRules({
      {tables, kExcludes, all_reduce, "there are no servers to store tables"},
      {staleness, kNeeds, sync, "updates are rounds there"},
      {two_ahead, kExcludes, dynamic, "it assigns one batch ahead"},
  });
}

}  // namespace

absl::Status CheckFlagsWithTables(const TrainOptions& options) {
  return CheckTables(options, {"it", true});
}

absl::Status Validate(const TrainOptions& options) {
  if (options.model.empty()) return absl::InvalidArgumentError("--model is missing");
  if (options.data.path.empty()) return absl::InvalidArgumentError("--data_dir is missing");
  return CheckCombinations(options);
}

absl::Status CheckCombinations(const TrainOptions& options) {
  if (options.resume.empty())
    return absl::InvalidArgumentError("--resume is empty: give auto, never or a directory");
  if (options.elastic && options.max_workers > 0 && options.max_workers < options.min_workers) {
    return absl::InvalidArgumentError(absl::StrCat("--max_workers: ", options.max_workers,
                                                   ", fewer than --min_workers ", options.min_workers));
  }
  CAIRN_RETURN_IF_ERROR(CheckPairs(options));
  const EmbeddingFlags& embedding = options.embedding;
  const bool named = !embedding.tables.empty();
  CAIRN_RETURN_IF_ERROR(
      CheckTables(options, {!named && !embedding.dynamic_tables.empty()    ? "--dynamic_tables"
                            : !named && embedding.tables_above.has_value() ? "--embedding_tables_above"
                                                                           : "--embedding_tables",
                            embedding.make_tables()}));
  CAIRN_RETURN_IF_ERROR(ValidateDeviceFlags(options.devices));
  CAIRN_RETURN_IF_ERROR(ValidateWireFlags(options.wire));
  if (options.optimizer.name == "adam" && options.optimizer.momentum.has_value()) {
    return absl::InvalidArgumentError("--momentum does not go with --optimizer adam");
  }
  if (!options.callbacks.save_best.empty() && !absl::EndsWith(options.callbacks.save_best, ".safetensors")) {
    return absl::InvalidArgumentError(absl::StrCat("--save_best: '", options.callbacks.save_best,
                                                   "' does not end in .safetensors, the only format"));
  }
  return absl::OkStatus();
}

}  // namespace cairn::worker
