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

Tables MakeTables(Shard::Options& options, const optim::Optimizer* optimizer) {
  auto dense =
      std::make_unique<DenseTable>(std::move(options.slices), optimizer,
                                   DenseTable::Options{.initial_version = options.initial_version,
                                                       .memory_limit = options.memory_limit,
                                                       .thread_pool = options.thread_pool,
                                                       .speculative_updates = options.speculative_updates,
                                                       .trace = options.trace});
  std::vector<std::unique_ptr<Table>> others;
  if (options.make_tables != nullptr) others = options.make_tables(dense->store().budget());
  return Tables(std::move(dense), std::move(others));
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
  *changed.mutable_groups() = state.groups();
  return FromProto(changed).status();
}

}  // namespace

Shard::Shard(Options options)
    : faults_(options.faults),
      trace_(options.trace),
      optimizer_(std::move(options.optimizer)),
      final_version_(options.final_version),
      tables_(MakeTables(options, optimizer_.get())),
      pushes_(store(), final_version_),
      reads_(store(), final_version_),
      updater_(
          tables_, final_version_,
          {.staleness_aware_learning_rate = options.staleness_aware_learning_rate, .trace = options.trace}),
      executor_({.norms = NormsOf(optimizer_.get()),
                 .initial_version = options.initial_version,
                 .most_workers = options.most_workers,
                 .leader = options.leader,
                 .faults = options.faults,
                 .recorder = UpdateRecorder(options.server, options.metrics, options.trace)},
                {tables_, final_version_, pushes_, reads_, updater_}) {
  if (options.learning_rate.has_value()) store().SetLearningRate(*options.learning_rate);
  store().AssignGroups(std::move(options.group_of_slice));
  CAIRN_CHECK(store().SetGroups(std::move(options.groups)).ok());
  store().SetSkipped(std::move(options.skipped));
  if (options.skip_empty_updates) store().SkipEmptyUpdates();
  if (options.trace != nullptr) options.trace->AtStep(options.initial_version + 1);
}

absl::Status Shard::CheckGroups(absl::Span<const optim::GroupSettings> groups) const {
  return optimizer_ == nullptr ? absl::OkStatus() : optim::CheckGroupSettings(*optimizer_, groups);
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
                                                  .wanted = push->wanted(),
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

void Shard::ReadRows(std::shared_ptr<const WantedRows> wanted, RowsReply reply) {
  Pass("read");
  const auto read = [&]() -> absl::StatusOr<AnsweredRows> {
    const TraceSpan span(trace_, TraceLane::kReadRows, "read rows");
    CAIRN_RETURN_IF_ERROR(failure());
    return ReadWanted(tables_, std::move(wanted));
  };
  executor_.effects().WhenReceived(Answered<AnsweredRows>(std::move(reply), read()));
}

void Shard::Write(std::unique_ptr<Accumulator> data, ReceivedTables tables, WriteReply done) {
  auto states = WrittenStates(std::move(tables));
  if (!states.ok()) {
    done(states.status());
    return;
  }
  executor_.Run([this, data = std::move(data), states = *std::move(states),
                 done = std::move(done)](LogExecutor::Replies& replies) mutable {
    std::vector<optim::VariableStore::Run> runs;
    for (const auto& [begin, end] : data->runs()) runs.push_back({begin, end});
    if (const auto values = data->Take().buffer(); values != nullptr) store().Write(*values, runs);
    RestoreTables(states);
    ReplyWritten(states, std::move(done), replies);
  });
  executor_.Flush();
}

void Shard::WriteState(std::unique_ptr<Accumulator> state, ReceivedTables tables, WriteReply done) {
  auto states = StatesOf(std::move(tables));
  if (!states.ok()) {
    done(states.status());
    return;
  }
  executor_.Run([this, state = std::move(state), states = *std::move(states),
                 done = std::move(done)](LogExecutor::Replies& replies) mutable {
    if (const auto values = state->Take().buffer(); values != nullptr) store().WriteState(*values);
    RestoreTables(states);
    ReplyWritten(states, std::move(done), replies);
  });
  executor_.Flush();
}

void Shard::ReplyWritten(absl::Span<const TableState> tables, WriteReply done,
                         LogExecutor::Replies& replies) {
  const optim::Values written = store().current();
  executor_.effects().OnWrite(written, tables);
  replies.push_back(Answered<int64_t>(std::move(done), written.version));
}

absl::StatusOr<std::vector<TableState>> Shard::StatesOf(ReceivedTables tables) const {
  std::vector<TableState> states(tables_.size() - 1);
  for (size_t i = 0; i < states.size(); ++i) {
    if (i < tables.size() && tables[i] != nullptr) states[i].push_back(std::move(tables[i]));
    CAIRN_RETURN_IF_ERROR(Annotate(tables_[1 + i].CheckState(states[i]), absl::StrCat("table ", 1 + i)));
  }
  return states;
}

absl::StatusOr<std::vector<TableState>> Shard::WrittenStates(ReceivedTables tables) const {
  if (tables.empty()) return std::vector<TableState>();
  return StatesOf(std::move(tables));
}

void Shard::RestoreTables(std::vector<TableState> states) {
  const int64_t version = store().current().version;
  for (size_t i = 0; i < states.size(); ++i) tables_[1 + i].Restore(version, std::move(states[i]));
}

absl::Status Shard::Overwrite(std::shared_ptr<const AlignedBuffer> values, ReceivedTables tables) {
  CAIRN_ASSIGN_OR_RETURN(auto states, WrittenStates(std::move(tables)));
  executor_.Run(
      [this, values = std::move(values), states = std::move(states)](LogExecutor::Replies&) mutable {
        const optim::VariableStore::Run everything = {0, store().size()};
        if (values != nullptr) store().Write(*values, {&everything, 1});
        RestoreTables(std::move(states));
      });
  return absl::OkStatus();
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
  *state.facts.mutable_groups() = ToProto(store().groups());
  *state.facts.mutable_skipped_updates() = ToProto(store().skipped());
  pushes_.Save(state.facts);
  for (const std::string& token : reads_.tokens()) state.facts.add_markers(token);
  state.floats = *tables_.dense().Save(/*beyond_budget=*/true);
  for (size_t table = 1; table < tables_.size(); ++table) {
    state.tables.push_back(*tables_[table].Save(/*beyond_budget=*/true));
  }
  return state;
}

absl::Status Shard::Restore(const v1::ReplicatedShard& facts, std::shared_ptr<const AlignedBuffer> floats,
                            ReceivedTables tables) {
  CAIRN_RETURN_IF_ERROR(CheckState(facts));
  std::vector<optim::GroupSettings> groups = FromProto(facts.groups());
  CAIRN_RETURN_IF_ERROR(CheckGroups(groups));
  CAIRN_ASSIGN_OR_RETURN(optim::SkippedUpdates skipped, FromProto(facts.skipped_updates()));
  TableState dense;
  if (floats != nullptr) dense.push_back(std::move(floats));
  CAIRN_RETURN_IF_ERROR(tables_.dense().CheckState(dense));
  CAIRN_ASSIGN_OR_RETURN(auto states, StatesOf(std::move(tables)));
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
                          groups = std::move(groups), skipped = std::move(skipped), dense = std::move(dense),
                          states = std::move(states)](LogExecutor::Replies&) mutable {
                           tables_.dense().Restore(version, std::move(dense));
                           RestoreTables(std::move(states));
                           if (rate.has_value()) store().SetLearningRate(*rate);
                           CAIRN_CHECK(store().SetGroups(std::move(groups)).ok());
                           store().SetSkipped(std::move(skipped));
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
