// Who is in the cluster and who am I: TensorFlow's ClusterSpec and TF_CONFIG, read strictly.
//
// Values; immutable after parsing. Errors are INVALID_ARGUMENT and name the source (a file, a flag, TF_CONFIG), the job
// and the index.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn::net {

// "host:port", "10.0.0.1:2222", "[::1]:2222". The host is kept without brackets.
struct HostPort {
  std::string host;
  int port = 0;  // 1 to 65535

  static absl::StatusOr<HostPort> Parse(absl::string_view text);
  std::string ToString() const;  // with brackets around an IPv6 address
  friend bool operator==(const HostPort& a, const HostPort& b) { return a.host == b.host && a.port == b.port; }
};

// "worker/1"
struct TaskId {
  std::string job;
  int index = 0;
  std::string ToString() const;
  friend bool operator==(const TaskId& a, const TaskId& b) { return a.job == b.job && a.index == b.index; }
};

class ClusterSpec {
 public:
  // A ClusterSpec object: {"ps": ["a:1"], "worker": {"3": "b:2"}}. Job types other than ps, worker, chief (alias
  // master) and evaluator are ignored.
  static absl::StatusOr<ClusterSpec> FromJson(absl::string_view text, absl::string_view source);

  // Tasks of a job by index, perhaps with gaps; empty when the cluster lacks the job.
  const std::map<int, HostPort>& tasks(absl::string_view job) const;
  int num_tasks(absl::string_view job) const { return static_cast<int>(tasks(job).size()); }
  // Addresses of all ps, in index order. Servers are always dense: 0 .. num_tasks("ps")-1.
  std::vector<HostPort> servers() const;
  // The task that initialises variables: chief/0, or worker/0 where there is no chief.
  TaskId chief() const;
  // Everybody who computes gradients, the chief first: chief/0 (where there is one), worker/0, worker/1, ...
  std::vector<TaskId> trainers() const;
  // How many of the cluster's tasks share the host of `task`, itself included; what thread counts are made from.
  int tasks_on_host_of(const TaskId& task) const;

  // The canonical JSON of the spec, and a hash of it that connecting tasks compare; tasks of a sparse cluster see
  // different parts of it, so only the servers' addresses count.
  std::string ToJson() const;
  uint64_t Hash() const;

 private:
  std::map<std::string, std::map<int, HostPort>> jobs_;
};

// What the command line says about the cluster; unset members are empty.
struct ClusterFlags {
  std::string cluster_file;         // --cluster
  std::string job_name;             // --job_name
  std::optional<int> task_index;    // --task_index
  std::vector<std::string> ps_hosts, worker_hosts, chief_hosts, evaluator_hosts;
};

struct ResolvedCluster {
  ClusterSpec spec;
  TaskId self;
  std::string source;  // "flags", "cluster.json", "TF_CONFIG"
};

// Flags with hosts win over --cluster, that over `tf_config` (the environment variable's value, null when unset).
// --job_name and --task_index override the task that a TF_CONFIG names. `require_task`: false for a command that
// only wants to reach the cluster (`cairn var`), whose self stays empty.
absl::StatusOr<ResolvedCluster> ResolveCluster(const ClusterFlags& flags, const char* tf_config,
                                               bool require_task = true);

}  // namespace cairn::net
