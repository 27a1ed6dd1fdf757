// Assembles the frames of one replication stream (replicate.proto) into items, on the backup's server; and
// puts items into frames, on the primary's.
//
// Owned by the transport for the lifetime of the stream. Frames are received by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/replicate.pb.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/wire/frame.h"
#include "ps/job/hosted_job.h"
#include "ps/table/accumulator.h"
#include "ps/table/received_state.h"

namespace cairn::ps {

class BackupSession {
 public:
  // `hosted` must outlive the session.
  BackupSession(HostedJob& hosted, std::shared_ptr<ReplicationSink> sink)
      : hosted_(hosted), sink_(std::move(sink)) {}
  ~BackupSession() { hosted_.BackupClosed(sink_.get()); }

  // An error ends the stream. ABORTED: this server has been promoted in place of the sender.
  // FAILED_PRECONDITION: this server has no backup of the sender's shard. CANCELLED: this stream no longer
  // feeds the backup. UNAVAILABLE: the payload was in the memory of the sender, which is gone; the backup may
  // be promoted.
  absl::Status OnFrame(const v1::ReplicationHeader& header, net::Payload payload);
  // The memory in which to receive the payload of the next frame, `bytes` bytes, to save a copy; empty: any
  // memory.
  absl::Span<char> DestinationFor(const v1::ReplicationHeader& header, size_t bytes);

 private:
  absl::Status Take(const v1::ReplicationHeader& header, net::Payload payload);
  absl::Status TakeText(const std::string& text);
  absl::Status TakeFloats(const v1::ReplicationFloats& floats, net::Payload payload);
  // A run of values of a table beside the variables.
  absl::Status AddToTable(const v1::ReplicationFloats& floats, net::Payload payload);
  // `acknowledged`: the item is the last of its frame.
  absl::Status OnItem(const v1::ReplicationItem& item, bool acknowledged);
  // The values that these belong to; `floats` is not of another table.
  Accumulator& FloatsOf(const v1::ReplicationFloats& floats);
  // The mean of the entry, which has come in runs.
  absl::StatusOr<std::shared_ptr<const AlignedBuffer>> TakeSentMean(const v1::ReplicatedEntry& entry);

  HostedJob& hosted_;
  const std::shared_ptr<ReplicationSink> sink_;
  std::shared_ptr<ActiveJob> job_;  // set when the origin has arrived
  // The item that is being received.
  std::string text_;
  std::unique_ptr<Accumulator> floats_;
  std::vector<std::unique_ptr<ReceivedState>> tables_;  // [table - 1]; null: nothing has come
  // The mean of an update whose entry may follow.
  struct SentMean {
    int64_t version = 0;
    std::unique_ptr<Accumulator> runs{};  // null: nothing has come
  };
  SentMean sent_mean_;
  bool sender_is_gone_ = false;  // a payload could not be read
};

// Receives a frame: its header, and its payload, one run of at most net::kMaxPayloadFloats in the memory of
// `owner`.
using SendFrame = absl::FunctionRef<void(const v1::ReplicationHeader& header, absl::Span<const float> payload,
                                         const std::shared_ptr<const void>& owner)>;
// Calls `send` for each frame of the items, in order.
void PutIntoFrames(absl::Span<const NumberedItem> items, SendFrame send);

}  // namespace cairn::ps
