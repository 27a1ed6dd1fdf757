// The state of the backup of another process' shard: the stream that feeds it, what has arrived on it, and
// whether the backup may be promoted (docs/design/replication.md, Heartbeats and timeouts).
//
// Owned by HostedJob, which has the backup's job. Not thread-safe: guarded by the lock of its owner, which
// passes the time. Calls the sink under that lock.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "cairn/v1/replicate.pb.h"
#include "common/core/clock.h"
#include "common/memory/aligned_buffer.h"
#include "ps/job/active_job.h"

namespace cairn::ps {

// The values that came with an item.
struct ReplicatedFloats {
  std::shared_ptr<const AlignedBuffer> variables{};
  ReceivedTables tables{};
};

// Sends a backup's answers to its primary. Thread-safe; must not block.
class ReplicationSink {
 public:
  virtual ~ReplicationSink() = default;
  virtual void Answer(const v1::ReplicationAck& answer) = 0;
  virtual void Close(absl::Status reason) = 0;
};

class BackupState {
 public:
  // `shard`, `host`: "ps/1", the shard, and "ps/0", the process that has its backup; for messages.
  BackupState(std::string shard, std::string host) : shard_(std::move(shard)), host_(std::move(host)) {}

  // A stream begins: everything has to arrive again. `epoch`: the primary's epoch.
  void Open(std::shared_ptr<ReplicationSink> sink, int64_t epoch, TimePoint now);
  // Forgets everything. Returns the sink of the current stream, or null; the caller closes it.
  std::shared_ptr<ReplicationSink> Reset();
  // Ends the current stream: returns its sink, or null. The backup may still be promoted.
  std::shared_ptr<ReplicationSink> EndStream() { return std::exchange(sink_, nullptr); }
  // The backup is no longer consistent with its primary, and will not be promoted.
  void Spoil() { in_sync_ = false; }

  bool IsFedBy(const ReplicationSink* sink) const { return sink_.get() == sink; }
  bool in_sync() const { return in_sync_; }
  int64_t epoch() const { return epoch_; }
  // Whether a stream is open, and the primary was heard within kSilent.
  bool primary_is_heard(TimePoint now) const;
  // UNAVAILABLE while the primary is alive. ABORTED if the primary may have continued without this backup.
  absl::Status CheckMayPromote(TimePoint now) const;

  // Carries out an item of the stream on the backup's job.
  absl::Status Restore(const v1::ReplicationBody& body, const ReplicatedFloats& floats, ActiveJob& job,
                       TimePoint now);
  // Tells the primary that the item with this number has arrived.
  void Acknowledge(uint64_t number);
  // Sends the primary a heartbeat, if one is due.
  void Beat(TimePoint now);

 private:
  absl::Status BecomeInSync(bool has_sequencer);
  void OnEcho(uint64_t echo);

  const std::string shard_, host_;
  std::shared_ptr<ReplicationSink> sink_;           // null: the stream has ended
  bool has_shard_ = false, has_sequencer_ = false;  // whether these states have arrived
  bool in_sync_ = false;
  int64_t epoch_ = 0;
  uint64_t last_beat_ = 0;
  // Heartbeats that the primary has not echoed: (number, time of sending).
  std::deque<std::pair<uint64_t, TimePoint>> beats_{};
  TimePoint heard_{};  // when the last echoed heartbeat was sent
};

}  // namespace cairn::ps
