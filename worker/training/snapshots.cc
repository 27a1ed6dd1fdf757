#include "worker/training/snapshots.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"
#include "worker/checkpoint/run_proto.h"
#include "worker/embedding/table_states.h"
#include "worker/embedding/trained_tables.h"
#include "worker/inputs/initial_values.h"
#include "worker/model/finite.h"
#include "worker/model/model_difference.h"
#include "worker/options/job.h"
#include "worker/tables/checkpointed_tables.h"
#include "worker/tables/snapshot_checkpoint.h"
#include "worker/tables/table_run.h"

namespace cairn::worker {
namespace {

constexpr int64_t kMaxWorkers = 1 << 20;  // upper bound for a checkpoint's number of workers

void LogSkipped(const absl::Status& damage) {
  LogWarning("skipped a damaged checkpoint: ", damage.message());
}

// Opens one checkpoint's directory, or the newest checkpoint of a train_dir.
absl::StatusOr<Checkpoint> OpenNamed(const std::string& directory) {
  if (FileExists(absl::StrCat(directory, "/", kStateFile))) return Checkpoint::Open(directory);
  return OpenNewest(directory, &LogSkipped);
}

// Converts a count of steps from epochs of `per_epoch` steps to epochs of `now_per_epoch` steps: keeps the
// number of whole epochs and, rounded down, the completed fraction of the last one.
int64_t Convert(int64_t count, int64_t per_epoch, int64_t now_per_epoch) {
  return count / per_epoch * now_per_epoch + count % per_epoch * now_per_epoch / per_epoch;
}

}  // namespace

Snapshots::Snapshots(const Args& args)
    : options_(args.options),
      model_(args.model),
      job_(args.job),
      described_(args.described),
      tables_(args.tables),
      faults_(args.faults),
      metrics_(args.metrics),
      trace_(args.trace),
      variables_(VariablesOf(model_)) {
  if (options_.train_dir.empty()) return;
  saver_.emplace(client::SnapshotSaver::Options{
      .every_updates = options_.save_steps,
      .every = std::chrono::duration<double>(options_.save_secs),
      .clock = args.clock,
      .save = [this](const client::TakenSnapshot& taken) { return Save(taken); },
      .report = [](const absl::Status& status) { LogWarning(status.message()); }});
}

Snapshots::~Snapshots() = default;

absl::StatusOr<InitialWeights> Snapshots::LoadInitial(const std::string& source) const {
  if (tables_ != nullptr) return LoadWeights(source, *described_, *tables_);
  InitialWeights weights;
  CAIRN_ASSIGN_OR_RETURN(weights.parameters, LoadWeights(source, model_));
  return weights;
}

absl::Status Snapshots::CheckInitialValues() const {
  const std::string source = InitialValuesSource(options_);
  if (source.empty()) return absl::OkStatus();
  const absl::Status status = LoadInitial(source).status();
  if (status.ok()) return absl::OkStatus();
  if (absl::IsOutOfRange(status) || absl::IsResourceExhausted(status)) {
    // The flag itself is valid, but values are not finite or memory is short.
    return options_.init_from.empty() ? status : Annotate(status, "--init_from");
  }
  if (!options_.init_from.empty())
    return absl::InvalidArgumentError(absl::StrCat("--init_from: ", status.message()));
  return absl::InvalidArgumentError(absl::StrCat(status.message(), "; --init_from=", kInitializersOnly,
                                                 " starts with the model's initializers"));
}

absl::StatusOr<std::unique_ptr<Snapshots>> Snapshots::Create(const Args& args) {
  const TrainOptions& options = args.options;
  std::optional<TrainDirLock> lock;
  if (!options.train_dir.empty()) {
    auto taken = PrepareTrainDir(options.train_dir);
    if (!taken.ok()) return Annotate(taken.status(), "--train_dir");
    lock.emplace(*std::move(taken));
  }
  std::unique_ptr<Snapshots> snapshots(new Snapshots(args));
  CAIRN_RETURN_IF_ERROR(snapshots->CheckInitialValues());
  if (lock.has_value()) snapshots->lock_.emplace(*std::move(lock));
  CAIRN_RETURN_IF_ERROR(snapshots->FindFirst());
  return snapshots;
}

absl::Status Snapshots::FindFirst() {
  if (!options_.train_dir.empty()) {
    CAIRN_ASSIGN_OR_RETURN(found_, FindNewest(options_.train_dir, &LogSkipped));
    if (found_.has_value() && options_.resume == "never") {
      return absl::InvalidArgumentError(
          absl::StrCat("--resume=never, but --train_dir has ", found_->directory(),
                       ": give another directory, or --resume=auto to continue from there"));
    }
  }
  if (!found_.has_value() && options_.resume != "auto" && options_.resume != "never") {
    auto named = OpenNamed(options_.resume);
    if (absl::IsNotFound(named.status())) {
      return absl::InvalidArgumentError(absl::StrCat("--resume: ", named.status().message()));
    }
    CAIRN_RETURN_IF_ERROR(named.status());
    found_ = *std::move(named);
  }
  return found_.has_value() ? CheckSame(*found_) : absl::OkStatus();
}

absl::Status Snapshots::CheckSame(const Checkpoint& checkpoint) const {
  const RunState& run = checkpoint.run();
  if (run.model_sha256 != job_.model_sha256()) {
    const std::string difference = DescribeDifference(model_, checkpoint.model_json());
    return absl::FailedPreconditionError(
        absl::StrCat(checkpoint.directory(), " has another model: ",
                     difference.empty() ? absl::StrCat("its SHA-256 is ", job_.model_sha256().substr(0, 12),
                                                       " here, ", run.model_sha256.substr(0, 12), " there")
                                        : difference));
  }
  if (run.optimizer != job_.optimizer().name()) {
    return absl::FailedPreconditionError(absl::StrCat(checkpoint.directory(), " has optimizer ",
                                                      run.optimizer, ", but this job has ",
                                                      job_.optimizer().name()));
  }
  if (run.data.has_value() != job_.dynamic_sharding()) {
    return absl::FailedPreconditionError(
        absl::StrCat(checkpoint.directory(), " was written with --data_sharding ",
                     run.data.has_value() ? "dynamic" : "static",
                     ", unlike this job: its position in the data cannot be converted"));
  }
  if (run.data.has_value() && run.data->num_examples != job_.num_examples()) {
    return absl::FailedPreconditionError(
        absl::StrCat(checkpoint.directory(), " was written with ", run.data->num_examples,
                     " training examples, and this job has ", job_.num_examples()));
  }
  CAIRN_ASSIGN_OR_RETURN(const auto tables, TablesOf(job_));
  const absl::Status same = CheckSameTables(tables, run);
  if (same.ok()) return same;
  return absl::FailedPreconditionError(
      absl::StrCat(checkpoint.directory(), ": ", same.message(),
                   " (--embedding_tables, --embedding_tables_above, --dynamic_tables, --seed)"));
}

absl::StatusOr<std::optional<v1::Progress>> Snapshots::Find(bool lost) {
  if (options_.train_dir.empty() && lost)
    return absl::AbortedError("all progress is lost: without --train_dir there are no checkpoints");
  if (lost) {  // include the checkpoints written since the start
    CAIRN_ASSIGN_OR_RETURN(auto newest, FindNewest(options_.train_dir, &LogSkipped));
    if (newest.has_value()) found_ = std::move(newest);
  }
  if (!found_.has_value()) {
    if (lost) LogWarning("there is no checkpoint yet: the job starts again at step 0");
    return std::nullopt;
  }
  CAIRN_RETURN_IF_ERROR(CheckSame(*found_));
  LogWarning("resuming from step ", found_->run().global_step, " of ", found_->directory());
  v1::Progress progress = ProgressOf(*found_);
  if (progress.version_offset() != found_->run().version_offset.value_or(0)) {
    LogWarning("its epochs had another number of steps than this job's (batch size ",
               found_->run().batch_size, ", ", found_->run().num_workers,
               found_->run().num_workers == 1 ? " worker" : " workers", "): the job ends at step ",
               job_.final_version() + progress.version_offset());
  }
  return progress;
}

v1::Progress Snapshots::ProgressOf(const Checkpoint& checkpoint) const {
  v1::Progress progress = worker::ProgressOf(checkpoint.run(), job_.optimizer());
  SetPosition(checkpoint.run(), progress);
  return progress;
}

void Snapshots::SetPosition(const RunState& run, v1::Progress& progress) const {
  const int64_t all = std::accumulate(run.positions.begin(), run.positions.end(), int64_t{0});
  const int workers = std::max(1, job_.workers_size());
  const bool by_steps = options_.train_steps > 0;  // --train_steps counts versions, however long an epoch is
  progress.set_version_offset(by_steps ? 0 : run.version_offset.value_or(0));
  const std::optional<Epochs> before = EpochsBefore(run);
  progress.clear_positions();
  if (!before.has_value()) {
    progress.mutable_positions()->Resize(workers, all / workers);
    if (run.positions.size() == static_cast<size_t>(workers)) {
      std::copy(run.positions.begin(), run.positions.end(), progress.mutable_positions()->begin());
    }
    return;
  }
  const int64_t examples = job_.training_set().examples();
  const int64_t batches = BatchesPerEpoch(options_, examples, workers);
  const int64_t done = run.global_step - run.version_offset.value_or(0);
  if (!by_steps) {
    progress.set_version_offset(run.global_step -
                                Convert(done, before->steps, StepsPerEpoch(options_, examples, workers)));
  }
  // The old positions do not apply to this job's shares of the data, so each worker gets the average
  // position.
  const auto workers_before = static_cast<int64_t>(run.positions.size());
  progress.mutable_positions()->Resize(
      workers, workers_before == 0 ? Convert(done, before->steps, batches)
                                   : Convert(all / workers_before, before->batches, batches));
}

std::optional<Snapshots::Epochs> Snapshots::EpochsBefore(const RunState& run) const {
  const int64_t examples = job_.training_set().examples();
  if (run.data.has_value() || examples == 0) return std::nullopt;
  TrainOptions before = options_;
  before.mode = run.mode;
  before.batch_size = std::max<int64_t>(1, run.batch_size);
  const int64_t examples_before = run.num_examples.value_or(examples);
  const int workers = static_cast<int>(std::clamp<int64_t>(run.num_workers, 1, kMaxWorkers));
  const bool alike = before.mode == options_.mode && before.batch_size == options_.batch_size &&
                     workers == job_.workers_size() && examples_before == examples;
  if (alike || !MakeSamplerOptions(before, examples_before, workers, 0).ok()) return std::nullopt;
  return Epochs{.steps = StepsPerEpoch(before, examples_before, workers),
                .batches = BatchesPerEpoch(before, examples_before, workers)};
}

absl::Status Snapshots::Load(absl::Span<const std::string> slots, absl::Span<const absl::Span<float>> into) {
  if (found_.has_value()) {
    CAIRN_RETURN_IF_ERROR(found_->Load(variables_, slots, into));
    CAIRN_RETURN_IF_ERROR(CheckFinite(model_, into[0], found_->directory()));
    for (size_t slot = 0; slot < slots.size(); ++slot) {
      CAIRN_RETURN_IF_ERROR(CheckFinite(model_, into[1 + slot],
                                        absl::StrCat(found_->directory(), ": slot '", slots[slot], "'")));
    }
    return absl::OkStatus();
  }
  LogInfo(DescribeInitialValues(options_));
  const std::string source = InitialValuesSource(options_);
  if (source.empty()) {
    for (const std::string& warning : WarnOfUnadaptedLayers(model_)) LogWarning(warning);
    return client::FirstValues(model_.InitialParameters(options_.seed)).Load(slots, into);
  }
  CAIRN_ASSIGN_OR_RETURN(InitialWeights weights, LoadInitial(source));
  initial_tables_ = std::move(weights.tables);
  return client::FirstValues(std::move(weights.parameters)).Load(slots, into);
}

absl::StatusOr<std::unique_ptr<client::TableSource>> Snapshots::OpenTables(const v1::Job& job) {
  std::vector<TrainedTable> initial = std::exchange(initial_tables_, {});
  if (found_.has_value()) {
    return StoredTables::Open(*found_, std::max(1, job.servers_size()));
  }
  if (initial.empty()) return nullptr;
  return CatchOutOfMemory("the rows of embedding tables", [&] {
    return StatesOfTables(job, std::make_shared<const std::vector<TrainedTable>>(std::move(initial)));
  });
}

absl::Status Snapshots::Save(const client::TakenSnapshot& taken) const {
  absl::Status status = Write(taken);
  if (metrics_ != nullptr) metrics_->OnCheckpoint(taken.version, status.ok());
  if (!status.ok()) {
    LogWarning("the snapshot of step ", taken.version, " was not written: ", status.message());
  }
  return status;
}

absl::Status Snapshots::Write(const client::TakenSnapshot& taken) const {
  const TraceSpan::What what = {.step = taken.version};
  const TraceSpan save(trace_, TraceLane::kSnapshot, "save", what);
  std::optional<TraceSpan> part(std::in_place, trace_, TraceLane::kSnapshot, "read", what);
  CAIRN_ASSIGN_OR_RETURN(const std::string directory,
                         WriteCheckpoint(taken, {.directory = options_.train_dir,
                                                 .mode = options_.mode,
                                                 .model_json = model_.canonical_json(),
                                                 .max_to_keep = options_.max_to_keep,
                                                 .on_read = [&] {
                                                   part.emplace(trace_, TraceLane::kSnapshot, "write", what);
                                                   if (faults_ != nullptr) faults_->Pass("snapshot");
                                                 }}));
  LogInfo("saved ", directory);
  return absl::OkStatus();
}

}  // namespace cairn::worker
