// cairn-worker: runs one worker task. The chief also initialises, evaluates and ends the job.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/build_info/build_info.h"
#include "common/core/clock.h"
#include "common/core/cores.h"
#include "common/core/flag_table.h"
#include "common/core/flags.h"
#include "common/core/log.h"
#include "common/core/out_of_memory.h"
#include "common/core/process_start.h"
#include "common/core/signals.h"
#include "common/core/standard_streams.h"
#include "common/core/status.h"
#include "common/core/terminal.h"
#include "common/core/trace_session.h"
#include "common/core/words.h"
#include "common/net/access.h"
#include "common/net/cluster_flags.h"
#include "common/net/cluster_spec.h"
#include "common/net/gradient/wire_choice.h"
#include "common/net/grpc_util.h"
#include "common/net/http_server.h"
#include "common/net/listening.h"
#include "common/net/local_token.h"
#include "common/net/port_wait.h"
#include "common/net/task_needs.h"
#include "worker/all_reduce_task.h"
#include "worker/callbacks.h"
#include "worker/client/data_channel_transport.h"
#include "worker/client/grpc_transport.h"
#include "worker/client/training_client.h"
#include "worker/compute.h"
#include "worker/data/mapped_file.h"
#include "worker/data_record.h"
#include "worker/device_choice.h"
#include "worker/device_flags.h"
#include "worker/evaluator_task.h"
#include "worker/export/model_files.h"
#include "worker/export/model_source.h"
#include "worker/hyperparameters.h"
#include "worker/inputs.h"
#include "worker/job.h"
#include "worker/layer_placement.h"
#include "worker/metrics.h"
#include "worker/model_partition.h"
#include "worker/output_paths.h"
#include "worker/peer_listener.h"
#include "worker/snapshots.h"
#include "worker/split_worker.h"
#include "worker/status_pages.h"
#include "worker/stop_on_signal.h"
#include "worker/trainer.h"
#include "worker/training_set.h"

namespace cairn::worker {
namespace {

constexpr char kProgram[] = "cairn-worker";

int Fault(absl::string_view text) {
  return static_cast<int>(UsageError(kProgram, text));
}

// OpenMP's threads spin while they wait, and take cores from other processes. Only an environment variable
// that is read before main() prevents it, so a worker that shares its host or may have more threads than
// cores sets the variable and restarts itself.
void WaitPassively(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  setenv("OMP_WAIT_POLICY", "passive", 0);
  execv("/proc/self/exe", argv);  // if this fails, the worker continues unchanged
}

// Reports a failure that occurred before the job runs, in the user's flags or on the machine. Returns the
// exit code.
int Failure(const absl::Status& status) {
  if (absl::IsInvalidArgument(status)) return Fault(status.message());
  LogError(status.message());
  return static_cast<int>(ExitCodeOf(status));
}

int CoresOf(const TrainOptions& options, const net::ResolvedCluster& cluster) {
  const int cores_each = std::max(1, UsableCores() / cluster.spec.tasks_on_host_of(cluster.self));
  return options.threads > 0 ? options.threads : cores_each;
}

// The number of threads with --deterministic, since oneDNN's sums depend on the number of threads.
constexpr int kDeterministicThreads = 4;

absl::StatusOr<Compute> ComputeFor(const TrainOptions& options, const nn::Model& model,
                                   const nn::LossSpec& loss, const net::ResolvedCluster& cluster,
                                   const Assignment* assignment, TraceRecorder* trace) {
  const int cores = CoresOf(options, cluster);
  const int local_rank = cluster.spec.local_rank_of(cluster.self);
  return MakeCompute(
      options, model, loss,
      {.device = options.devices.device,
       .allow_soft_placement = options.devices.allow_soft_placement,
       .cuda = options.devices.cuda,
       .cpu_devices = options.devices.cpu_devices,
       .threads = options.deterministic ? kDeterministicThreads * options.devices.cpu_devices : cores,
       .task = cluster.self,
       .trainer_on_host = local_rank},
      options.deterministic ? CoreRange{.first = local_rank * cores, .count = cores} : CoreRange(),
      TheBackends(), trace, assignment);
}

// Starts the server of --metrics_port; null without the flag. INVALID_ARGUMENT as for HttpServer::Start().
absl::StatusOr<std::unique_ptr<net::HttpServer>> ServePages(const net::MetricsFlags& flags,
                                                            WorkerIdentity identity,
                                                            const WorkerMetrics& live_metrics) {
  if (!flags.port.has_value()) return nullptr;
  auto server = net::HttpServer::Start(
      flags.host, *flags.port, [identity = std::move(identity), &live_metrics](const std::string& path) {
        return PageOf(identity, live_metrics, path);
      });
  if (server.ok()) LogInfo("status at http://", flags.host, ":", (*server)->port(), "/statusz");
  return server;
}

// Writes the chief's result to stdout and to --summary.
absl::Status Publish(const Summary& summary, const TrainOptions& options) {
  const bool json = LogFormatOf(options.log_format) == LogFormat::kJson;
  std::printf("%s\n", (json ? AsEvent(summary) : OneLine(summary)).c_str());
  absl::Status printed = Annotate(FlushStandardOutput(), "the result");
  if (options.summary.empty()) return printed;
  const absl::Status written = WriteSummary(summary, options.summary);
  if (!written.ok()) printed.Update(absl::UnknownError(absl::StrCat("--summary: ", written.message())));
  return printed;
}

// Writes --export_dir at the end of the job.
absl::Status Export(const Summary& summary, const TrainOptions& options, const nn::Model& model,
                    absl::Span<const float> parameters, DataRecord record) {
  if (options.export_dir.empty()) return absl::OkStatus();
  record.directory = options.export_dir;
  CAIRN_RETURN_IF_ERROR(Annotate(WriteDataRecord(record), "--export_dir"));
  CAIRN_RETURN_IF_ERROR(Annotate(WriteModelDirectory(options.export_dir, model, parameters,
                                                     {{"global_step", absl::StrCat(summary.global_step)}}),
                                 "--export_dir"));
  LogInfo("the model is in ", options.export_dir, ": model.onnx, model.safetensors, model.json");
  return absl::OkStatus();
}

// This worker's address. If its own cluster lacks this worker, as is possible in an elastic job, its name.
std::string AddressOf(const net::ResolvedCluster& cluster) {
  const auto& tasks = cluster.spec.tasks(cluster.self.job);
  const auto found = tasks.find(cluster.self.index);
  return found == tasks.end() ? cluster.self.ToString() : found->second.ToString();
}

// Logs the task's error, if any, and returns the task's exit code.
ExitCode Report(const absl::Status& status, int signal) {
  if (signal != 0) return static_cast<ExitCode>(128 + signal);
  if (!status.ok()) LogError(status.message());
  return ExitCodeOf(status);
}

// Connects to every server of the job.
absl::StatusOr<std::unique_ptr<client::TrainingClient>> ConnectToServers(
    const TrainOptions& options, const v1::Job& job, const nn::Model& model,
    const net::ResolvedCluster& cluster, int worker, const net::Access& access, const StopOnSignal& stop,
    WorkerMetrics& live_metrics, TraceRecorder* trace) {
  std::vector<std::unique_ptr<client::ServerStub>> stubs;
  const auto stub_at = [credentials = net::CredentialsOf(access),
                        transport = net::ParseTransport(options.transport).value()](
                           const std::string& address, std::optional<int> shard = {}) {
    return client::MakeDataChannelStub(
        client::MakeGrpcStub(address, credentials, shard),
        {.transport = transport, .shard = shard, .say = [address](const std::string& how) {
           LogInfo("gradients and values to and from ", address, ": by ", how);
         }});
  };
  for (const std::string& address : job.servers()) stubs.push_back(stub_at(address));
  client::ConnectionOptions::StubFactory stub_factory;
  if (job.ps_replication() > 0) {
    stub_factory = [&job, stub_at](int shard, int host_index) {
      return stub_at(job.servers(host_index), shard);
    };
  }
  client::ConnectionOptions reaching = {.task = cluster.self.ToString(),
                                        .cluster_hash = cluster.spec.Hash(),
                                        .connect_timeout = FromSeconds(options.connect_timeout_seconds),
                                        .say = [](const std::string& text) { LogWarning(text); },
                                        .stop = [&stop] { return stop.received() != 0; },
                                        .stub_factory = std::move(stub_factory),
                                        .trace = trace};
  auto connection = client::Connection::Open(std::move(stubs), std::move(reaching));
  if (!connection.ok()) return connection.status();

  return std::make_unique<client::TrainingClient>(
      *std::move(connection), VariablesOf(model),
      client::TrainingOptions{.worker = worker,
                              .task = cluster.self.ToString(),
                              .step_timeout = FromSeconds(options.step_timeout_seconds),
                              .report = [&live_metrics] { return live_metrics.Report(); },
                              .trace = trace,
                              .wire = &live_metrics.wire});
}

// Runs a stage worker, which computes for the stage leader of its group. It needs neither data nor servers.
int RunStageWorker(const TrainOptions& options, const net::ResolvedCluster& cluster,
                   const Assignment& assignment, const nn::Model& model, const net::Access& access,
                   const ListenFlags& listen, const TraceFlags& traced, SignalQueue& signals,
                   FaultPoints& faults) {
  const auto loss = MakeLoss(options, model);
  if (!loss.ok()) return Fault(loss.status().message());
  TraceSession trace(traced, cluster.self.ToString());
  auto compute = ComputeFor(options, model, *loss, cluster, &assignment, trace.recorder());
  if (!compute.ok()) return Failure(compute.status());
  for (const std::string& warning : compute->warnings) LogWarning(warning);
  LogInfo("cluster from ", cluster.source, ": ", cluster.spec.ToJson());
  for (const std::string& remark : compute->remarks) LogInfo(remark);
  if (options.devices.log_device_placement) {
    for (const std::string& line : compute->placement) LogInfo(line);
  }
  StopOnSignal stop(signals);
  const absl::Status status = ServeAsStageWorker({.options = options,
                                                  .cluster = cluster,
                                                  .assignment = assignment,
                                                  .model = model,
                                                  .loss = *loss,
                                                  .compute = *compute,
                                                  .access = access,
                                                  .stop = stop,
                                                  .trace = trace.recorder(),
                                                  .faults = &faults},
                                                 listen);
  if (absl::IsInvalidArgument(status)) return Fault(status.message());
  return static_cast<int>(Report(status, stop.received()));
}

// Runs the evaluator task, which needs neither servers nor workers.
int RunEvaluatorTask(const TrainOptions& options, const net::ResolvedCluster& cluster,
                     const TraceFlags& traced, SignalQueue& signals) {
  const auto inputs = LoadInputs(options);
  if (!inputs.ok()) return Fault(inputs.status().message());
  TraceSession trace(traced, cluster.self.ToString());
  auto compute =
      ComputeFor(options, inputs->model, inputs->loss, cluster, /*assignment=*/nullptr, trace.recorder());
  if (!compute.ok()) return Failure(compute.status());
  for (const std::string& warning : compute->warnings) LogWarning(warning);
  for (const std::string& remark : inputs->data.remarks) LogWarning(remark);
  if (inputs->data.validation == nullptr)
    LogWarning("--data_dir has no validation set: all of it is evaluated");
  LogInfo("evaluating the checkpoints in ", options.train_dir);
  StopOnSignal stop(signals);
  const absl::Status status =
      RunEvaluator({.options = options,
                    .inputs = *inputs,
                    .replica = *compute->replica,
                    // The next checkpoint may be almost --save_secs away.
                    .patience = FromSeconds(options.connect_timeout_seconds + options.save_secs),
                    .stop = [&stop] { return stop.received() != 0; }});
  return static_cast<int>(Report(status, stop.received()));
}

int Run(const TrainOptions& options, const net::ResolvedCluster& cluster, const net::Access& access,
        const ListenFlags& listen, const net::MetricsFlags& watched, const TraceFlags& traced,
        SignalQueue& signals, FaultPoints& faults) {
  // First, the checks that need only this machine. If one fails, the worker exits with kUsage.
  const auto described = ReadModelFile(options.model);
  if (!described.ok()) return Fault(described.status().message());
  const auto assignment = FindAssignment(*described, options, cluster);
  if (!assignment.ok()) return Fault(assignment.status().message());
  const bool is_stage_worker = assignment->has_value() && (*assignment)->task > 0;
  std::vector<net::TaskPort> ports;
  if (is_stage_worker || options.all_reduce()) ports.push_back(PeerPort(cluster, listen));
  if (const auto page = net::PortOf(watched); page.has_value() && !is_stage_worker) ports.push_back(*page);
  if (const auto end = net::AwaitPorts(ports, signals)) return static_cast<int>(*end);
  if (is_stage_worker) {
    return RunStageWorker(options, cluster, **assignment, *described, access, listen, traced, signals,
                          faults);
  }
  const Assignment* const leader_assignment = assignment->has_value() ? &**assignment : nullptr;
  const auto inputs = CatchOutOfMemory("--data_dir", [&] { return LoadInputs(options); });
  if (absl::IsResourceExhausted(inputs.status())) return Failure(inputs.status());
  if (!inputs.ok()) return Fault(inputs.status().message());
  const auto& [model, loss, metrics, data, record] = *inputs;
  auto job =
      MakeJob(options, model,
              leader_assignment == nullptr ? cluster.spec
                                           : LeadersOf(cluster.spec, leader_assignment->partition.tasks),
              data.train->size());
  if (!job.ok()) return Fault(job.status().message());
  *job->mutable_training_set() = IdentityOf(*data.train);
  const auto self = std::find(job->workers().begin(), job->workers().end(), cluster.self.ToString());
  const int worker = static_cast<int>(self - job->workers().begin());
  const auto sampler = MakeSamplerOptions(options, data.train->size(), job->workers_size(), worker);
  if (!sampler.ok()) return Fault(sampler.status().message());

  faults.Pass("started");
  const bool chief = cluster.self == cluster.spec.chief();
  std::optional<Callbacks> callbacks;
  if (chief) {
    auto made = Callbacks::Create(options.callbacks, model, metrics,
                                  data.validation != nullptr && options.validation);
    if (!made.ok()) return Fault(made.status().message());
    callbacks.emplace(*std::move(made));
    if (!options.export_dir.empty()) {
      const absl::Status status = PrepareModelDirectory(options.export_dir);
      if (!status.ok()) return Fault(absl::StrCat("--export_dir: ", status.message()));
    }
  }

  const SteadyClock clock;
  TraceSession trace(traced, cluster.self.ToString());
  StopOnSignal stop(signals);
  auto compute = ComputeFor(options, model, loss, cluster, leader_assignment, trace.recorder());
  if (!compute.ok()) return Failure(compute.status());
  split::StageLeader* leader = nullptr;
  if (leader_assignment != nullptr) {
    auto made = MakeLeader({.options = options,
                            .cluster = cluster,
                            .assignment = *leader_assignment,
                            .model = model,
                            .loss = loss,
                            .compute = *compute,
                            .access = access,
                            .stop = stop,
                            .trace = trace.recorder()});
    if (!made.ok()) return Failure(made.status());
    leader = made->get();
    compute->replica = *std::move(made);
  }
  for (const std::string& warning : compute->warnings) LogWarning(warning);
  WorkerMetrics live_metrics(clock, compute->name);
  std::unique_ptr<Snapshots> snapshots;
  if (chief) {
    auto made = Snapshots::Create(options, model, *job, clock, &faults, &live_metrics, trace.recorder());
    if (!made.ok()) return Failure(made.status());
    snapshots = *std::move(made);
    if (!options.train_dir.empty()) {
      DataRecord kept = record;
      kept.directory = options.train_dir;
      const absl::Status status = WriteDataRecord(kept);
      if (!status.ok()) return Fault(absl::StrCat("--train_dir: ", status.message()));
    }
  }

  for (const std::string& remark : data.remarks) LogWarning(remark);
  for (const data::Note& note : data.notes) LogInfo(note.text);
  if (const std::string warning = WarnOfThreads(options.threads); !warning.empty()) LogWarning(warning);
  LogInfo("cluster from ", cluster.source, ": ", cluster.spec.ToJson());
  for (const std::string& remark : compute->remarks) LogInfo(remark);
  if (options.devices.log_device_placement) {
    for (const std::string& line : compute->placement) LogInfo(line);
    for (const std::string& line : DescribeVariables(model, job->servers_size())) LogInfo(line);
  }
  LogInfo(options.mode, " training of ", model.name(), ", ", model.num_parameters(), " parameters, ",
          job->final_version() > 0 ? absl::StrCat("to step ", job->final_version())
                                   : Counted(options.epochs, "epoch"));

  LogInfo("gradients travel as ", net::DescribeWire(*job), ": ",
          absl::StrFormat("%.3g", net::GradientBytesPerElement(*job, VariablesOf(model))),
          " bytes per element");

  const auto pages = ServePages(watched,
                                {.task = cluster.self.ToString(),
                                 .address = AddressOf(cluster),
                                 .job = *job,
                                 .model = model.name(),
                                 .parameters = model.num_parameters()},
                                live_metrics);
  if (!pages.ok()) return Fault(pages.status().message());

  // From here on failures depend on the cluster.
  if (leader != nullptr) {
    const absl::Status reached = leader->Reach();
    if (!reached.ok()) return static_cast<int>(Report(reached, stop.received()));
  }
  std::unique_ptr<AllReduceTask> ring;
  std::unique_ptr<client::TrainingClient> served;
  if (options.all_reduce()) {
    auto started = AllReduceTask::Start({.options = options,
                                         .model = model,
                                         .job = *job,
                                         .cluster = cluster,
                                         .access = access,
                                         .listen = listen,
                                         .worker = worker,
                                         .threads = CoresOf(options, cluster),
                                         .device = compute->peer.get()});
    if (!started.ok()) return Failure(started.status());
    ring = *std::move(started);
  } else {
    auto connected =
        ConnectToServers(options, *job, model, cluster, worker, access, stop, live_metrics, trace.recorder());
    if (!connected.ok()) return static_cast<int>(Report(connected.status(), stop.received()));
    served = *std::move(connected);
  }
  client::Exchange& client = ring != nullptr ? ring->exchange() : *served;
  std::unique_ptr<Progress> progress;
  if (chief) {
    progress = std::make_unique<Progress>(
        Progress::Options{.fd = STDOUT_FILENO,
                          .terminal = isatty(STDOUT_FILENO) != 0,
                          .columns = [] { return TerminalColumns(STDOUT_FILENO); },
                          .color = WantsColor(),
                          .json = LogFormatOf(options.log_format) == LogFormat::kJson,
                          .display_every = options.display_every},
        clock);
    for (const data::Note& note : data.notes) {
      if (!note.usual) progress->Say(note.text);
    }
  }
  std::unique_ptr<TensorBoardWriter> tensorboard;
  if (chief && !options.train_dir.empty()) {
    tensorboard = std::make_unique<TensorBoardWriter>(
        TensorBoardWriter::Options{.directory = options.train_dir,
                                   .histogram_freq = options.histogram_freq,
                                   .update_freq = options.update_freq},
        model, HyperparametersOf(options, *job, model), clock);
  }
  std::optional<Trainer> trainer;
  const absl::Status made = CatchOutOfMemory(absl::StrCat("--batch_size ", options.batch_size), [&] {
    trainer.emplace(Trainer::Dependencies{
        .options = options,
        .model = model,
        .metrics = metrics,
        .data = data,
        .sampler = *sampler,
        .job = *job,
        .device = compute->name,
        .replica = *compute->replica,
        .client = client,
        .progress = progress.get(),
        .callbacks = chief ? &*callbacks : nullptr,
        .snapshots = snapshots.get(),
        .publish =
            [&options, &trained = model, &known = record, &client](const Summary& summary) {
              absl::Status status = Export(summary, options, trained, client.parameters(), known);
              status.Update(Publish(summary, options));
              return status;
            },
        .tensorboard = tensorboard.get(),
        .live_metrics = &live_metrics,
        .clock = clock,
        .trace = trace.recorder(),
        .faults = &faults});
    return absl::OkStatus();
  });
  if (!made.ok()) return Failure(made);
  if (leader != nullptr) leader->SetStep([&client] { return client.version() + 1; });
  stop.SetTrainer(&*trainer);
  if (options.deterministic) {
    // Compute threads are created from here on; communication threads exist already.
    const int cores = CoresOf(options, cluster);
    StayOnCores(cluster.spec.local_rank_of(cluster.self) * cores, cores);
  }
  const absl::Status initialised = chief ? trainer->Initialise() : absl::OkStatus();
  const auto result = initialised.ok() ? trainer->Run() : absl::StatusOr<Summary>(initialised);
  stop.SetTrainer(nullptr);
  if (leader != nullptr)
    leader->End(stop.received() != 0 ? absl::CancelledError("stopped by a signal") : result.status());
  snapshots.reset();  // destroyed before the client, whose connection it uses
  // If the job is invalid or the servers lack memory for it, the user must change flags.
  if (absl::IsInvalidArgument(initialised) || absl::IsResourceExhausted(initialised)) {
    return Fault(initialised.message());
  }
  return static_cast<int>(Report(result.status(), stop.received()));
}

}  // namespace

int Main(int argc, char** argv) {
  OccupyStandardStreams();
  PrepareProcess(argv);
  IgnoreBrokenPipes();
  SignalQueue signals({SIGINT, SIGTERM, SIGHUP});
  net::TuneMalloc();
  net::QuietGrpc();
  TrainOptions options;
  net::ClusterFlags flags;
  net::Access access;
  net::MetricsFlags watched;
  TraceFlags traced;
  ListenFlags listen;
  FaultPoints::Fault fault;
  CLI::App app("Runs one worker of a Cairn cluster", kProgram);
  net::AddClusterFlags(app, flags);
  net::AddAccessFlags(app, access);
  net::AddMetricsFlags(app, watched);
  AddTraceFlags(app, traced);
  AddTrainOptions(app, options);
  AddFlags(app, kNetworkGroup,
           {{"--listen HOST:PORT", &listen.address,
             "Address to listen on, if other workers connect to this one (--mode allreduce, --place across "
             "workers) [0.0.0.0 and the port of this task]"}});
  net::AddDataPortFlag(app, listen.data_port);
  AddFlags(app, "", {{"--reuse_port", &listen.reuse_port}});
  AddFaultFlag(app, fault);
  if (const auto exit = ParseCommandLine(app, argc, argv, BuildInfo())) return static_cast<int>(*exit);
  if (const absl::Status status = Validate(options); !status.ok()) return Fault(status.message());
  if (options.model.empty()) return Fault("--model is missing");
  if (const absl::Status status = net::CheckAccess(access, std::getenv(net::kTokenVariable)); !status.ok()) {
    return Fault(status.message());
  }

  if (const absl::Status status = CheckTraceFlags(traced); !status.ok()) return Fault(status.message());

  flags.unlisted_workers = options.elastic;
  flags.needs_servers = !options.all_reduce();
  const auto cluster = net::ResolveCluster(flags, std::getenv("TF_CONFIG"));
  if (!cluster.ok()) return Fault(cluster.status().message());
  const bool evaluates = cluster->self.job == "evaluator";
  if (cluster->self.job == "ps")
    return Fault("--job_name: this program is a worker, a chief or an evaluator, not a ps");
  if (evaluates && options.train_dir.empty()) {
    return Fault("--train_dir is missing: an evaluator evaluates the checkpoints in it");
  }
  if (cluster->self == cluster->spec.chief()) {
    if (const absl::Status status = CheckOutputPaths(options); !status.ok()) return Fault(status.message());
  }
  if (options.all_reduce() && cluster->spec.num_tasks("ps") > 0) {
    return Fault(absl::StrCat(cluster->source, ": --mode allreduce does not use the cluster's ",
                              cluster->spec.num_tasks("ps"), " ps"));
  }
  if (cluster->spec.num_tasks("ps") > 0) net::TakeLocalToken(cluster->spec.servers().front(), access);
  if (cluster->spec.tasks_on_host_of(cluster->self) > 1 || options.deterministic ||
      options.devices.cpu_devices > 1) {
    WaitPassively(argv);
  }
  UseVisibleDevices(options.devices.visible_devices);
  StartLogging(cluster->self.ToString(), LogLevelOf(options.log_level), LogFormatOf(options.log_format));
  const int servers = cluster->spec.num_tasks("ps");
  const absl::Status limits = EnterLimits({.files = net::kTaskDescriptors,
                                           .threads = net::kTaskThreads + CoresOf(options, *cluster),
                                           .peer_threads = net::kConnectionThreads * servers},
                                          net::WorkerDescriptors(servers));
  if (!limits.ok()) return Failure(limits);
  data::ExplainTruncatedFiles();
  if (evaluates) return RunEvaluatorTask(options, *cluster, traced, signals);
  FaultPoints faults(fault);
  return Run(options, *cluster, access, listen, watched, traced, signals, faults);
}

}  // namespace cairn::worker

int main(int argc, char** argv) {
  cairn::ReportOutOfMemory("cairn-worker");
  return cairn::worker::Main(argc, argv);
}
