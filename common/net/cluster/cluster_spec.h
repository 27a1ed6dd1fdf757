// The members of the cluster and the identity of this task: TensorFlow's ClusterSpec and TF_CONFIG, parsed
// strictly.
//
// Value types; immutable after parsing. Errors are INVALID_ARGUMENT and name the source (a file, a flag,
// TF_CONFIG), the job and the index; a cluster file that cannot be read gives the system's code.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/net/cluster/host_port.h"

namespace cairn::net {

// "worker/1"
struct TaskId {
  std::string job;
  int index = 0;
  std::string ToString() const;
  friend bool operator==(const TaskId& a, const TaskId& b) { return a.job == b.job && a.index == b.index; }
};

class ClusterSpec {
 public:
  // Parses a ClusterSpec object: {"ps": ["a:1"], "worker": {"3": "b:2"}}. Job types other than ps, worker,
  // chief (alias master) and evaluator are ignored. Refuses a cluster without ps, or with gaps in their
  // indices.
  static absl::StatusOr<ClusterSpec> FromJson(absl::string_view text, absl::string_view source);
  // Like FromJson() for a parsed object, as task `self` sees the cluster (unset: no particular task). In a
  // sparse cluster a ps may see only itself (in Kubeflow's form, as the only element of the list, whatever
  // its index), and an evaluator need not see any ps. `needs_servers`: false if the workers use no servers.
  static absl::StatusOr<ClusterSpec> FromJobs(const nlohmann::json& jobs, absl::string_view source,
                                              const std::optional<TaskId>& self, bool needs_servers = true);
  // Adds one task. An error, without effect, for an unknown job, a task or address that exists already, or a
  // second chief.
  absl::Status Add(const TaskId& task, const HostPort& address);

  // The tasks of a job by index, possibly with gaps; empty if the cluster lacks the job.
  const std::map<int, HostPort>& tasks(absl::string_view job) const;
  int num_tasks(absl::string_view job) const { return static_cast<int>(tasks(job).size()); }
  // The addresses of all ps, in index order. If knows_all_servers(), the indices are dense: 0 ..
  // num_tasks("ps")-1.
  std::vector<HostPort> servers() const;
  // False for a ps that sees only itself, and for an evaluator that sees no servers.
  bool knows_all_servers() const { return !sees_only_itself_ && num_tasks("ps") > 0; }
  // The task that initialises variables: chief/0, or worker/0 if there is no chief.
  TaskId chief() const;
  // All tasks that compute gradients, the chief first: chief/0 (if there is one), worker/0, worker/1, ...
  std::vector<TaskId> trainers() const;
  // The number of tasks of the cluster on the host of `task`, including itself; the default thread counts
  // depend on it. 1 for an evaluator that the cluster does not list.
  int tasks_on_host_of(const TaskId& task) const;
  // The position of `task` among the trainers on its host, in the order of trainers(). The position
  // determines the GPU of the task. 0 for a task that is not a trainer.
  int local_rank_of(const TaskId& task) const;

  // The canonical JSON of the spec, and a hash that connecting tasks compare. Tasks of a sparse cluster see
  // different parts of the spec, so the hash covers only the addresses of the servers. The hash is the same
  // in every process and on every machine. A task that does not know all servers has the hash 0, which
  // matches any hash.
  std::string ToJson() const;
  uint64_t Hash() const;
  // A hash of the addresses of the trainers, in their order, for workers that use no servers.
  uint64_t TrainersHash() const;

 private:
  std::map<std::string, std::map<int, HostPort>> jobs_;  // only jobs that have tasks
  bool sees_only_itself_ = false;                        // a ps that knows only itself
};

// The flags that describe the cluster; members for unset flags are empty.
struct ClusterFlags {
  std::string cluster_file{};       // --cluster
  std::string job_name{};           // --job_name
  std::optional<int> task_index{};  // --task_index
  std::vector<std::string> ps_hosts{}, worker_hosts{}, chief_hosts{}, evaluator_hosts{};
  bool unlisted_workers = false;  // a worker that is not listed may join the running job
  bool needs_servers = true;      // a cluster without ps is refused
};

struct ResolvedCluster {
  ClusterSpec spec;
  TaskId self;
  std::string source;  // "flags", "cluster.json", "TF_CONFIG"
};

// Determines the cluster. Flags with hosts take precedence over --cluster, which takes precedence over
// `tf_config` (the value of the environment variable; null if unset). --job_name and --task_index override
// the task that a TF_CONFIG names, in a file or in the environment. An evaluator needs no cluster.
// `require_task`: false for a command that only connects to the cluster (`cairn var`); its `self` stays
// empty.
absl::StatusOr<ResolvedCluster> ResolveCluster(const ClusterFlags& flags, const char* tf_config,
                                               bool require_task = true);

}  // namespace cairn::net
