// Who is in the cluster and who am I: TensorFlow's ClusterSpec and TF_CONFIG, read strictly.
//
// Values; immutable after parsing. Errors are INVALID_ARGUMENT and name the source (a file, a flag,
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
#include "common/net/host_port.h"

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
  // A ClusterSpec object: {"ps": ["a:1"], "worker": {"3": "b:2"}}. Job types other than ps, worker, chief
  // (alias master) and evaluator are ignored. Refuses what has no ps, or ps with gaps in their numbers.
  static absl::StatusOr<ClusterSpec> FromJson(absl::string_view text, absl::string_view source);
  // The same of a parsed object, as `self` sees it (nobody in particular when unset). In a sparse cluster a
  // ps may see itself alone, and in Kubeflow's form as the only element of the list, whatever its index; an
  // evaluator need not see any ps. `needs_servers`: false where workers do without.
  static absl::StatusOr<ClusterSpec> FromJobs(const nlohmann::json& jobs, absl::string_view source,
                                              const std::optional<TaskId>& self, bool needs_servers = true);
  // Adds one task. Refuses, without changing anything: an unknown job, a task that is there, an address that
  // another task has, a second chief.
  absl::Status Add(const TaskId& task, const HostPort& address);

  // Tasks of a job by index, perhaps with gaps; empty when the cluster lacks the job.
  const std::map<int, HostPort>& tasks(absl::string_view job) const;
  int num_tasks(absl::string_view job) const { return static_cast<int>(tasks(job).size()); }
  // Addresses of all ps, in index order. Where knows_all_servers(), they are dense: 0 .. num_tasks("ps")-1.
  std::vector<HostPort> servers() const;
  // False for a ps that sees only itself, and for an evaluator that sees no servers.
  bool knows_all_servers() const { return !sees_only_itself_ && num_tasks("ps") > 0; }
  // The task that initialises variables: chief/0, or worker/0 where there is no chief.
  TaskId chief() const;
  // Everybody who computes gradients, the chief first: chief/0 (where there is one), worker/0, worker/1, ...
  std::vector<TaskId> trainers() const;
  // How many of the cluster's tasks share the host of `task`, itself included: thread counts depend on it. 1
  // for an evaluator that the cluster does not list.
  int tasks_on_host_of(const TaskId& task) const;
  // The place of `task` among the trainers of its host, in the order of trainers(): they take its GPUs in
  // turn. 0 for who is none of them.
  int place_on_host_of(const TaskId& task) const;

  // The canonical JSON of the spec, and a hash of it that connecting tasks compare; tasks of a sparse cluster
  // see different parts of it, so only the servers' addresses count. The hash is the same in every process
  // and on every machine; it is 0, which agrees with any, for a task that does not know all servers.
  std::string ToJson() const;
  uint64_t Hash() const;
  // The same of the trainers' addresses, in their order: of workers that do without servers.
  uint64_t TrainersHash() const;

 private:
  std::map<std::string, std::map<int, HostPort>> jobs_;  // only jobs that have tasks
  bool sees_only_itself_ = false;                        // a ps that knows no other
};

// What the command line says about the cluster; unset members are empty.
struct ClusterFlags {
  std::string cluster_file{};       // --cluster
  std::string job_name{};           // --job_name
  std::optional<int> task_index{};  // --task_index
  std::vector<std::string> ps_hosts{}, worker_hosts{}, chief_hosts{}, evaluator_hosts{};
  bool unlisted_workers = false;  // a worker need not be listed: it may join a job that runs
  bool needs_servers = true;      // a cluster without ps is none
};

struct ResolvedCluster {
  ClusterSpec spec;
  TaskId self;
  std::string source;  // "flags", "cluster.json", "TF_CONFIG"
};

// Flags with hosts win over --cluster, that over `tf_config` (the environment variable's value, null when
// unset). --job_name and --task_index override the task that a TF_CONFIG names, in a file or in the
// environment. An evaluator needs no cluster. `require_task`: false for a command that only wants to reach
// the cluster (`cairn var`), whose self stays empty.
absl::StatusOr<ResolvedCluster> ResolveCluster(const ClusterFlags& flags, const char* tf_config,
                                               bool require_task = true);

}  // namespace cairn::net
