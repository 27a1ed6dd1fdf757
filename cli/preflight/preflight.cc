#include "cli/preflight/preflight.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/preflight/preflight_network.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "common/flags/path_checks.h"
#include "common/monitor/status_page.h"
#include "common/net/cluster/placement.h"
#include "common/net/cluster/task_needs.h"
#include "common/system/limits.h"
#include "worker/embedding/table_plan.h"
#include "worker/export/model_source.h"
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
// Above this ratio the largest server dominates the step time.
constexpr double kMaxImbalance = 1.5;

double Number(int64_t value) {
  return static_cast<double>(value);
}

// Reports how the model is distributed over the servers.
Finding Plan(const nn::Model& model, int servers) {
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
  if (imbalance > kMaxImbalance && servers > 1) {
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
                   findings_, running_models_);
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
    const auto model = worker::ReadModelFile(options_.model);
    if (!model.ok()) {
      Fault("model", model.status().message(), "`cairn model FILE` shows how a file is read");
      return;
    }
    parameters_ = model->num_parameters();
    Ok("model", absl::StrCat(model->name(), ", ", monitor::WithCommas(Number(parameters_)), " parameters"));
    for (const std::string& line : worker::DescribeIds(*model)) Ok("model", line);
    const auto tables = worker::PlanTables(options_, *model);
    if (!tables.ok()) {
      Fault("job", tables.status().message(), "change the flag or the model file that it names");
      return;
    }
    const nn::Model& trained = tables->has_value() ? (*tables)->model.model : *model;
    if (const int servers = given_.cluster.spec.num_tasks("ps"); servers > 0)
      findings_.push_back(Plan(trained, servers));
    int64_t examples = 1;
    if (!options_.data.path.empty()) {
      if (const absl::Status status = CheckCompiled(*model); !status.ok()) {
        Fault("job", status.message(), "change the flag or the model file that it names");
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
    CompareWithRunning(trained, examples);
  }

  // Checks flags and model file like LoadInputs(), so that their faults are not attributed to the data.
  absl::Status CheckCompiled(const nn::Model& model) const {
    CAIRN_ASSIGN_OR_RETURN(const nn::LossSpec loss, worker::MakeLoss(options_, model));
    CAIRN_RETURN_IF_ERROR(CheckOutput(loss, model.output_shape()));
    CAIRN_RETURN_IF_ERROR(worker::MakeMetrics(options_, model, loss));
    return worker::MakeOptimizer(options_, model).status();
  }

  void CompareWithRunning(const nn::Model& model, int64_t examples) {
    const auto job = worker::MakeJob(options_, model, given_.cluster.spec, examples);
    if (!job.ok()) {
      Fault("job", job.status().message(), "change the flag or the model file that it names");
      return;
    }
    for (const auto& [server, sha256] : running_models_) {
      if (sha256 == job->model_sha256()) continue;
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
    const int64_t needed = kept * kCopiesPerCheckpoint * parameters_ * static_cast<int64_t>(sizeof(float));
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
  std::map<std::string, std::string> running_models_;  // SHA-256 of the model that a server trains, [server]
  int64_t parameters_ = 0;
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
