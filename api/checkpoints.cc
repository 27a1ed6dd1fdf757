#include "api/checkpoints.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/conversions.h"
#include "common/core/status.h"
#include "worker/checkpoint/run_proto.h"
#include "worker/tables/checkpointed_tables.h"
#include "worker/tables/snapshot_checkpoint.h"
#include "worker/tables/table_run.h"

namespace cairn::api {
namespace {

const char* NameOf(Mode mode) {
  return mode == Mode::kSync ? "sync" : mode == Mode::kAsync ? "async" : "ssp";
}

}  // namespace

Checkpoints::Checkpoints(const Args& args)
    : options_(args.options),
      job_(args.job),
      declared_(args.declared),
      variables_(args.variables),
      mode_(NameOf(args.job.mode)) {
  if (!enabled()) return;
  saver_.emplace(client::SnapshotSaver::Options{
      .every_updates = options_.checkpoint_every_updates,
      .every = options_.checkpoint_every,
      .clock = clock_,
      .save = [this](const client::TakenSnapshot& taken) { return Write(taken); },
      .report = [this](const absl::Status& status) { Report(std::string(status.message())); },
      .stopped = args.stopped});
}

absl::StatusOr<std::unique_ptr<Checkpoints>> Checkpoints::Create(const Args& args) {
  std::unique_ptr<Checkpoints> checkpoints(new Checkpoints(args));
  if (!checkpoints->enabled()) return checkpoints;
  auto lock = worker::PrepareTrainDir(args.options.checkpoint_directory);
  if (!lock.ok()) return Annotate(lock.status(), "SessionOptions::checkpoint_directory");
  checkpoints->lock_.emplace(*std::move(lock));
  CAIRN_ASSIGN_OR_RETURN(checkpoints->found_, checkpoints->Newest());
  if (checkpoints->found_.has_value()) {
    CAIRN_RETURN_IF_ERROR(checkpoints->CheckSame(*checkpoints->found_));
  }
  return checkpoints;
}

absl::StatusOr<std::optional<worker::Checkpoint>> Checkpoints::Newest() const {
  return worker::FindNewest(options_.checkpoint_directory, [this](const absl::Status& status) {
    Report(absl::StrCat("skipped a damaged checkpoint: ", status.message()));
  });
}

absl::Status Checkpoints::CheckSame(const worker::Checkpoint& checkpoint) const {
  const worker::RunState& run = checkpoint.run();
  if (run.model_sha256 != declared_.model_sha256()) {
    return absl::FailedPreconditionError(absl::StrCat(checkpoint.directory(),
                                                      " has other variables: ", checkpoint.model_json(),
                                                      " there, ", DescribeModel(job_), " here"));
  }
  if (run.optimizer != declared_.optimizer().name()) {
    return absl::FailedPreconditionError(absl::StrCat(checkpoint.directory(), " has optimizer ",
                                                      run.optimizer, ", but this job has ",
                                                      declared_.optimizer().name()));
  }
  CAIRN_ASSIGN_OR_RETURN(const auto tables, worker::TablesOf(declared_));
  CAIRN_RETURN_IF_ERROR(Annotate(worker::CheckSameTables(tables, run), checkpoint.directory()));
  const int64_t examples = run.data.has_value() ? run.data->num_examples : 0;
  if (examples != declared_.num_examples()) {
    return absl::FailedPreconditionError(
        absl::StrCat(checkpoint.directory(), " has a work queue of ", examples,
                     " examples (0: none), but this job has one of ", declared_.num_examples()));
  }
  if (run.seed != declared_.seed()) {
    return absl::FailedPreconditionError(absl::StrCat(checkpoint.directory(), " has a work queue of seed ",
                                                      run.seed, ", but this job has one of seed ",
                                                      declared_.seed()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<v1::Progress>> Checkpoints::Find(bool lost) {
  if (lost && !enabled()) {
    return absl::AbortedError(
        "all progress is lost: without a checkpoint directory there are no checkpoints");
  }
  if (lost) {  // include the checkpoints written since the start
    CAIRN_ASSIGN_OR_RETURN(auto newest, Newest());
    if (newest.has_value()) found_ = std::move(newest);
  }
  if (!found_.has_value()) {
    if (lost) Report("there is no checkpoint yet: the job starts again at update 0");
    return std::nullopt;
  }
  CAIRN_RETURN_IF_ERROR(CheckSame(*found_));
  Report(absl::StrCat("resuming from update ", found_->run().global_step, " of ", found_->directory()));
  v1::Progress progress = worker::ProgressOf(found_->run(), declared_.optimizer());
  // The positions of another number of workers do not apply: each worker gets the average.
  auto& positions = *progress.mutable_positions();
  if (positions.size() != declared_.workers_size()) {
    const int64_t all = std::accumulate(positions.begin(), positions.end(), int64_t{0});
    positions.Clear();
    positions.Resize(declared_.workers_size(), all / declared_.workers_size());
  }
  return progress;
}

absl::Status Checkpoints::Load(absl::Span<const std::string> slots,
                               absl::Span<const absl::Span<float>> into) {
  if (found_.has_value()) return found_->Load(variables_, slots, into);
  if (!options_.first_values) return absl::OkStatus();  // the memory is zero
  return Annotate(ToAbsl(options_.first_values({into[0].data(), into[0].size()})), "first_values");
}

absl::StatusOr<std::unique_ptr<client::TableSource>> Checkpoints::OpenTables(const v1::Job& job) {
  if (!found_.has_value()) return nullptr;
  return worker::StoredTables::Open(*found_, std::max(1, job.servers_size()));
}

absl::Status Checkpoints::Write(const client::TakenSnapshot& taken) const {
  const auto directory = worker::WriteCheckpoint(taken, {.directory = options_.checkpoint_directory,
                                                         .mode = mode_,
                                                         .model_json = DescribeModel(job_),
                                                         .max_to_keep = options_.checkpoints_to_keep});
  Report(directory.ok() ? absl::StrCat("saved ", *directory)
                        : absl::StrCat("the checkpoint of update ", taken.version,
                                       " was not written: ", directory.status().message()));
  return directory.status();
}

}  // namespace cairn::api
