// How a model is divided over the workers of a group: what --place and the model file say of tasks, and which
// workers of the cluster make a group. Values; made once, by cairn-worker's main thread and by `cairn train`.
//
//   --place 'conv*=/job:worker/task:0' --place 'dense*=/job:worker/task:1', and six workers:
//   groups 0 1 | 2 3 | 4 5; workers 0, 2 and 4 are their heads, and to everybody else the workers of the job
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/net/cluster_spec.h"
#include "worker/nn/model.h"
#include "worker/options.h"

namespace cairn::worker {

struct Division {
  int tasks = 1;  // of a group; 1: the model is not divided
  std::vector<int>
      place_of{};  // [node of the model] nodes of one task, and asked for one device, are of one place
  std::vector<int> task_of_place{};  // [place]

  bool divided() const { return tasks > 1; }
  int task_of(size_t node) const { return task_of_place[static_cast<size_t>(place_of[node])]; }
  // "conv2d:0 flatten:0 dense:1": the same on all tasks that mean the same division.
  std::string Describe(const nn::Model& model) const;
};

// Where names speak of tasks other than 0; `/job:worker/task:i` is the i-th of each group. A layer for which
// no task is asked is where its first input is, and one behind the model's input on task 0. INVALID_ARGUMENT:
// a task of another job; a task without a layer.
absl::StatusOr<Division> DivideModel(const nn::Model& model, const TrainOptions& options);

// Whether `workers` of them can be cut into groups, and the flags go with it: INVALID_ARGUMENT.
absl::Status CheckGroups(const Division& division, const TrainOptions& options, int workers);

// A worker's place in a divided model.
struct Seat {
  Division division;
  int group = 0;
  int task = 0;  // of the group; 0: its head
  int head = 0;  // the head's index
};
// None where the model is not divided. INVALID_ARGUMENT as the above, or for a cluster with a chief, or gaps
// in the workers' numbers.
absl::StatusOr<std::optional<Seat>> FindSeat(const nn::Model& model, const TrainOptions& options,
                                             const net::ResolvedCluster& cluster);

// The cluster as the job has it: of the workers the heads alone.
net::ClusterSpec HeadsOf(const net::ClusterSpec& cluster, int tasks);

}  // namespace cairn::worker
