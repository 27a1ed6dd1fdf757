// Reads of a shard's values: at once, or at a marker of the log. Readers are admitted only while the memory
// has room for the next version.
//
// Owned by a Shard. Thread-safe: sessions read, and the executor of the log reaches the markers. Replies are
// never called here. With its own lock held it takes only that of the VariableStore.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/core/mutex.h"
#include "optim/store/variable_store.h"
#include "ps/log/log_entry.h"
#include "ps/log/marker_table.h"
#include "ps/shard/final_version.h"

namespace cairn::ps {

class ReadTable {
 public:
  // Both must outlive the table.
  ReadTable(const optim::VariableStore& store, const FinalVersion& final_version)
      : store_(store), final_version_(final_version) {}

  // The current values, or those at `marker` unless it is empty. nullopt: the log has not reached the marker,
  // and `reply` is stored until it has. UNAVAILABLE: the values of that marker have been dropped.
  // RESOURCE_EXHAUSTED, with the numbers: the memory has no room for a reader, or too many readers wait.
  std::optional<absl::StatusOr<ReadResult>> Read(const std::string& marker, ReadReply& reply)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // A read at this point of the log. RESOURCE_EXHAUSTED as Read().
  absl::StatusOr<ReadResult> Current() const;
  // The log is about to reach `marker`: drops older values, to make room.
  void Prepare(const Marker& marker) ABSL_LOCKS_EXCLUDED(mutex_);
  // The log has reached `marker`, where a read gives `result`. Returns the readers that wait for it; if there
  // are none, stores `result`.
  std::vector<ReadReply> Reach(const Marker& marker, const absl::StatusOr<ReadResult>& result)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Drops the values of markers that no reader has fetched, oldest first, until there is room for the next
  // version.
  void MakeRoom() ABSL_LOCKS_EXCLUDED(mutex_);

  // As MarkerTable::KeepNothing() and tokens().
  void KeepNothing(const std::string& token) ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<std::string> tokens() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Every later read gets `failure`. Returns the readers that wait.
  std::vector<ReadReply> Close(const absl::Status& failure) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void DropUntilRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    markers_.DropUntil([this] { return store_.CheckRoomForReader(); });
  }

  const optim::VariableStore& store_;
  const FinalVersion& final_version_;

  mutable Mutex mutex_;
  MarkerTable markers_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::ps
