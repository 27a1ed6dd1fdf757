#include "common/net/cluster/cluster_spec.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/json.h"
#include "common/core/one_line.h"
#include "common/core/random.h"
#include "common/core/status.h"

namespace cairn::net {
namespace {

using nlohmann::json;

constexpr const char* kJobs[] = {"chief", "evaluator", "ps", "worker"};

bool IsKnownJob(absl::string_view job) {
  return std::find(std::begin(kJobs), std::end(kJobs), job) != std::end(kJobs);
}

// As in TensorFlow: a letter, then letters, digits and '_'.
bool IsJobName(absl::string_view text) {
  if (text.empty() || !absl::ascii_isalpha(static_cast<unsigned char>(text[0]))) return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; });
}

absl::Status Refuse(absl::string_view source, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(source, ": ", what));
}

absl::StatusOr<int> ParseIndex(absl::string_view text) {
  int index = 0;
  const bool canonical = absl::SimpleAtoi(text, &index) && absl::StrCat(index) == text;
  if (!canonical) return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is not a task index"));
  if (index < 0) return absl::InvalidArgumentError(absl::StrCat("task index ", index, " is negative"));
  return index;
}

// A job's tasks as JSON: a list, or an object from index to address.
absl::StatusOr<std::vector<std::pair<int, const json*>>> TasksOf(const json& value) {
  std::vector<std::pair<int, const json*>> tasks;
  if (value.is_array()) {
    for (const json& address : value) tasks.emplace_back(static_cast<int>(tasks.size()), &address);
  } else if (value.is_object()) {
    for (const auto& [key, address] : value.items()) {
      CAIRN_ASSIGN_OR_RETURN(const int index, ParseIndex(key));
      tasks.emplace_back(index, &address);
    }
  } else if (!value.is_null()) {  // null: how Go writes an empty list
    return absl::InvalidArgumentError(
        absl::StrCat("must be a list of \"host:port\" or an object from index to \"host:port\", found ",
                     value.type_name()));
  }
  return tasks;
}

absl::Status AddTask(ClusterSpec& spec, const TaskId& task, const json& address) {
  if (!address.is_string()) {
    return absl::InvalidArgumentError(absl::StrCat(
        task.ToString(), ": the address must be a string \"host:port\", found ", address.type_name()));
  }
  const auto parsed = HostPort::Parse(address.get_ref<const std::string&>());
  if (!parsed.ok()) return Annotate(parsed.status(), task.ToString());
  return spec.Add(task, *parsed);
}

// Kubeflow's TFJob with enableDynamicWorker gives each ps a "ps" list with only its own address, whatever its
// index, and a map of workers (tensorflow.go, genTFConfigJSONStr). A cluster without "worker" can have this
// meaning only if the index lies outside the list.
bool ListsOnlyItself(const json& jobs, const std::optional<TaskId>& self) {
  if (!self || self->job != "ps") return false;
  const auto ps = jobs.find("ps"), worker = jobs.find("worker");
  if (ps == jobs.end() || !ps->is_array() || ps->size() != 1) return false;
  if (worker == jobs.end() || worker->is_null()) return self->index > 0;
  return worker->is_object();
}

absl::Status MissingServers(const json& jobs, absl::string_view source) {
  if (jobs.contains("ps")) return Refuse(source, "the list of ps is empty; training needs at least one");
  for (const auto& [key, value] : jobs.items()) {
    if (absl::AsciiStrToLower(key) == "ps") {
      return Refuse(source,
                    absl::StrCat("has no \"ps\", but ", Quoted(key), ": job names are in lower case"));
    }
  }
  return Refuse(source, "has no \"ps\"; training needs at least one, as in \"ps\": [\"localhost:2222\"]");
}

}  // namespace

std::string TaskId::ToString() const {
  return absl::StrCat(job, "/", index);
}

absl::Status ClusterSpec::Add(const TaskId& task, const HostPort& address) {
  const auto refuse = [&](const auto&... text) {
    return absl::InvalidArgumentError(absl::StrCat(task.ToString(), ": ", text...));
  };
  if (!IsKnownJob(task.job)) return refuse("a job is one of ", absl::StrJoin(kJobs, ", "));
  if (task.index < 0) return refuse("the index is negative");
  if (task.job == "chief" && task.index != 0) return refuse("a cluster has one chief, chief/0");
  if (tasks(task.job).contains(task.index)) return refuse("is listed twice");
  for (const auto& [job, addresses] : jobs_) {
    for (const auto& [index, taken] : addresses) {
      if (taken == address) {
        return refuse(address.ToString(), " is already the address of ", TaskId{job, index}.ToString());
      }
    }
  }
  jobs_[task.job][task.index] = address;
  return absl::OkStatus();
}

absl::StatusOr<ClusterSpec> ClusterSpec::FromJson(absl::string_view text, absl::string_view source) {
  CAIRN_ASSIGN_OR_RETURN(const json jobs, ParseJson(text, source));
  return FromJobs(jobs, source, std::nullopt);
}

absl::StatusOr<ClusterSpec> ClusterSpec::FromJobs(const json& jobs, absl::string_view source,
                                                  const std::optional<TaskId>& self, bool needs_servers) {
  if (!jobs.is_object()) {
    return Refuse(source,
                  absl::StrCat("a cluster is an object like {\"ps\": [\"localhost:2222\"], \"worker\": "
                               "[\"localhost:2223\"]}, found ",
                               jobs.type_name()));
  }
  ClusterSpec spec;
  const bool only_self = ListsOnlyItself(jobs, self);
  for (const auto& [key, value] : jobs.items()) {
    if (!IsJobName(key)) return Refuse(source, absl::StrCat(Quoted(key), " is not the name of a job"));
    const std::string job = key == "master" ? "chief" : key;
    if (!IsKnownJob(job)) continue;
    const auto tasks = TasksOf(value);
    if (!tasks.ok()) return Annotate(tasks.status(), absl::StrCat(source, ": ", key));
    if (key == "master" && !tasks->empty() && spec.num_tasks("chief") > 0) {
      return Refuse(source, "has both \"chief\" and \"master\", which are two names of one job");
    }
    for (const auto& [index, address] : *tasks) {
      const TaskId task{job, only_self && job == "ps" ? self->index : index};
      CAIRN_RETURN_IF_ERROR(Annotate(AddTask(spec, task, *address), source));
    }
  }

  const std::map<int, HostPort>& servers = spec.tasks("ps");
  const bool dense = servers.empty() || static_cast<size_t>(servers.rbegin()->first) == servers.size() - 1;
  const bool is_ps = self && self->job == "ps", is_evaluator = self && self->job == "evaluator";
  if (servers.empty() && !is_evaluator && needs_servers) return MissingServers(jobs, source);
  if (!dense && !is_ps) {
    int missing = 0;
    while (servers.contains(missing)) ++missing;
    return Refuse(source, absl::StrCat("ps/", missing, " is missing, but ps/", servers.rbegin()->first,
                                       " is there: servers are numbered from 0 without gaps"));
  }
  spec.sees_only_itself_ = only_self || !dense;
  return spec;
}

const std::map<int, HostPort>& ClusterSpec::tasks(absl::string_view job) const {
  static const std::map<int, HostPort> kNone;
  const auto found = jobs_.find(std::string(job));
  return found == jobs_.end() ? kNone : found->second;
}

std::vector<HostPort> ClusterSpec::servers() const {
  std::vector<HostPort> addresses;
  for (const auto& [index, address] : tasks("ps")) addresses.push_back(address);
  return addresses;
}

TaskId ClusterSpec::chief() const {
  return {num_tasks("chief") > 0 ? "chief" : "worker", 0};
}

std::vector<TaskId> ClusterSpec::trainers() const {
  std::vector<TaskId> trainers;
  for (const char* job : {"chief", "worker"}) {
    for (const auto& [index, address] : tasks(job)) trainers.push_back({job, index});
  }
  return trainers;
}

int ClusterSpec::tasks_on_host_of(const TaskId& task) const {
  const auto& peers = tasks(task.job);
  const auto self = peers.find(task.index);
  if (self == peers.end()) return 1;
  int count = 0;
  for (const auto& [job, addresses] : jobs_) {
    for (const auto& [index, address] : addresses) count += address.host == self->second.host;
  }
  return count;
}

int ClusterSpec::local_rank_of(const TaskId& task) const {
  const auto& peers = tasks(task.job);
  const auto self = peers.find(task.index);
  if (self == peers.end()) return 0;
  int place = 0;
  for (const TaskId& trainer : trainers()) {
    if (trainer == task) return place;
    place += tasks(trainer.job).at(trainer.index).host == self->second.host;
  }
  return 0;
}

std::string ClusterSpec::ToJson() const {
  json document = json::object();
  for (const auto& [job, addresses] : jobs_) {
    const bool dense = static_cast<size_t>(addresses.rbegin()->first) == addresses.size() - 1;
    for (const auto& [index, address] : addresses) {
      if (dense) {
        document[job].push_back(address.ToString());
      } else {
        document[job][absl::StrCat(index)] = address.ToString();
      }
    }
  }
  return document.dump();
}

uint64_t ClusterSpec::Hash() const {
  if (!knows_all_servers()) return 0;
  return StreamOf(absl::StrJoin(servers(), ",", [](std::string* out, const HostPort& address) {
    absl::StrAppend(out, address.ToString());
  }));
}

uint64_t ClusterSpec::TrainersHash() const {
  return StreamOf(absl::StrJoin(trainers(), ",", [this](std::string* out, const TaskId& task) {
    absl::StrAppend(out, tasks(task.job).at(task.index).ToString());
  }));
}

}  // namespace cairn::net
