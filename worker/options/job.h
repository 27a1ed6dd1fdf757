// Builds a job from flags, model file and cluster. The chief declares its job to the servers. Every other
// worker compares its own job with the declared one.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "common/net/cluster/cluster_spec.h"
#include "common/net/cluster/placement.h"
#include "data/sampler.h"
#include "nn/metrics.h"
#include "nn/model.h"
#include "nn/objective.h"
#include "worker/options/options.h"

namespace cairn::worker {

// How worker `worker` of `num_workers` samples `num_examples` examples. With dynamic sharding, the options
// are those of a single worker, since the servers assign work items. INVALID_ARGUMENT as for
// data::Validate().
absl::StatusOr<data::SamplerOptions> MakeSamplerOptions(const TrainOptions& options, int64_t num_examples,
                                                        int num_workers, int worker);

// The number of versions per epoch with static sharding. In a synchronous job each round makes a version, in
// other jobs each push. MakeSamplerOptions() must accept the arguments.
int64_t StepsPerEpoch(const TrainOptions& options, int64_t num_examples, int num_workers);
// The number of batches per epoch and worker.
int64_t BatchesPerEpoch(const TrainOptions& options, int64_t num_examples, int num_workers);

// The objective: flags override the model file's compile_config. INVALID_ARGUMENT if neither of them names a loss.
absl::StatusOr<nn::Objective> MakeObjective(const TrainOptions& options, const nn::Model& model);
// The metrics that are reported in addition to the losses; may be empty.
absl::StatusOr<std::vector<nn::MetricSpec>> MakeMetrics(const TrainOptions& options, const nn::Model& model,
                                                        const nn::Objective& objective);

// The optimizer and its learning-rate schedule (unless --learning_rate replaces it), in the form that the
// servers read. Only the servers know which optimizers exist. INVALID_ARGUMENT if neither the flags nor the
// model file name an optimizer.
absl::StatusOr<v1::OptimizerConfig> MakeOptimizer(const TrainOptions& options, const nn::Model& model);

// The job without its run_id. INVALID_ARGUMENT for flags that do not fit the cluster or the model.
absl::StatusOr<v1::Job> MakeJob(const TrainOptions& options, const nn::Model& model,
                                const net::ClusterSpec& cluster, int64_t num_examples);

// The model's variables, for the client library.
std::vector<net::VariableInfo> VariablesOf(const nn::Model& model);

}  // namespace cairn::worker
