#include "ps/shard/shard.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "ps/log/follow_proto.h"

namespace cairn::ps {
namespace {

absl::Span<const optim::Norms> NormsOf(const optim::Optimizer* optimizer) {
  return optimizer == nullptr ? absl::Span<const optim::Norms>() : optimizer->norms();
}

std::unique_ptr<DenseTable> MakeDense(Shard::Options& options, const optim::Optimizer* optimizer) {
  return std::make_unique<DenseTable>(std::move(options.slices), optimizer,
                                      DenseTable::Options{.initial_version = options.initial_version,
                                                          .memory_limit = options.memory_limit,
                                                          .thread_pool = options.thread_pool,
                                                          .speculative_updates = options.speculative_updates,
                                                          .trace = options.trace});
}

// INVALID_ARGUMENT for a state that no shard has.
absl::Status CheckState(const v1::ReplicatedShard& state) {
  if (state.next_index() < 1 || state.next_index() > kMaxCounted || state.version() < 0 ||
      state.version() > kMaxCounted) {
    return absl::InvalidArgumentError(absl::StrCat("a replicated state cannot be at entry ",
                                                   state.next_index(), ", version ", state.version()));
  }
  if (state.duplicates() < 0 || state.rejected() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("a replicated state cannot have ", state.duplicates(),
                                                   " duplicates, ", state.rejected(), " rejected pushes"));
  }
  v1::ConfigChange changed;
  if (state.has_learning_rate()) changed.set_learning_rate(state.learning_rate());
  return FromProto(changed).status();
}

}  // namespace

Shard::Shard(Options options)
    : faults_(options.faults),
      optimizer_(std::move(options.optimizer)),
      final_version_(options.final_version),
      tables_(MakeDense(options, optimizer_.get())),
      pushes_(store(), final_version_),
      reads_(store(), final_version_),
      updater_(tables_, final_version_,
               {.staleness_aware_learning_rate = options.staleness_aware_learning_rate}),
      executor_({.norms = NormsOf(optimizer_.get()),
                 .initial_version = options.initial_version,
                 .most_workers = options.most_workers,
                 .leader = options.leader,
                 .faults = options.faults,
                 .recorder = UpdateRecorder(options.server, options.metrics, options.trace)},
                {tables_, final_version_, pushes_, reads_, updater_}) {
  if (options.learning_rate.has_value()) store().SetLearningRate(*options.learning_rate);
  if (options.trace != nullptr) options.trace->AtStep(options.initial_version + 1);
}

std::unique_ptr<OpenPush> Shard::BeginPush(const PushRequest& request) {
  Pass("push");
  std::vector<std::unique_ptr<TablePush>> tables;
  if (!pushes_.IsKnown(request.gradient.key)) {
    for (size_t table = 0; table < tables_.size(); ++table) {
      tables.push_back(tables_[table].BeginPush(request));
    }
  }
  return std::make_unique<OpenPush>(request, std::move(tables));
}

void Shard::FinishPush(std::unique_ptr<OpenPush> push, PushReply reply, WorkSource work) {
  if (absl::Status complete = push->CheckComplete(); !complete.ok()) {
    reply(std::move(complete));
    return;
  }
  const PushRequest& request = push->request();
  PushTable::CompletePush complete = {.gradient = request.gradient,
                                      .data = push->Take(),
                                      .waiting = {.read_values = request.read_values,
                                                  .speculative = push->MaySendEarly(),
                                                  .reply = std::move(reply),
                                                  .work = std::move(work)}};
  PushTable::Added added = pushes_.Add(complete);
  if (added.staged) {
    push->Keep();
    executor_.port()->ReportStaged(request.gradient);
    if (added.was_awaited) executor_.Flush();
  } else if (added.answer.has_value()) {
    executor_.effects().WhenReceived(complete.waiting.Answer(*std::move(added.answer)));
  }
}

void Shard::Read(const std::string& marker, ReadReply reply) {
  Pass("read");
  auto answer = reads_.Read(marker, reply);
  if (!answer.has_value()) return;
  executor_.effects().WhenReceived(Answered<ReadResult>(std::move(reply), *std::move(answer)));
}

void Shard::Write(std::unique_ptr<Accumulator> data, WriteReply done) {
  WriteBetween(std::move(data), /*state=*/false, std::move(done));
}

void Shard::WriteState(std::unique_ptr<Accumulator> state, WriteReply done) {
  WriteBetween(std::move(state), /*state=*/true, std::move(done));
}

void Shard::WriteBetween(std::unique_ptr<Accumulator> data, bool state, WriteReply done) {
  executor_.Run(
      [this, data = std::move(data), state, done = std::move(done)](LogExecutor::Replies& replies) mutable {
        std::vector<optim::VariableStore::Run> runs;
        for (const auto& [begin, end] : data->runs()) runs.push_back({begin, end});
        if (const auto values = data->Take().buffer(); values != nullptr) {
          if (state) {
            store().WriteState(*values);
          } else {
            store().Write(*values, runs);
          }
        }
        const optim::Values written = store().current();
        executor_.effects().OnWrite(written);
        replies.push_back(Answered<int64_t>(std::move(done), written.version));
      });
  executor_.Flush();
}

void Shard::Overwrite(std::shared_ptr<const AlignedBuffer> values) {
  executor_.Run([this, values = std::move(values)](LogExecutor::Replies&) {
    const optim::VariableStore::Run everything = {0, store().size()};
    if (values != nullptr) store().Write(*values, {&everything, 1});
  });
}

void Shard::Capture(absl::AnyInvocable<void(State state)> send) {
  executor_.RunBetweenUpdates(
      [this, send = std::move(send)](LogExecutor::Replies&) mutable { send(Save()); });
  executor_.Flush();
}

Shard::State Shard::Save() {
  State state;
  const optim::Values values = store().current();
  state.facts.set_next_index(executor_.executed() + 1);
  state.facts.set_version(values.version);
  state.facts.set_final_version(final_version_.Get());
  if (const auto rate = store().changed_learning_rate()) state.facts.set_learning_rate(*rate);
  pushes_.Save(state.facts);
  for (const std::string& token : reads_.tokens()) state.facts.add_markers(token);
  state.floats = *tables_.dense().Save(/*beyond_budget=*/true);
  return state;
}

absl::Status Shard::Restore(const v1::ReplicatedShard& facts, std::shared_ptr<const AlignedBuffer> floats) {
  CAIRN_RETURN_IF_ERROR(CheckState(facts));
  TableState dense;
  if (floats != nullptr) dense.push_back(std::move(floats));
  CAIRN_RETURN_IF_ERROR(tables_.dense().CheckState(dense));
  std::vector<std::pair<Gradient, int64_t>> deferred;
  for (const v1::DeferredPush& push : facts.deferred()) {
    CAIRN_ASSIGN_OR_RETURN(const Gradient gradient, FromProto(push.gradient()));
    CAIRN_RETURN_IF_ERROR(executor_.CheckWorker(gradient.key.worker));
    deferred.emplace_back(gradient, push.staleness());
  }
  for (const v1::LedgerEntry& entry : facts.ledger())
    CAIRN_RETURN_IF_ERROR(executor_.CheckWorker(entry.worker()));
  pushes_.Restore(facts, deferred);
  for (const std::string& token : facts.markers()) reads_.KeepNothing(token);
  std::optional<float> rate;
  if (facts.has_learning_rate()) rate = facts.learning_rate();
  executor_.ContinueFrom(facts.next_index(), facts.version(),
                         [this, version = facts.version(), final_version = facts.final_version(), rate,
                          dense = std::move(dense)](LogExecutor::Replies&) mutable {
                           tables_.dense().Restore(version, std::move(dense));
                           if (rate.has_value()) store().SetLearningRate(*rate);
                           final_version_.Set(final_version);
                         });
  return absl::OkStatus();
}

Shard::Load Shard::load() const {
  const PushTable::Load pushes = pushes_.load();
  return {.staged = pushes.staged, .staged_since = pushes.staged_since, .queued = executor_.queued()};
}

std::vector<std::string> Shard::slot_names() const {
  if (optimizer_ == nullptr) return {};
  const auto names = optimizer_->slot_names();
  return {names.begin(), names.end()};
}

}  // namespace cairn::ps
