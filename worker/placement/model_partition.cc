#include "worker/placement/model_partition.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/flags/words.h"
#include "worker/devices/device_name.h"
#include "worker/placement/layer_placement.h"

namespace cairn::worker {
namespace {

absl::Status NotTogether(const char* flag, const char* why) {
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " does not go with a model that --place divides over workers: ", why));
}

}  // namespace

std::string ModelPartition::Describe(const nn::Model& model) const {
  std::string text;
  for (size_t i = 0; i < model.nodes().size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : " ", model.nodes()[i].layer->name(), ":", task_of(i));
    // Marks the start of a new stage on the same task: the new stage has another device.
    if (i > 0 && location_of[i] != location_of[i - 1] && task_of(i) == task_of(i - 1)) text += "|";
  }
  return text;
}

absl::StatusOr<ModelPartition> PartitionModel(const nn::Model& model, const TrainOptions& options) {
  ModelPartition partition;
  if (options.devices.data_parallel()) return partition;
  std::vector<std::string> remarks;  // ignored here: PlaceLayers() reports them
  CAIRN_ASSIGN_OR_RETURN(const std::vector<AskedDevice> asked,
                         AskedDevices(model, options.devices.place, remarks));
  std::vector<DeviceName> names;
  for (const AskedDevice& one : asked) {
    auto name = ParseDeviceName(one.text);
    if (!name.ok()) return Annotate(name.status(), one.source);
    if (name->replica.value_or(0) != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          one.source, ": a cluster has one replica of each task, replica:0, not replica:", *name->replica));
    }
    partition.tasks = std::max(partition.tasks, name->task.value_or(0) + 1);
    names.push_back(*std::move(name));
  }
  if (!partition.divided()) return partition;
  std::map<std::pair<int, std::string>, int> locations;  // by task and device
  std::vector<int> layers(static_cast<size_t>(partition.tasks));
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].job.value_or("worker") != "worker") {
      return absl::InvalidArgumentError(absl::StrCat(
          asked[i].source, ": a layer must be on a task of /job:worker, not of /job:", *names[i].job));
    }
    const nn::Node& node = model.nodes()[i];
    int task = names[i].task.value_or(-1);
    for (size_t before = 0; before < i && task < 0; ++before) {
      if (model.nodes()[before].layer == node.layer) task = partition.task_of(before);
    }
    if (task < 0)
      task = node.inputs.empty() || node.inputs[0] < 0
                 ? 0
                 : partition.task_of(static_cast<size_t>(node.inputs[0]));
    const DeviceName device = {.type = names[i].type, .index = names[i].index};
    const auto [location, fresh] =
        locations.try_emplace({task, device.ToString()}, static_cast<int>(locations.size()));
    if (fresh) partition.task_of_location.push_back(task);
    partition.location_of.push_back(location->second);
    ++layers[static_cast<size_t>(task)];
  }
  for (size_t task = 0; task < layers.size(); ++task) {
    if (layers[task] > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("--place: no layer is on /job:worker/task:", task,
                                                   ", and some are on /job:worker/task:", partition.tasks - 1,
                                                   ": tasks are numbered from 0 without gaps"));
  }
  return partition;
}

absl::Status CheckGroups(const ModelPartition& partition, const TrainOptions& options, int workers) {
  if (!partition.divided()) return absl::OkStatus();
  if (workers % partition.tasks != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--place divides the model over ", partition.tasks,
                                                   " workers, and ", Counted(workers, "worker"),
                                                   workers == 1 ? " is" : " are", " not a multiple of that"));
  }
  if (options.all_reduce())
    return NotTogether("--mode allreduce", "the stage leader of a group needs parameter servers");
  if (options.elastic)
    return NotTogether("--elastic", "groups consist of the workers that the cluster lists");
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Assignment>> FindAssignment(const nn::Model& model, const TrainOptions& options,
                                                         const net::ResolvedCluster& cluster) {
  CAIRN_ASSIGN_OR_RETURN(ModelPartition partition, PartitionModel(model, options));
  if (!partition.divided()) return std::nullopt;
  const std::map<int, net::HostPort>& workers = cluster.spec.tasks("worker");
  CAIRN_RETURN_IF_ERROR(CheckGroups(partition, options, static_cast<int>(workers.size())));
  if (cluster.spec.num_tasks("chief") > 0) {
    return NotTogether(cluster.source.c_str(),
                       "its \"chief\" would belong to no group; worker 0 must be the chief");
  }
  if (workers.empty() || workers.rbegin()->first != static_cast<int>(workers.size()) - 1) {
    return NotTogether(cluster.source.c_str(), "its workers are not numbered from 0 without gaps");
  }
  const int task = cluster.self.index % partition.tasks, group = cluster.self.index / partition.tasks;
  return Assignment{
      .partition = std::move(partition), .group = group, .task = task, .leader = cluster.self.index - task};
}

net::ClusterSpec LeadersOf(const net::ClusterSpec& cluster, int tasks) {
  net::ClusterSpec leaders;
  for (const char* job : {"ps", "worker", "evaluator"}) {
    for (const auto& [index, address] : cluster.tasks(job)) {
      const bool listed = std::string(job) != "worker" || index % tasks == 0;
      if (listed) CAIRN_CHECK(leaders.Add({job, index}, address).ok());
    }
  }
  return leaders;
}

}  // namespace cairn::worker
