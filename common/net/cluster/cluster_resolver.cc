// ResolveCluster() of cluster_spec.h: determines the cluster of a task, and which of its tasks this one is.
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/files.h"
#include "common/core/json.h"
#include "common/core/one_line.h"
#include "common/core/status.h"
#include "common/net/cluster/cluster_spec.h"
#include "common/net/cluster/ignored_jobs.h"

namespace cairn::net {
namespace {

using nlohmann::json;

// The part of the task that one source specifies; either member may be missing.
struct PartialTask {
  std::string job;  // empty if not given
  std::optional<int> index;
};

absl::StatusOr<std::string> CanonicalJob(absl::string_view name) {
  const std::string job = name == "master" ? "chief" : std::string(name);
  if (job == "ps" || job == "worker" || job == "chief" || job == "evaluator") return job;
  return absl::InvalidArgumentError(
      absl::StrCat(Quoted(name), " is not a job; it must be ps, worker, chief (or master) or evaluator"));
}

// The index of the task in a TF_CONFIG: a number, or a string with a number.
absl::StatusOr<int> TaskIndexOf(const json& value) {
  const std::string quoted = value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  int index = 0;
  if (!absl::SimpleAtoi(value.is_string() ? value.get_ref<const std::string&>() : quoted, &index)) {
    return absl::InvalidArgumentError(absl::StrCat(quoted, " is not an index"));
  }
  if (index < 0) return absl::InvalidArgumentError(absl::StrCat(index, " is negative"));
  return index;
}

absl::StatusOr<PartialTask> TaskOfDocument(const json& document, absl::string_view source) {
  PartialTask task;
  const auto found = document.find("task");
  if (found == document.end() || found->is_null()) return task;
  if (!found->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": \"task\" must be an object like {\"type\": \"worker\", \"index\": 0}, found ",
                     found->type_name()));
  }
  if (const auto type = found->find("type"); type != found->end() && !type->is_null()) {
    if (!type->is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat(source, ": task.type must be a string, found ", type->type_name()));
    }
    auto job = CanonicalJob(type->get_ref<const std::string&>());
    if (!job.ok()) return Annotate(job.status(), absl::StrCat(source, ": task.type"));
    task.job = *std::move(job);
  }
  if (const auto value = found->find("index"); value != found->end() && !value->is_null()) {
    const auto index = TaskIndexOf(*value);
    if (!index.ok()) return Annotate(index.status(), absl::StrCat(source, ": task.index"));
    task.index = *index;
  }
  return task;
}

absl::StatusOr<PartialTask> TaskOfFlags(const ClusterFlags& flags) {
  PartialTask task;
  if (!flags.job_name.empty()) {
    auto job = CanonicalJob(flags.job_name);
    if (!job.ok()) return Annotate(job.status(), "--job_name");
    task.job = *std::move(job);
  }
  if (flags.task_index && *flags.task_index < 0) {
    return absl::InvalidArgumentError(absl::StrCat("--task_index: ", *flags.task_index, " is negative"));
  }
  task.index = flags.task_index;
  return task;
}

// Flags take precedence over the document. An index belongs to its job: if --job_name names another one, the
// index is not inherited.
PartialTask Override(const PartialTask& document, const PartialTask& flags) {
  if (flags.job.empty() || flags.job == document.job) {
    return {document.job, flags.index ? flags.index : document.index};
  }
  return flags;
}

absl::Status CheckComplete(const PartialTask& task, absl::string_view source) {
  if (task.job.empty() && task.index) {
    return absl::InvalidArgumentError(absl::StrCat(
        source, ": task index ", *task.index, " of which job? Add --job_name=ps|worker|chief|evaluator"));
  }
  if (task.job.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": does not say which task this is; add --job_name and --task_index"));
  }
  if (!task.index) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": does not say which ", task.job, " this is; add --task_index"));
  }
  return absl::OkStatus();
}

absl::Status CheckMembership(const ClusterSpec& spec, const TaskId& self, absl::string_view source,
                             bool unlisted_workers) {
  const auto& tasks = spec.tasks(self.job);
  if (tasks.contains(self.index)) return absl::OkStatus();
  if (unlisted_workers && self.job == "worker") return absl::OkStatus();
  if (tasks.empty() && self.job == "evaluator") return absl::OkStatus();
  if (tasks.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": this task is ", self.ToString(), ", but the cluster has no ", self.job));
  }
  const int first = tasks.begin()->first, last = tasks.rbegin()->first;
  std::string range = absl::StrCat(first);
  const bool no_gaps = static_cast<size_t>(last - first) == tasks.size() - 1;
  if (no_gaps && last > first) absl::StrAppend(&range, " to ", last);
  if (!no_gaps) {
    range = absl::StrJoin(tasks, ", ",
                          [](std::string* out, const auto& task) { absl::StrAppend(out, task.first); });
  }
  return absl::InvalidArgumentError(absl::StrCat(source, ": this task is ", self.ToString(),
                                                 ", but the cluster has ", self.job, " ", range, " only"));
}

// The cluster in a parsed file or variable: the object itself, or the "cluster" or "sparseCluster" (Kubeflow
// up to 1.6) of a TF_CONFIG. Null if a TF_CONFIG has neither.
absl::StatusOr<const json*> ClusterOfDocument(const json& document, absl::string_view source) {
  const auto member = [&](const char* key) -> const json* {
    const auto found = document.find(key);
    return found == document.end() || found->is_null() ? nullptr : &*found;
  };
  const json* cluster = member("cluster");
  const json* sparse = member("sparseCluster");
  if (cluster != nullptr && sparse != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": has both \"cluster\" and \"sparseCluster\""));
  }
  return cluster != nullptr ? cluster : sparse;
}

// Whether Kubeflow wrote this TF_CONFIG. If so, the only address in a "ps" list may be the address of this
// task, whatever its index. Kubeflow writes "sparseCluster", or "cluster" with a "worker", which may be null.
bool IsOfKubeflow(const json& document) {
  const auto cluster = document.find("cluster");
  return document.contains("sparseCluster") ||
         (cluster != document.end() && cluster->is_object() && cluster->contains("worker"));
}

absl::StatusOr<ResolvedCluster> FromDocument(const std::string& text, const std::string& source,
                                             const PartialTask& flagged, const ClusterFlags& flags,
                                             bool require_task) {
  CAIRN_ASSIGN_OR_RETURN(const json document, ParseJson(text, source));
  const bool is_tf_config =
      document.is_object() && (document.contains("cluster") || document.contains("task") ||
                               document.contains("sparseCluster") || document.empty());
  const json* jobs = &document;
  PartialTask task = flagged, named;
  if (is_tf_config) {
    CAIRN_ASSIGN_OR_RETURN(jobs, ClusterOfDocument(document, source));
    CAIRN_ASSIGN_OR_RETURN(named, TaskOfDocument(document, source));
    task = Override(named, flagged);
  }
  std::optional<TaskId> self;
  if (!task.job.empty() && task.index) self = TaskId{task.job, *task.index};
  if (jobs == nullptr && !(self && self->job == "evaluator")) {
    return absl::InvalidArgumentError(
        absl::StrCat(source,
                     ": has no \"cluster\", as in {\"cluster\": {\"ps\": [\"localhost:2222\"], \"worker\": "
                     "[\"localhost:2223\"]}, \"task\": {\"type\": \"worker\", \"index\": 0}}"));
  }
  ResolvedCluster resolved;
  resolved.source = source;
  const json no_jobs = json::object();
  if (jobs == nullptr) jobs = &no_jobs;
  const bool names_self = self && self->job == named.job && self->index == named.index;
  const bool dense_servers = jobs->contains("ps") && (*jobs)["ps"].is_array();
  const bool is_server = self && self->job == "ps";
  const bool may_list_itself = !is_server || !dense_servers || (names_self && IsOfKubeflow(document));
  CAIRN_ASSIGN_OR_RETURN(
      resolved.spec,
      ClusterSpec::FromJobs(*jobs, source, may_list_itself ? self : std::nullopt, flags.needs_servers));
  if (!require_task) return resolved;
  CAIRN_RETURN_IF_ERROR(CheckComplete(task, source));
  CAIRN_RETURN_IF_ERROR(CheckMembership(resolved.spec, *self, source, flags.unlisted_workers));
  resolved.self = *self;
  return resolved;
}

absl::StatusOr<ResolvedCluster> FromFlags(const ClusterFlags& flags, const PartialTask& task,
                                          bool require_task) {
  ResolvedCluster resolved;
  resolved.source = "flags";
  const std::pair<const char*, const std::vector<std::string>*> lists[] = {
      {"ps", &flags.ps_hosts},
      {"chief", &flags.chief_hosts},
      {"worker", &flags.worker_hosts},
      {"evaluator", &flags.evaluator_hosts}};
  for (const auto& [job, hosts] : lists) {
    for (size_t i = 0; i < hosts->size(); ++i) {
      const TaskId id{job, static_cast<int>(i)};
      const std::string flag = absl::StrCat("--", job, "_hosts");
      const auto address = HostPort::Parse((*hosts)[i]);
      if (!address.ok()) return Annotate(address.status(), absl::StrCat(flag, ": ", id.ToString()));
      CAIRN_RETURN_IF_ERROR(Annotate(resolved.spec.Add(id, *address), flag));
    }
  }
  if (require_task) CAIRN_RETURN_IF_ERROR(CheckComplete(task, "flags"));
  if (flags.ps_hosts.empty() && task.job != "evaluator" && flags.needs_servers) {
    return absl::InvalidArgumentError(
        "--ps_hosts is missing; training needs at least one, as in --ps_hosts=localhost:2222");
  }
  if (!require_task) return resolved;
  resolved.self = {task.job, *task.index};
  CAIRN_RETURN_IF_ERROR(CheckMembership(resolved.spec, resolved.self, "flags", flags.unlisted_workers));
  return resolved;
}

}  // namespace

std::vector<std::string> IgnoredJobs(const ClusterFlags& flags, const char* tf_config) {
  const auto cluster = ResolveCluster(flags, tf_config, /*require_task=*/false);
  std::vector<std::string> ignored;
  if (!cluster.ok() || cluster->source == "flags") return ignored;
  const bool from_file = !flags.cluster_file.empty();
  const auto text = from_file ? ReadFile(flags.cluster_file) : absl::StatusOr<std::string>(tf_config);
  const auto document = text.ok() ? ParseJson(*text, cluster->source) : text.status();
  if (!document.ok()) return ignored;
  const auto within = ClusterOfDocument(*document, cluster->source);
  if (!within.ok()) return ignored;
  const json& jobs = *within == nullptr ? *document : **within;
  for (const auto& [job, tasks] : jobs.items()) {
    if (!CanonicalJob(job).ok()) ignored.push_back(job);
  }
  return ignored;
}

absl::StatusOr<ResolvedCluster> ResolveCluster(const ClusterFlags& flags, const char* tf_config,
                                               bool require_task) {
  CAIRN_ASSIGN_OR_RETURN(const PartialTask task, TaskOfFlags(flags));
  const bool has_hosts = !flags.ps_hosts.empty() || !flags.worker_hosts.empty() ||
                         !flags.chief_hosts.empty() || !flags.evaluator_hosts.empty();
  if (has_hosts) return FromFlags(flags, task, require_task);
  if (!flags.cluster_file.empty()) {
    const auto text = ReadFile(flags.cluster_file);
    if (!text.ok()) return Annotate(text.status(), "--cluster");
    return FromDocument(*text, flags.cluster_file, task, flags, require_task);
  }
  const absl::string_view environment = tf_config == nullptr ? "" : absl::StripAsciiWhitespace(tf_config);
  if (!environment.empty()) {
    return FromDocument(std::string(environment), "TF_CONFIG", task, flags, require_task);
  }
  if (task.job == "evaluator" && task.index) {
    ClusterFlags alone;
    alone.needs_servers = false;
    return FromDocument("{}", "flags", task, alone, require_task);
  }
  return absl::InvalidArgumentError(
      "no cluster: give --ps_hosts and --worker_hosts, or --cluster=FILE, or set TF_CONFIG");
}

}  // namespace cairn::net
