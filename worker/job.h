// From flags, model file and cluster to the job that the chief describes to the servers. Every worker makes
// the same one and compares.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "common/net/cluster_spec.h"
#include "common/net/placement.h"
#include "worker/data/sampler.h"
#include "worker/nn/loss.h"
#include "worker/nn/metrics.h"
#include "worker/nn/model.h"
#include "worker/options.h"

namespace cairn::worker {

// How worker `worker` of `num_workers` samples `num_examples` examples; with dynamic sharding as if it were
// the only one: it is told what of it to take. INVALID_ARGUMENT as data::Validate().
absl::StatusOr<data::SamplerOptions> MakeSamplerOptions(const TrainOptions& options, int64_t num_examples,
                                                        int num_workers, int worker);

// How many versions one epoch takes, with static sharding: rounds of a synchronous job, pushes of others.
// MakeSamplerOptions() must accept the arguments.
int64_t StepsPerEpoch(const TrainOptions& options, int64_t num_examples, int num_workers);
// How many batches one epoch has for each worker.
int64_t BatchesPerEpoch(const TrainOptions& options, int64_t num_examples, int num_workers);

// Flags override what the model file's compile_config says. INVALID_ARGUMENT naming what neither gives.
absl::StatusOr<nn::LossSpec> MakeLoss(const TrainOptions& options, const nn::Model& model);
// The same for what is watched beside the `loss`; neither needs to say anything.
absl::StatusOr<std::vector<nn::MetricSpec>> MakeMetrics(const TrainOptions& options, const nn::Model& model,
                                                        const nn::LossSpec& loss);

// The optimizer, and its learning-rate schedule unless --learning_rate replaces it, as the servers read them;
// they know which ones there are. INVALID_ARGUMENT when neither names an optimizer.
absl::StatusOr<v1::OptimizerConfig> MakeOptimizer(const TrainOptions& options, const nn::Model& model);

// The job but for its run_id. INVALID_ARGUMENT for flags that do not fit the cluster or the model.
absl::StatusOr<v1::Job> MakeJob(const TrainOptions& options, const nn::Model& model,
                                const net::ClusterSpec& cluster, int64_t num_examples);

// The model's variables as the client library wants them.
std::vector<net::VariableInfo> VariablesOf(const nn::Model& model);

}  // namespace cairn::worker
