// One server's shard of a job: its tables, and the parts that change and answer them. Knows no gRPC.
//
//   BeginPush ─► chunks ─► FinishPush ─► PushTable ──(round log)──► LogExecutor: Apply  ─► new version, reply
//                                           │                          │               (or at its Release)
//                                           │                          └───────── Refuse ─► reply
//                                           └─ reported to the sequencer
//
//   part         responsibility
//   Tables       the values and their optimizer state
//   PushTable    what has come, and who waits for which decision
//   ReadTable    reads, at once or at a marker of the log
//   LogExecutor  the queue of entries and tasks, and which thread executes them
//   Updater      the updates of all tables, speculative ones too
//
// The effects of the execution leave through an EffectSink (effect_sink.h), for example for a backup. The shard
// itself does not know whether it has a backup, or is one.
//
// Thread-safe. Has no lock of its own: each part guards its data. Locks are taken in the order LogExecutor,
// PushTable; ReadTable is taken alone. Replies are called outside all locks, mostly by the executing thread;
// they must not block.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/replicate.pb.h"
#include "common/core/clock.h"
#include "common/system/fault_points.h"
#include "common/trace/trace.h"
#include "optim/store/variable_store.h"
#include "ps/log/sequencer.h"
#include "ps/shard/effect_sink.h"
#include "ps/shard/final_version.h"
#include "ps/shard/log_executor.h"
#include "ps/shard/open_push.h"
#include "ps/shard/push_table.h"
#include "ps/shard/read_table.h"
#include "ps/shard/updater.h"
#include "ps/table/accumulator.h"
#include "ps/table/table_factory.h"
#include "ps/table/tables.h"
#include "ps/table/wanted_rows.h"

namespace cairn::ps {

using RowsReply = absl::AnyInvocable<void(absl::StatusOr<AnsweredRows>)>;
using WriteReply = absl::AnyInvocable<void(absl::StatusOr<int64_t> version)>;

class Shard final : public LogSink {
 public:
  struct Options {
    std::vector<net::Slice> slices;
    std::unique_ptr<optim::Optimizer> optimizer;  // null: nothing is trained
    int64_t final_version = 0;                    // 0: no end
    // As in Updater::Options.
    bool staleness_aware_learning_rate = false;
    int64_t initial_version = 0;
    // Limit on all values, slots and buffers, in bytes.
    int64_t memory_limit = std::numeric_limits<int64_t>::max();
    // Whether updates are speculative (speculative_update.h). Only for a synchronous job without norms whose
    // rounds take all its workers, if the memory has room for another version and its slots.
    bool speculative_updates = false;
    std::optional<float> learning_rate{};  // set by an earlier config change
    std::vector<int> group_of_slice{};     // VariableStore::AssignGroups()
    std::vector<optim::GroupSettings>
        groups{};                       // VariableStore::SetGroups(); checked by CheckGroupSettings()
    optim::SkippedUpdates skipped{};    // VariableStore::SetSkipped()
    bool skip_empty_updates = false;    // VariableStore::SkipEmptyUpdates()
    ThreadPool* thread_pool = nullptr;  // as in VariableStore
    TableMaker make_tables{};           // called once, at construction; null: only the variables
    // Outlives the shard. Points: "push", "read", and those of LogExecutor.
    FaultPoints* faults = nullptr;
    Metrics* metrics = nullptr;                          // outlives the shard; counts the updates
    TraceRecorder* trace = nullptr;                      // outlives the shard; records each step
    int server = 0;                                      // index of the server that owns the shard
    int leader = 0;                                      // index of the server whose log it executes
    int most_workers = std::numeric_limits<int>::max();  // all worker numbers are below this limit
  };

  explicit Shard(Options options);

  // Sets the port to which staged pushes are reported: from now on the shard has clients. To be called once,
  // before the first push. `port` must live as long as the shard is used.
  void ConnectTo(SequencerPort* port) { executor_.ConnectTo(port); }
  // To be called at most once, before anything is answered. `effects` must live as long as the shard is used.
  void SendEffectsTo(EffectSink* effects) {
    executor_.SendEffectsTo(effects);
    if (SpeculativeUpdate* const speculative = tables_.dense().speculative(); speculative != nullptr) {
      speculative->SendMeansTo(effects);
    }
  }

  // INVALID_ARGUMENT if the optimizer cannot have these settings.
  absl::Status CheckGroups(absl::Span<const optim::GroupSettings> groups) const;

  const Tables& tables() const { return tables_; }
  // The values of the variables.
  optim::VariableStore& store() { return tables_.store(); }
  const optim::VariableStore& store() const { return tables_.store(); }

  // --- Pushes ---
  std::unique_ptr<OpenPush> BeginPush(const PushRequest& request);
  // The reply is INVALID_ARGUMENT if chunks are missing, RESOURCE_EXHAUSTED if too many pushes wait.
  // Otherwise the reply is sent after the decision. It lacks the requested values if the memory has no room
  // for both these values and the next version, and the wanted rows if they cannot be read or if the push has been
  // decided before. `work`, unless null, is called once before an OK reply, by the thread that makes the reply,
  // outside all locks.
  void FinishPush(std::unique_ptr<OpenPush> push, PushReply reply, WorkSource work = nullptr);

  // --- Reads and writes ---
  // As ReadTable::Read(). With a marker, the reply comes when the log has reached it.
  void Read(const std::string& marker, ReadReply reply);
  // The rows as they are now. As ReadWanted().
  void ReadRows(std::shared_ptr<const WantedRows> wanted, RowsReply reply);
  // Overwrites the values for which `data` has elements, between two entries of the log. `done` receives the
  // version at that point. `tables`: empty, or the complete states of the tables beside the variables.
  // INVALID_ARGUMENT, without effect, if a state does not fit its table.
  void Write(std::unique_ptr<Accumulator> data, ReceivedTables tables, WriteReply done);
  // As Write(), with the complete states of all tables; the one of the variables is from the store's
  // state_pool(). INVALID_ARGUMENT, without effect, if a state does not fit its table.
  void WriteState(std::unique_ptr<Accumulator> state, ReceivedTables tables, WriteReply done);

  // --- The log, as in LogExecutor ---
  void Append(const LogEntry& entry) override { executor_.Append(entry); }
  absl::Status AppendWithMean(const LogEntry& entry, std::optional<UpdateMean> mean) {
    return executor_.AppendWithMean(entry, std::move(mean));
  }
  void Flush() override { executor_.Flush(); }
  // Does nothing: a shard and its own sequencer are replaced together.
  void End(const absl::Status&) override {}
  int64_t next_index() const { return executor_.next_index(); }
  std::optional<Sums> UnansweredSums() const { return executor_.UnansweredSums(); }
  void AwaitMissingPushes() { executor_.AwaitMissingPushes(); }
  // The pushes that the log waits for, and the index of the entry that needs them; 0 if none does.
  std::vector<PushKey> Missing() const { return pushes_.missing(); }
  int64_t WaitsAt() const { return executor_.WaitsAt(); }

  // --- The state, for another shard that continues from it ---
  struct State {
    v1::ReplicatedShard facts;
    TableState floats;               // the values, then the slots
    std::vector<TableState> tables;  // [table - 1]
  };
  // Calls send(state) between two updates: the effects from there on continue this state.
  void Capture(absl::AnyInvocable<void(State state)> send);
  // Queues the change for Flush(). `floats` is from the store's state_pool(). INVALID_ARGUMENT, without effect,
  // for a state that does not fit this shard.
  absl::Status Restore(const v1::ReplicatedShard& facts, std::shared_ptr<const AlignedBuffer> floats,
                       ReceivedTables tables = {});
  // As Write(), with all values, queued for Flush(). `values` has the size of the store's values. INVALID_ARGUMENT as
  // there.
  absl::Status Overwrite(std::shared_ptr<const AlignedBuffer> values, ReceivedTables tables = {});

  // Ends the job: every waiting and future request is answered with `failure`. The first failure is kept.
  void Fail(const absl::Status& failure) { executor_.Fail(failure); }
  absl::Status failure() const { return pushes_.failure(); }

  // --- As in PushTable ---
  std::vector<Gradient> StagedGradients() const { return pushes_.StagedGradients(); }
  int64_t duplicates() const { return pushes_.duplicates(); }
  int64_t rejected() const { return pushes_.rejected(); }
  // The backlog: pushes without a decision, and queued entries of the log.
  struct Load {
    int64_t staged = 0;
    std::optional<TimePoint> staged_since{};
    int64_t queued = 0;
  };
  Load load() const;
  // The optimizer's slots, in their order in a complete state.
  std::vector<std::string> slot_names() const;

 private:
  State Save();
  // As StatesOf(); empty if `tables` is.
  absl::StatusOr<std::vector<TableState>> WrittenStates(ReceivedTables tables) const;
  // The states of the tables beside the variables [table - 1]. INVALID_ARGUMENT if one does not fit.
  absl::StatusOr<std::vector<TableState>> StatesOf(ReceivedTables tables) const;
  void RestoreTables(std::vector<TableState> states);
  // Sends the values to the sink, and answers with their version.
  void ReplyWritten(absl::Span<const TableState> tables, WriteReply done, LogExecutor::Replies& replies);
  void Pass(absl::string_view point) const {
    if (faults_ != nullptr) faults_->Pass(point);
  }

  FaultPoints* const faults_;
  TraceRecorder* const trace_;
  const std::unique_ptr<optim::Optimizer> optimizer_;
  // Each of these guards its own data.
  FinalVersion final_version_;
  const Tables tables_;
  PushTable pushes_;
  ReadTable reads_;
  Updater updater_;
  LogExecutor executor_;
};

}  // namespace cairn::ps
