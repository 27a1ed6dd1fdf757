// Assembles the frames of one stream of Replicate (replicate.proto) into items, on the backup's server; and
// splits an item into frames, on the primary's.
//
// Owned by the transport for the lifetime of the stream. OnFrame() is called by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "cairn/v1/replicate.pb.h"
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
  // feeds the backup.
  absl::Status OnFrame(const v1::ReplicationHeader& header, net::Payload payload);

 private:
  absl::Status Take(const v1::ReplicationHeader& header, net::Payload payload);
  // A run of values of a table beside the variables.
  absl::Status AddToTable(const v1::ReplicationFloats& floats, net::Payload payload);
  absl::Status OnItem(const v1::ReplicationItem& item);

  HostedJob& hosted_;
  const std::shared_ptr<ReplicationSink> sink_;
  std::shared_ptr<ActiveJob> job_;  // set when the origin has arrived
  // The item that is being received.
  std::string text_;
  std::unique_ptr<Accumulator> floats_;
  std::vector<std::unique_ptr<ReceivedState>> tables_;  // [table - 1]; null: nothing has come
};

// Calls send(header, payload, owner) for each frame of an item, in order. `owner` owns the payload.
void SplitIntoFrames(uint64_t number, const ReplicationItem& item,
                     absl::FunctionRef<void(const v1::ReplicationHeader&, net::FloatSpans payload,
                                            const std::shared_ptr<const void>& owner)>
                         send);

}  // namespace cairn::ps
