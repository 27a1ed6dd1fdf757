// Reads rows of the servers' tables, beside the steps: one request to each server, to all of them at once.
//
//   Read                            waits for the rows
//   Begin ─► Begin... ─► Finish...  several reads are under way; Finish() waits for the oldest one
//
// Its streams stay open for the next read. Where one of them breaks, all are opened again: reads that have begun on the
// old ones fail, and none has a part on old and a part on new ones. Owned by ServerSteps; used by its thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/gradients/wire_metrics.h"
#include "client/job_setup.h"
#include "client/rows/arriving_rows.h"
#include "client/rows/row_exchange.h"
#include "client/rows/row_partition.h"
#include "client/rows/row_tables.h"
#include "client/transport/connection.h"
#include "client/transport/request.h"
#include "client/transport/server_session.h"
#include "common/core/clock.h"

namespace cairn::client {

class RowReads {
 public:
  // `connection` and `wire` (may be null) must outlive this object.
  RowReads(Connection& connection, Duration timeout, WireMetrics* wire)
      : connection_(connection),
        timeout_(timeout),
        wire_(wire),
        streams_(static_cast<size_t>(connection_.num_servers())) {}
  ~RowReads() { Drop(); }

  // Fills `rows`, which name each table at most once. UNAVAILABLE if a stream broke, DEADLINE_EXCEEDED if a server does
  // not answer in time, CANCELLED if the connection is stopped, or the server's error. After an error its streams are
  // closed, other reads that have begun on them fail too, and the rows are unspecified.
  absl::Status Read(const LearntJob& job, const RowTables& tables, absl::Span<const RowValues> rows);
  // Begins a read. `rows` must stay valid until its Finish(), or Drop(). INVALID_ARGUMENT for a key that the table
  // cannot have; other errors are reported by Finish().
  absl::Status Begin(const LearntJob& job, const RowTables& tables, absl::Span<const RowValues> rows);
  // The arguments of the oldest Begin() without a Finish(). There must be one: CHECK.
  std::vector<RowValues> oldest() const;
  // Waits for that read. The errors of Read().
  absl::Status Finish();
  bool any_begun() const { return !begun_.empty(); }
  // Closes the streams, and forgets the reads that have begun.
  void Drop();

 private:
  struct Stream {
    std::unique_ptr<ServerSession> session{};  // null before its first request
    int moves = 0;                             // Connection::moves() of the session
  };
  // A server's part of a read.
  struct Part {
    int server = 0;
    PendingDone done{};
  };
  struct Request {
    uint64_t generation = 0;  // of its streams
    std::vector<RowValues> rows{};
    std::vector<DividedRows> divided{};
    ArrivingRows arriving{};
    std::vector<std::unique_ptr<Part>> parts{};
    absl::Status begun{};  // why the request could not be sent
  };

  absl::StatusOr<std::unique_ptr<Request>> Send(const LearntJob& job, const RowTables& tables,
                                                absl::Span<const RowValues> rows);
  absl::Status SendTo(int server, const LearntJob& job, v1::Encoding encoding, Request& request);
  // Waits for the answers, and closes the streams after an error, so that nothing uses the request any more.
  absl::Status Await(Request& request);
  absl::Status AwaitParts(Request& request);
  bool AnyStreamBroke() const;
  void CloseStreams();

  Connection& connection_;
  const Duration timeout_;
  WireMetrics* const wire_;
  std::deque<std::unique_ptr<Request>> begun_;  // before the streams, which use them
  std::vector<Stream> streams_;                 // [server]
  uint64_t generation_ = 0;                     // counts CloseStreams()
};

}  // namespace cairn::client
