// How a model is divided over the workers of a group: the tasks to which --place and the model file assign
// layers, and the workers that form each group. Values; computed once, by cairn-worker's main thread and by
// `cairn train`.
//
//   --place 'conv*=/job:worker/task:0' --place 'dense*=/job:worker/task:1', with six workers:
//   the groups are 0 1 | 2 3 | 4 5, and workers 0, 2 and 4 are their stage leaders. The rest of the cluster
//   sees only the stage leaders as workers of the job.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/net/cluster/cluster_spec.h"
#include "nn/model.h"
#include "worker/options/options.h"

namespace cairn::worker {

struct ModelPartition {
  int tasks = 1;  // workers per group; 1: the model is not divided
  // [node of the model] The location of each node. Nodes that are on one task and request the same device have
  // the same location.
  std::vector<int> location_of{};
  std::vector<int> task_of_location{};  // [location]

  bool divided() const { return tasks > 1; }
  int task_of(size_t node) const { return task_of_location[static_cast<size_t>(location_of[node])]; }
  // "conv2d:0 flatten:0 dense:1". Tasks compare it to find out whether they divide the model in the same way.
  std::string Describe(const nn::Model& model) const;
};

// Divides the model if a device name has a task other than 0; `/job:worker/task:i` is the i-th worker of each
// group. A layer without a task is placed with its first input, or on task 0 if its first input is the
// model's input. INVALID_ARGUMENT if a name has a task of another job, or if a task has no layer.
absl::StatusOr<ModelPartition> PartitionModel(const nn::Model& model, const TrainOptions& options);

// INVALID_ARGUMENT if `workers` workers cannot be split into groups, or if other flags exclude a divided
// model.
absl::Status CheckGroups(const ModelPartition& partition, const TrainOptions& options, int workers);

// A worker's position in a divided model.
struct Assignment {
  ModelPartition partition;
  int group = 0;
  int task = 0;    // within the group; 0: the stage leader
  int leader = 0;  // the stage leader's worker index
};
// Nullopt if the model is not divided. INVALID_ARGUMENT as for the functions above, and for a cluster with a
// chief or with gaps in the workers' indices.
absl::StatusOr<std::optional<Assignment>> FindAssignment(const nn::Model& model, const TrainOptions& options,
                                                         const net::ResolvedCluster& cluster);

// The cluster as the job sees it, in which only the stage leaders are workers.
net::ClusterSpec LeadersOf(const net::ClusterSpec& cluster, int tasks);

}  // namespace cairn::worker
