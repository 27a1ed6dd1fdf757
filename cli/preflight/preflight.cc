#include "cli/preflight/preflight.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/preflight/preflight_network.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "common/flags/path_checks.h"
#include "common/memory/memory_size.h"
#include "common/memory/server_memory.h"
#include "common/monitor/status_page.h"
#include "common/net/cluster/placement.h"
#include "common/net/cluster/task_needs.h"
#include "common/system/limits.h"
#include "worker/embedding/table_needs.h"
#include "worker/embedding/table_plan.h"
#include "worker/inputs/inputs.h"
#include "worker/options/job.h"

namespace cairn::cli {
namespace {

absl::StatusOr<int64_t> FreeBytes(const std::string& directory) {
  struct statvfs info{};
  if (statvfs(directory.c_str(), &info) != 0) return absl::ErrnoToStatus(errno, directory);
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

// A checkpoint has the values and up to two optimizer slots. One more checkpoint than --max_to_keep may exist
// while it is written.
constexpr int64_t kCopiesPerCheckpoint = 3;
constexpr char kChangeJob[] = "change the flag or the model file that it names";
// Above this ratio the largest server dominates the step time.
constexpr double kMaxImbalance = 1.5;

double Number(int64_t value) {
  return static_cast<double>(value);
}

// Reports how the model is distributed over the servers. `tables`: the job also has rows, which are divided evenly.
Finding Plan(const nn::Model& model, bool tables, int servers) {
  const auto placed = net::PlaceVariables(worker::VariablesOf(model), {.servers = servers});
  std::string plan;
  int64_t most = 0, all = 0;
  for (size_t server = 0; server < placed.size(); ++server) {
    int64_t bytes = 0;
    for (const net::Slice& slice : placed[server])
      bytes += slice.elements() * static_cast<int64_t>(sizeof(float));
    absl::StrAppend(&plan, server == 0 ? "" : ", ", "ps/", server, " ", monitor::InBytes(Number(bytes)),
                    " in ", placed[server].size(), placed[server].size() == 1 ? " variable" : " variables");
    most = std::max(most, bytes);
    all += bytes;
  }
  const double imbalance = all == 0 ? 1 : Number(most) * servers / Number(all);
  Finding finding = {.subject = "plan",
                     .what = absl::StrFormat("%s; the largest has %.2f times the mean", plan, imbalance)};
  if (imbalance > kMaxImbalance && servers > 1 && !tables) {
    finding.fault = true;
    finding.remedy = "use fewer servers: this model has too few variables to distribute";
  }
  return finding;
}

class Preflight {
 public:
  explicit Preflight(const Examination& examination) : given_(examination), options_(examination.options) {}

  std::vector<Finding> Examine() {
    Ok("cluster",
       absl::StrCat(given_.cluster.spec.num_tasks("ps"), " ps and ", given_.cluster.spec.trainers().size(),
                    " workers, from ", given_.cluster.source));
    ExamineNetwork({.cluster = given_.cluster,
                    .access = given_.access,
                    .timeout = given_.timeout,
                    .unix_seconds = given_.unix_seconds},
                   findings_, servers_);
    if (!options_.model.empty()) LookAtModel();
    if (!options_.train_dir.empty()) LookAtTrainDir();
    LookAtDevice();
    if (given_.descriptor_limit > 0) LookAtDescriptors();
    return std::move(findings_);
  }

 private:
  void Ok(const std::string& subject, const std::string& what) {
    findings_.push_back({.subject = subject, .what = what});
  }
  void Fault(const std::string& subject, absl::string_view what, const std::string& remedy) {
    findings_.push_back({.subject = subject, .fault = true, .what = std::string(what), .remedy = remedy});
  }

  void LookAtModel() {
    const auto model = worker::ReadModel(options_);
    if (!model.ok()) {
      Fault("model", model.status().message(), "`cairn model FILE` shows how a file is read");
      return;
    }
    Ok("model", absl::StrCat(model->name(), ", ", monitor::WithCommas(Number(model->num_parameters())),
                             " parameters"));
    for (const std::string& line : worker::DescribeIds(*model)) Ok("model", line);
    if (const absl::Status status = worker::CheckCombinations(options_); !status.ok()) {
      Fault("job", status.message(), kChangeJob);
      return;
    }
    const auto tables = worker::PlanTables(options_, *model);
    if (!tables.ok()) {
      Fault("job", tables.status().message(), kChangeJob);
      return;
    }
    const nn::Model& trained = tables->has_value() ? (*tables)->model.model : *model;
    checkpoint_bytes_ = kCopiesPerCheckpoint * trained.num_parameters() * static_cast<int64_t>(sizeof(float));
    if (const int servers = given_.cluster.spec.num_tasks("ps"); servers > 0)
      findings_.push_back(Plan(trained, tables->has_value(), servers));
    int64_t examples = 1;
    if (!options_.data.path.empty()) {
      if (const absl::Status status = CheckCompiled(*model); !status.ok()) {
        Fault("job", status.message(), kChangeJob);
        return;
      }
      const auto inputs = worker::LoadInputs(options_);
      if (!inputs.ok()) {
        Fault("data", inputs.status().message(),
              FileExists(options_.data.path)
                  ? "correct the data, or the flag that determines how it is read"
                  : "--data_dir must name a directory or file that this machine can read");
        return;
      }
      examples = inputs->data.train->size();
      Ok("data", absl::StrCat(monitor::WithCommas(Number(examples)), " training examples, ",
                              inputs->data.validation == nullptr
                                  ? "no"
                                  : monitor::WithCommas(Number(inputs->data.validation->size())),
                              " validation examples"));
    }
    LookAtJob(trained, tables->has_value() ? &**tables : nullptr, examples);
  }

  // Checks flags and model file like LoadInputs(), so that their faults are not attributed to the data.
  absl::Status CheckCompiled(const nn::Model& model) const {
    CAIRN_ASSIGN_OR_RETURN(const nn::Objective objective, worker::MakeObjective(options_, model));
    CAIRN_RETURN_IF_ERROR(worker::MakeMetrics(options_, model, objective));
    return worker::MakeOptimizer(options_, model).status();
  }

  // `tables`: those of the job; null: none.
  void LookAtJob(const nn::Model& model, const worker::TablePlan* tables, int64_t examples) {
    auto job = worker::MakeJob(options_, model, given_.cluster.spec, examples);
    if (!job.ok()) {
      Fault("job", job.status().message(), kChangeJob);
      return;
    }
    if (tables != nullptr) {
      job->mutable_tables()->Add(tables->tables.begin(), tables->tables.end());
      if (const absl::Status status = LookAtTables(*job, *tables); !status.ok()) {
        Fault("job", status.message(), kChangeJob);
        return;
      }
    }
    LookAtMemory(*job, model);
    CompareWithRunning(*job);
  }

  // Reports the tables. INVALID_ARGUMENT if a server would refuse one.
  absl::Status LookAtTables(const v1::Job& job, const worker::TablePlan& plan) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<worker::TableNeeds> needs, worker::TableNeedsOf(job));
    std::vector<std::string> texts;
    for (size_t t = 0; t < needs.size(); ++t) {
      const worker::TableNeeds& table = needs[t];
      const auto lookup =
          std::find(plan.table_of_lookup.begin(), plan.table_of_lookup.end(), static_cast<int>(t));
      const std::string& combiner =
          plan.model.lookups[static_cast<size_t>(lookup - plan.table_of_lookup.begin())].combiner;
      texts.push_back(
          absl::StrCat(table.name, ": ",
                       table.vocabulary_size > 0
                           ? absl::StrCat(monitor::WithCommas(Number(table.vocabulary_size)), " rows")
                           : "rows of any id",
                       " of ", table.dim, " with ", table.optimizer,
                       combiner.empty() ? "" : absl::StrCat(", combiner ", combiner)));
      table_bytes_ += worker::PartBytes(table, table.vocabulary_size, job);
      any_id_ |= table.vocabulary_size == 0;
      // In a checkpoint, a row has its id beside its values and slots.
      checkpoint_bytes_ += table.vocabulary_size *
                           static_cast<int64_t>(sizeof(int64_t) +
                                                sizeof(float) * static_cast<size_t>(table.dim + table.slots));
    }
    Ok("tables", absl::StrJoin(texts, "; "));
    return absl::OkStatus();
  }

  // Checks that every server whose limit is known accepts the job, in the words of a server.
  void LookAtMemory(const v1::Job& job, const nn::Model& model) {
    std::map<std::string, int64_t> limits = servers_.memory_limits;
    if (given_.memory_limit > 0) {
      for (int server = 0; server < job.servers_size(); ++server)
        limits.emplace(absl::StrCat("ps/", server), given_.memory_limit);
    }
    const auto tightest =
        std::min_element(limits.begin(), limits.end(),
                         [](const auto& one, const auto& other) { return one.second < other.second; });
    if (tightest == limits.end()) return;
    const auto memory =
        worker::ServerMemoryOf(job, worker::VariablesOf(model), table_bytes_, tightest->second);
    if (!memory.ok()) {
      Fault("job", memory.status().message(), kChangeJob);
    } else if (const absl::Status fits = CheckMemory(*memory); !fits.ok()) {
      Fault("memory", absl::StrCat(tightest->first, ": ", fits.message()),
            "use more servers, or raise --memory_limit where the machine has more");
    } else {
      Ok("memory",
         absl::StrCat(InGiB(memory->needs.total()), " on each server, of ", InGiB(Number(memory->limit)),
                      " on ", tightest->first,
                      any_id_ ? "; besides, the rows of tables of any id: `cairn plan` estimates them" : ""));
    }
  }

  void CompareWithRunning(const v1::Job& job) {
    for (const auto& [server, sha256] : servers_.models) {
      if (sha256 == job.model_sha256()) continue;
      Fault("model", absl::StrCat("differs from the model of the job that is running on ", server),
            "use the same model file for every task, or wait until that job has ended");
      return;
    }
  }

  void LookAtTrainDir() {
    const std::string existing = NearestExisting(options_.train_dir);
    if (const absl::Status status = CheckDirectoryWritable(options_.train_dir); !status.ok()) {
      Fault("train_dir", status.message(), "the chief must be able to write there");
      return;
    }
    const auto free = given_.free_bytes(existing);
    if (!free.ok()) {
      Fault("train_dir", free.status().message(), "the chief must be able to write there");
      return;
    }
    const int64_t kept = std::max<int64_t>(options_.max_to_keep, 1) + 1;
    const int64_t needed = kept * checkpoint_bytes_;
    const std::string numbers =
        absl::StrCat(monitor::InBytes(Number(*free)), " free in ", existing, ", up to ",
                     monitor::InBytes(Number(needed)), " for ", kept, " checkpoints");
    if (*free == 0) {
      Fault("train_dir", absl::StrCat("nothing can be stored there: ", numbers),
            "choose a directory on a disk with free space");
    } else if (*free < needed) {
      Fault("train_dir", absl::StrCat("the disk is too full: ", numbers),
            "free disk space, or lower --max_to_keep");
    } else {
      Ok("train_dir", numbers);
    }
  }

  // Checks the limit of open files for this task. If this process is no task of the cluster, the limit must
  // suffice for every task.
  void LookAtDescriptors() {
    const net::ClusterSpec& spec = given_.cluster.spec;
    const std::string& job = given_.cluster.self.job;
    const int64_t server = net::ServerDescriptors(static_cast<int>(spec.trainers().size()));
    const int64_t worker = net::WorkerDescriptors(spec.num_tasks("ps"));
    int64_t needed = job == "ps" ? server : worker;
    if (job.empty() && spec.num_tasks("ps") > 0) needed = std::max(server, worker);
    const std::string numbers = absl::StrCat(
        "up to ", given_.descriptor_limit, " files may be open (ulimit -Hn), about ", needed, " are needed");
    if (given_.descriptor_limit < needed) {
      Fault("descriptors", numbers,
            "raise the hard limit: ulimit -Hn, LimitNOFILE of systemd, --ulimit of docker");
    } else {
      Ok("descriptors", numbers);
    }
  }

  void LookAtDevice() {
    const auto chosen = worker::ChooseDevice({.device = options_.devices.device,
                                              .allow_soft_placement = options_.devices.allow_soft_placement,
                                              .cuda = {.precision = options_.devices.cuda.precision},
                                              .task = given_.cluster.self},
                                             given_.backends);
    if (!chosen.ok()) {
      Fault(
          "device", chosen.status().message(),
          "`cairn devices` lists the available devices; --allow_soft_placement computes on the CPU instead");
      return;
    }
    std::string what = chosen->device->name();
    for (const std::string& warning : chosen->warnings) absl::StrAppend(&what, "; ", warning);
    Ok("device", what);
  }

  const Examination& given_;
  const worker::TrainOptions& options_;
  std::vector<Finding> findings_;
  ReachedServers servers_;
  double table_bytes_ = 0;        // of the rows on each server, as it counts them
  bool any_id_ = false;           // the job has tables whose rows are not known before
  int64_t checkpoint_bytes_ = 0;  // without rows of tables of any id
};

}  // namespace

Examination OfThisMachine(net::ResolvedCluster cluster) {
  return {.cluster = std::move(cluster),
          .descriptor_limit = HighestDescriptorLimit(),
          .backends = worker::TheBackends(),
          .unix_seconds = &UnixSeconds,
          .free_bytes = &FreeBytes};
}

std::vector<Finding> Examine(const Examination& examination) {
  return Preflight(examination).Examine();
}

std::string AsText(const std::vector<Finding>& findings) {
  size_t width = 0;
  int faults = 0;
  for (const Finding& finding : findings) {
    width = std::max(width, finding.subject.size());
    faults += finding.fault;
  }
  std::string text;
  for (const Finding& finding : findings) {
    absl::StrAppend(&text, finding.subject, std::string(width - finding.subject.size() + 2, ' '),
                    finding.fault ? "FAULT  " : "ok     ", finding.what, "\n");
    if (finding.fault) absl::StrAppend(&text, std::string(width + 2 + 7, ' '), "-> ", finding.remedy, "\n");
  }
  absl::StrAppend(&text, findings.size(), " checks, ",
                  faults == 0 ? "no faults" : absl::StrCat(faults, faults == 1 ? " fault" : " faults"), "\n");
  return text;
}

}  // namespace cairn::cli
