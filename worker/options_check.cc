// Checks which training flags can be combined.
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/device_flags.h"
#include "worker/options.h"

namespace cairn::worker {
namespace {

// For --mode allreduce: refuses flags that need servers.
absl::Status ValidateAllReduce(const TrainOptions& options) {
  const auto refuse = [](const char* flag, const char* why) {
    return absl::InvalidArgumentError(absl::StrCat(flag, " does not go with --mode allreduce: ", why));
  };
  if (options.replicas_to_aggregate > 0)
    return refuse("--replicas_to_aggregate", "every worker is in every round");
  if (options.max_staleness >= 0) return refuse("--max_staleness", "no gradient is late");
  if (options.staleness_aware_learning_rate) {
    return refuse("--staleness_aware_learning_rate", "no gradient is stale");
  }
  if (options.elastic) return refuse("--elastic", "the ring consists of the workers that the cluster lists");
  if (options.data_sharding == "dynamic")
    return refuse("--data_sharding dynamic", "there is no server to assign the data");
  if (options.ps_replication > 0) return refuse("--ps_replication", "there are no servers");
  if (options.wire.dtype != "float32") return refuse("--wire_dtype", "the ring sends its sums as float32");
  if (options.wire.values != "auto")
    return refuse("--wire_values", "every worker computes the values itself");
  if (options.wire.topk_fraction.has_value())
    return refuse("--topk_fraction", "the ring sends its sums as float32");
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const TrainOptions& options) {
  if (options.all_reduce()) CAIRN_RETURN_IF_ERROR(ValidateAllReduce(options));
  if (options.model.empty()) return absl::InvalidArgumentError("--model is missing");
  if (options.data_dir.empty()) return absl::InvalidArgumentError("--data_dir is missing");
  if (options.mode != "sync" && options.replicas_to_aggregate > 0) {
    return absl::InvalidArgumentError(
        "--replicas_to_aggregate needs --sync_replicas: there are no rounds otherwise");
  }
  if (options.mode == "sync" && options.max_staleness >= 0) {
    return absl::InvalidArgumentError(
        "--max_staleness does not go with --sync_replicas: no late gradient is applied");
  }
  if (options.mode != "sync" && !options.all_reduce() && options.lost_workers == "wait") {
    return absl::InvalidArgumentError("--lost_workers=wait needs --sync_replicas: only rounds wait");
  }
  if (options.resume.empty())
    return absl::InvalidArgumentError("--resume is empty: give auto, never or a directory");
  if (options.mode == "ssp" && options.max_staleness < 0) {
    return absl::InvalidArgumentError("--mode ssp needs --max_staleness: how far ahead a worker may go");
  }
  if (options.mode == "sync" && options.staleness_aware_learning_rate) {
    return absl::InvalidArgumentError(
        "--staleness_aware_learning_rate does not go with --sync_replicas: no gradient is stale");
  }
  if (options.elastic && options.data_sharding == "static") {
    return absl::InvalidArgumentError(
        "--elastic does not go with --data_sharding static: a worker that joins would have no share of the "
        "data");
  }
  if (options.elastic && options.max_workers > 0 && options.max_workers < options.min_workers) {
    return absl::InvalidArgumentError(absl::StrCat("--max_workers: ", options.max_workers,
                                                   ", fewer than --min_workers ", options.min_workers));
  }
  if (options.elastic && options.lost_workers == "wait") {
    return absl::InvalidArgumentError(
        "--lost_workers=wait does not go with --elastic: a lost worker has left the job");
  }
  if (options.dynamic_sharding() && options.replicas_to_aggregate > 0) {
    return absl::InvalidArgumentError(
        "--replicas_to_aggregate does not go with dynamic sharding: it leaves out the gradients of "
        "slow workers, and dynamic sharding uses every example");
  }
  if (options.dynamic_sharding() && options.shard_tail != "exact") {
    return absl::InvalidArgumentError(
        absl::StrCat("--shard_tail ", options.shard_tail,
                     " does not go with dynamic sharding: each example is used once"));
  }
  if (options.train_dir.empty() && (options.histogram_freq > 0 || options.update_freq > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.histogram_freq > 0 ? "--histogram_freq" : "--update_freq",
                     " needs --train_dir, where TensorBoard's files go"));
  }
  CAIRN_RETURN_IF_ERROR(ValidateDeviceFlags(options));
  CAIRN_RETURN_IF_ERROR(ValidateWireFlags(options.wire));
  if (!options.optimizer.empty() && options.optimizer == "adam" && options.momentum.has_value()) {
    return absl::InvalidArgumentError("--momentum does not go with --optimizer adam");
  }
  if (!options.save_best.empty() && !absl::EndsWith(options.save_best, ".safetensors")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--save_best: '", options.save_best, "' does not end in .safetensors, the only format"));
  }
  return absl::OkStatus();
}

}  // namespace cairn::worker
