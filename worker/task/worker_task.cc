#include "worker/task/worker_task.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/core/log.h"
#include "common/core/terminal.h"
#include "common/flags/flags.h"
#include "common/flags/words.h"
#include "common/memory/out_of_memory.h"
#include "common/net/wire/wire_choice.h"
#include "common/system/cores.h"
#include "worker/devices/device_choice.h"
#include "worker/export/data_record.h"
#include "worker/export/model_files.h"
#include "worker/inputs/length_buckets.h"
#include "worker/inputs/training_set.h"
#include "worker/options/device_flags.h"
#include "worker/options/job.h"
#include "worker/placement/layer_placement.h"
#include "worker/report/hyperparameters.h"
#include "worker/report/publish.h"
#include "worker/report/status_pages.h"
#include "worker/task/evaluator_task.h"
#include "worker/task/server_connection.h"
#include "worker/training/chief.h"

namespace cairn::worker {
namespace {

// The number of threads with --deterministic, since oneDNN's sums depend on the number of threads.
constexpr int kDeterministicThreads = 4;

// The longest wait for a snapshot whose tables are exported.
constexpr auto kTablesLimit = std::chrono::seconds(60);
constexpr char kRows[] = "the rows of embedding tables";

ExitCode Fault(const absl::Status& status) {
  return UsageError(kProgram, status.message());
}

// Reports a failure that occurred before the job runs, in the user's flags or on the machine.
ExitCode Failure(const absl::Status& status) {
  if (absl::IsInvalidArgument(status)) return Fault(status);
  LogError(status.message());
  return ExitCodeOf(status);
}

// This worker's address. If its own cluster lacks this worker, as is possible in an elastic job, its name.
std::string AddressOf(const net::ResolvedCluster& cluster) {
  const auto& tasks = cluster.spec.tasks(cluster.self.job);
  const auto found = tasks.find(cluster.self.index);
  return found == tasks.end() ? cluster.self.ToString() : found->second.ToString();
}

void LogWarnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) LogWarning(warning);
}

}  // namespace

int CoresOf(const TrainOptions& options, const net::ResolvedCluster& cluster) {
  const int cores_each = std::max(1, UsableCores() / cluster.spec.tasks_on_host_of(cluster.self));
  return options.threads > 0 ? options.threads : cores_each;
}

ExitCode WorkerTask::Run() {
  if (cluster_.self.job == "evaluator") return Evaluate();
  if (const absl::Status status = Validate(); !status.ok()) return Fault(status);
  if (const auto end = net::AwaitPorts(Ports(), args_.signals)) return *end;
  if (is_stage_worker()) return Serve();
  if (const absl::Status status = Load(); !status.ok()) {
    return absl::IsResourceExhausted(status) ? Failure(status) : Fault(status);
  }
  if (const absl::Status status = Build(); !status.ok()) return Failure(status);
  if (const absl::Status status = Connect(); !status.ok()) return Report(status);
  if (const absl::Status status = Assemble(); !status.ok()) return Failure(status);
  return Train();
}

absl::Status WorkerTask::Validate() {
  CAIRN_ASSIGN_OR_RETURN(described_, ReadModel(options_));
  CAIRN_ASSIGN_OR_RETURN(assignment_, FindAssignment(*described_, options_, cluster_));
  return assignment_.has_value() ? RefuseTablesOfDividedModel(options_, *described_) : absl::OkStatus();
}

std::vector<net::TaskPort> WorkerTask::Ports() const {
  std::vector<net::TaskPort> ports;
  if (is_stage_worker() || options_.all_reduce()) ports.push_back(PeerPort(cluster_, args_.listen));
  const auto page = monitor::PortOf(args_.pages);
  if (page.has_value() && !is_stage_worker()) ports.push_back(*page);
  return ports;
}

absl::Status WorkerTask::Load() {
  CAIRN_ASSIGN_OR_RETURN(inputs_, CatchOutOfMemory("--data_dir", [this] { return LoadInputs(options_); }));
  const data::Dataset& train = *inputs_->data.train;
  CAIRN_ASSIGN_OR_RETURN(
      job_, MakeJob(options_, inputs_->trained(),
                    assignment_.has_value() ? LeadersOf(cluster_.spec, assignment_->partition.tasks)
                                            : cluster_.spec,
                    train.size()));
  *job_.mutable_training_set() = IdentityOf(train, PointerTo(inputs_->train_buckets));
  if (inputs_->tables.has_value())
    job_.mutable_tables()->Add(inputs_->tables->tables.begin(), inputs_->tables->tables.end());
  const auto self = std::find(job_.workers().begin(), job_.workers().end(), cluster_.self.ToString());
  worker_ = static_cast<int>(self - job_.workers().begin());
  CAIRN_ASSIGN_OR_RETURN(sampler_, MakeSamplerOptions(options_, train.size(), job_.workers_size(), worker_));
  if (inputs_->train_buckets.has_value()) sampler_.bucket_of = inputs_->train_buckets->bucket_of;

  args_.faults.Pass("started");
  if (!chief_) return absl::OkStatus();
  const bool validation = inputs_->data.validation != nullptr && options_.validation;
  CAIRN_ASSIGN_OR_RETURN(auto callbacks,
                         Callbacks::Create(options_.callbacks, inputs_->model, inputs_->metrics, validation));
  callbacks_.emplace(std::move(callbacks));
  if (options_.export_dir.empty()) return absl::OkStatus();
  return Annotate(PrepareModelDirectory(options_.export_dir), "--export_dir");
}

absl::Status WorkerTask::Build() {
  trace_.emplace(args_.traced, cluster_.self.ToString());
  stop_.emplace(args_.signals);
  CAIRN_RETURN_IF_ERROR(MakeDevices(inputs_->trained(), inputs_->objective));
  if (assignment_.has_value()) CAIRN_RETURN_IF_ERROR(MakeStageLeader());
  LogWarnings(compute_.warnings);
  metrics_.emplace(clock_, compute_.name);
  if (chief_) CAIRN_RETURN_IF_ERROR(MakeSnapshots());
  LogJob();
  CAIRN_ASSIGN_OR_RETURN(pages_, ServePages(args_.pages,
                                            {.task = cluster_.self.ToString(),
                                             .address = AddressOf(cluster_),
                                             .job = job_,
                                             .model = inputs_->model.name(),
                                             .parameters = inputs_->trained().num_parameters()},
                                            *metrics_));
  return options_.all_reduce() ? StartRing() : absl::OkStatus();
}

bool WorkerTask::synchronizes_batches() const {
  return inputs_->trained().synchronizes_batch() && (job_.workers_size() > 1 || job_.elastic());
}

absl::Status WorkerTask::MakeDevices(const nn::Model& model, const nn::Objective& objective) {
  const int cores = CoresOf(options_, cluster_);
  const int local_rank = cluster_.spec.local_rank_of(cluster_.self);
  CAIRN_ASSIGN_OR_RETURN(
      compute_,
      MakeCompute({.options = options_,
                   .model = model,
                   .objective = objective,
                   .request = {.device = options_.devices.device,
                               .allow_soft_placement = options_.devices.allow_soft_placement,
                               .cuda = options_.devices.cuda,
                               .cpu_devices = options_.devices.cpu_devices,
                               .threads = options_.deterministic
                                              ? kDeterministicThreads * options_.devices.cpu_devices
                                              : cores,
                               .task = cluster_.self,
                               .trainer_on_host = local_rank},
                   .cores = options_.deterministic ? CoreRange{.first = local_rank * cores, .count = cores}
                                                   : CoreRange(),
                   .makers = TheBackends(),
                   .trace = trace(),
                   .assignment = assignment_.has_value() ? &*assignment_ : nullptr,
                   .workers = synchronizes_batches() ? &batch_sync_ : nullptr}));
  return absl::OkStatus();
}

SplitArgs WorkerTask::SplitArgsFor(const nn::Model& model, const nn::Objective& objective) {
  return {.options = options_,
          .cluster = cluster_,
          .assignment = *assignment_,
          .model = model,
          .objective = objective,
          .compute = compute_,
          .access = args_.access,
          .stop = *stop_,
          .trace = trace(),
          .faults = &args_.faults};
}

absl::Status WorkerTask::MakeStageLeader() {
  if (inputs_->objective.WeightsPerExample(inputs_->trained()) > 1) {
    return absl::InvalidArgumentError(
        "--data_dir: weights of rows, or of each output, are not supported with a model that is divided over "
        "workers");
  }
  CAIRN_ASSIGN_OR_RETURN(auto leader, MakeLeader(SplitArgsFor(inputs_->trained(), inputs_->objective)));
  leader_ = leader.get();
  compute_.replica = std::move(leader);
  return absl::OkStatus();
}

absl::Status WorkerTask::MakeSnapshots() {
  CAIRN_ASSIGN_OR_RETURN(
      snapshots_, Snapshots::Create({.options = options_,
                                     .model = inputs_->trained(),
                                     .job = job_,
                                     .clock = clock_,
                                     .described = &inputs_->model,
                                     .tables = inputs_->tables.has_value() ? &*inputs_->tables : nullptr,
                                     .faults = &args_.faults,
                                     .metrics = &*metrics_,
                                     .trace = trace()}));
  if (options_.train_dir.empty()) return absl::OkStatus();
  DataRecord record = inputs_->record;
  record.directory = options_.train_dir;
  const absl::Status written = WriteDataRecord(record);
  if (written.ok()) return written;
  return absl::InvalidArgumentError(absl::StrCat("--train_dir: ", written.message()));
}

void WorkerTask::LogDevices() const {
  LogInfo("cluster from ", cluster_.source, ": ", cluster_.spec.ToJson());
  for (const std::string& remark : compute_.remarks) LogInfo(remark);
  if (!options_.devices.log_device_placement) return;
  for (const std::string& line : compute_.placement) LogInfo(line);
}

void WorkerTask::LogJob() const {
  const nn::Model& model = inputs_->trained();
  LogWarnings(inputs_->data.remarks);
  for (const data::Note& note : inputs_->data.notes) LogInfo(note.text);
  if (const std::string warning = WarnOfThreads(options_.threads); !warning.empty()) LogWarning(warning);
  LogDevices();
  if (options_.devices.log_device_placement) {
    for (const std::string& line : DescribeVariables(model, job_.servers_size())) LogInfo(line);
  }
  LogInfo(options_.mode, " training of ", model.name(), ", ", model.num_parameters(), " parameters, ",
          job_.final_version() > 0 ? absl::StrCat("to step ", job_.final_version())
                                   : Counted(options_.epochs, "epoch"));
  LogInfo("gradients travel as ", net::DescribeWire(job_), ": ",
          absl::StrFormat("%.3g", net::GradientBytesPerElement(job_, VariablesOf(model))),
          " bytes per element");
}

absl::Status WorkerTask::StartRing() {
  CAIRN_ASSIGN_OR_RETURN(ring_, AllReduceTask::Start({.options = options_,
                                                      .model = inputs_->trained(),
                                                      .job = job_,
                                                      .cluster = cluster_,
                                                      .access = args_.access,
                                                      .listen = args_.listen,
                                                      .worker = worker_,
                                                      .threads = CoresOf(options_, cluster_),
                                                      .device = compute_.peer.get()}));
  return absl::OkStatus();
}

absl::Status WorkerTask::Connect() {
  if (leader_ != nullptr) CAIRN_RETURN_IF_ERROR(leader_->Reach());
  if (options_.all_reduce()) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(servers_, ConnectToServers({.options = options_,
                                                     .model = inputs_->trained(),
                                                     .job = job_,
                                                     .cluster = cluster_,
                                                     .access = args_.access,
                                                     .worker = worker_,
                                                     .stop = *stop_,
                                                     .metrics = *metrics_,
                                                     .trace = trace()}));
  return absl::OkStatus();
}

void WorkerTask::OpenDisplays() {
  progress_.emplace(Progress::Options{.fd = STDOUT_FILENO,
                                      .terminal = isatty(STDOUT_FILENO) != 0,
                                      .columns = [] { return TerminalColumns(STDOUT_FILENO); },
                                      .color = WantsColor(),
                                      .json = LogFormatOf(options_.log_format) == LogFormat::kJson,
                                      .display_every = options_.display_every},
                    clock_);
  for (const data::Note& note : inputs_->data.notes) {
    if (!note.usual) progress_->Say(note.text);
  }
  if (options_.train_dir.empty()) return;
  tensorboard_.emplace(TensorBoardWriter::Options{.directory = options_.train_dir,
                                                  .histogram_freq = options_.histogram_freq,
                                                  .update_freq = options_.update_freq},
                       inputs_->model, HyperparametersOf(options_, job_, inputs_->model), clock_);
}

std::optional<client::TrainingLoop::Chief> WorkerTask::ChiefParts() {
  if (!chief_) return std::nullopt;
  return client::TrainingLoop::Chief{
      .control = exchange().control, .source = *snapshots_, .snapshots = snapshots_->saver()};
}

absl::Status WorkerTask::StreamStates(client::TableSink& sink) {
  const TimePoint deadline = std::chrono::steady_clock::now() + kTablesLimit;
  // A server keeps one snapshot at a time.
  if (snapshots_->saver() != nullptr) CAIRN_RETURN_IF_ERROR(snapshots_->saver()->AwaitIdle(deadline));
  client::JobControl& control = exchange().control;
  const auto attempt = [&]() -> absl::Status {
    CAIRN_ASSIGN_OR_RETURN(const client::TakenSnapshot taken, control.TakeSnapshot(client::StopCheck()));
    return taken.read({.timeout = deadline - std::chrono::steady_clock::now()}, &sink).status();
  };
  return Annotate(client::RetrySnapshot(control, deadline, attempt), "the embedding tables");
}

absl::Status WorkerTask::StreamTables(RowSink& sink) {
  SnapshotRows rows(sink);
  CAIRN_RETURN_IF_ERROR(StreamStates(rows));
  return Annotate(rows.Finish(), "the embedding tables");
}

absl::StatusOr<client::TableOpener> WorkerTask::TakeTables() {
  return CatchOutOfMemory(kRows, [&]() -> absl::StatusOr<client::TableOpener> {
    CAIRN_ASSIGN_OR_RETURN(const bool depend_on_version, StatesDependOnVersion(job_));
    if (!depend_on_version) {
      KeptStates states;
      CAIRN_RETURN_IF_ERROR(StreamStates(states));
      return states.Open();
    }
    CAIRN_ASSIGN_OR_RETURN(TrainedTables taken, Collect(Tables(), [](int64_t) { return absl::OkStatus(); }));
    const auto tables = std::make_shared<const std::vector<TrainedTable>>(std::move(taken.tables));
    return client::TableOpener([this, tables] { return StatesOfTables(job_, tables); });
  });
}

absl::Status WorkerTask::Assemble() {
  if (chief_) OpenDisplays();
  if (inputs_->tables.has_value()) {
    if (chief_) callbacks_->SetTables(Tables(), [this] { return TakeTables(); });
    table_replica_.emplace(*inputs_->tables, *compute_.replica, *servers_->rows(),
                           TableReplica::Options{
                               .staleness = static_cast<int>(options_.embedding.staleness),
                               .counters = &metrics_->lookups,
                           });
  }
  return CatchOutOfMemory(absl::StrCat("--batch_size ", options_.batch_size), [this] {
    trainer_.emplace(Trainer::Dependencies{
        .setup = {.options = options_,
                  .model = inputs_->trained(),
                  .metrics = inputs_->metrics,
                  .data = inputs_->data,
                  .sampler = sampler_,
                  .job = job_,
                  .device = compute_.name,
                  .buckets = PointerTo(inputs_->train_buckets),
                  .validation_buckets = PointerTo(inputs_->validation_buckets)},
        .replica = replica(),
        .membership = exchange().membership,
        .steps = exchange().steps,
        .chief = ChiefParts(),
        .clock = clock_,
        .instruments = {.metrics = &*metrics_, .trace = trace(), .faults = &args_.faults},
        .fetcher = table_replica_.has_value() ? &*table_replica_ : nullptr,
        .batch_sync = synchronizes_batches() ? &batch_sync_ : nullptr});
    if (!chief_) {
      hooks_ = std::make_unique<NonChief>();
      return absl::OkStatus();
    }
    hooks_ = std::make_unique<Chief>(
        *trainer_, Chief::Dependencies{.progress = *progress_,
                                       .callbacks = *callbacks_,
                                       .tensorboard = tensorboard_.has_value() ? &*tensorboard_ : nullptr,
                                       .publish = [this](const Summary& summary) {
                                         std::optional<TableRows> tables;
                                         if (inputs_->tables.has_value()) tables.emplace(Tables());
                                         return Publish(summary, options_, *inputs_,
                                                        exchange().steps.parameters(),
                                                        tables.has_value() ? &*tables : nullptr);
                                       }});
    return absl::OkStatus();
  });
}

ExitCode WorkerTask::Train() {
  if (leader_ != nullptr) leader_->SetStep([this] { return exchange().steps.version() + 1; });
  stop_->SetTrainer(&*trainer_);
  if (options_.deterministic) {
    // Compute threads are created from here on; communication threads exist already.
    const int cores = CoresOf(options_, cluster_);
    StayOnCores(cluster_.spec.local_rank_of(cluster_.self) * cores, cores);
  }
  const absl::Status initialised = trainer_->Initialise();
  const absl::Status result = initialised.ok() ? trainer_->Run(*hooks_) : initialised;
  stop_->SetTrainer(nullptr);
  if (leader_ != nullptr)
    leader_->End(stop_->received() != 0 ? absl::CancelledError("stopped by a signal") : result);
  snapshots_.reset();  // waits until the last snapshot is written
  // If the job is invalid or the servers lack memory for it, the user must change flags.
  if (absl::IsInvalidArgument(initialised) || absl::IsResourceExhausted(initialised)) {
    return Fault(initialised);
  }
  return Report(result);
}

ExitCode WorkerTask::Report(const absl::Status& status) const {
  if (stop_->received() != 0) return static_cast<ExitCode>(128 + stop_->received());
  if (!status.ok()) LogError(status.message());
  return ExitCodeOf(status);
}

ExitCode WorkerTask::Serve() {
  const auto objective = MakeObjective(options_, *described_);
  if (!objective.ok()) return Fault(objective.status());
  trace_.emplace(args_.traced, cluster_.self.ToString());
  if (const absl::Status made = MakeDevices(*described_, *objective); !made.ok()) return Failure(made);
  LogWarnings(compute_.warnings);
  LogDevices();
  stop_.emplace(args_.signals);
  const absl::Status status = ServeAsStageWorker(SplitArgsFor(*described_, *objective), args_.listen);
  return absl::IsInvalidArgument(status) ? Fault(status) : Report(status);
}

ExitCode WorkerTask::Evaluate() {
  auto inputs = LoadInputs(options_);
  if (!inputs.ok()) return Fault(inputs.status());
  inputs_ = *std::move(inputs);
  trace_.emplace(args_.traced, cluster_.self.ToString());
  const absl::Status made = MakeDevices(inputs_->trained(), inputs_->objective);
  if (!made.ok()) return Failure(made);
  LogWarnings(compute_.warnings);
  LogWarnings(inputs_->data.remarks);
  if (inputs_->data.validation == nullptr)
    LogWarning("--data_dir has no validation set: all of it is evaluated");
  LogInfo("evaluating the checkpoints in ", options_.train_dir);
  stop_.emplace(args_.signals);
  return Report(RunEvaluator({.options = options_,
                              .inputs = *inputs_,
                              .replica = *compute_.replica,
                              // The next checkpoint may be almost --save_secs away.
                              .patience = FromSeconds(options_.connect_timeout_seconds + options_.save_secs),
                              .stop = [this] { return stop_->received() != 0; }}));
}

}  // namespace cairn::worker
