// The effects of the execution of a log that others must know of, in the order of execution.
//
//   LogExecutor ── entry, mean; written values; "may this be revealed?" ──► EffectSink
//
// This is the only way out of the executor: a reply or a report that reveals the state of the shard passes
// through WhenReceived(). With a backup, the sink is a ShardFeed (ps/replication/shard_feed.h); otherwise a
// NoEffects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/memory/aligned_buffer.h"
#include "optim/store/variable_store.h"
#include "ps/log/log_entry.h"
#include "ps/table/speculative_update.h"
#include "ps/table/table.h"

namespace cairn::ps {

// The mean of the gradients of the update to `version`.
struct UpdateMean {
  int64_t version = 0;
  TableMean data{};                 // of the variables
  std::vector<TableMean> others{};  // [table - 1]: of the other tables
  bool sent = false;                // EffectSink::OnMean() has received all of `data`

  const TableMean& of(size_t table) const { return table == 0 ? data : others[table - 1]; }
};

// OnEntry() and OnWrite() are called by the executing thread, outside all locks; OnMean() and WhenReceived() by
// any thread. No call blocks.
class EffectSink : public MeanSink {
 public:
  // `lost` is not OK if it will never be known whether the effects have been received; clients get this error.
  using Callback = absl::AnyInvocable<void(const absl::Status& lost)>;
  // Whether OnEntry() is wanted. If so, the mean of an update is computed into a buffer of its own.
  virtual bool WantsEntries() const = 0;
  bool WantsMeans() const final { return WantsEntries(); }
  // `entry` is about to be executed. `mean`: the mean that this entry is the first to use; otherwise null.
  virtual void OnEntry(const LogEntry& entry, const UpdateMean* mean) = 0;
  // A client has overwritten the values, between two entries, and, unless `tables` is empty, the tables beside the
  // variables, whose states these are.
  virtual void OnWrite(const optim::Values& values, absl::Span<const TableState> tables) = 0;
  // Calls `then` when all effects so far have been received; at once if nothing needs to wait for that.
  virtual void WhenReceived(Callback then) = 0;
};

// Calls `reply` with `answer`, or with the reason why it is lost.
template <typename Result>
EffectSink::Callback Answered(absl::AnyInvocable<void(absl::StatusOr<Result>)> reply,
                              absl::StatusOr<Result> answer) {
  return [reply = std::move(reply), answer = std::move(answer)](const absl::Status& lost) mutable {
    reply(lost.ok() ? std::move(answer) : absl::StatusOr<Result>(lost));
  };
}

// For a shard without a backup.
class NoEffects final : public EffectSink {
 public:
  bool WantsEntries() const override { return false; }
  void OnEntry(const LogEntry&, const UpdateMean*) override {}
  void OnMean(int64_t, const std::shared_ptr<const AlignedBuffer>&, int64_t, int64_t) override {}
  void OnWrite(const optim::Values&, absl::Span<const TableState>) override {}
  void WhenReceived(Callback then) override { then(absl::OkStatus()); }
};

}  // namespace cairn::ps
