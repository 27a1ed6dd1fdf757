// Reads rows of the servers' tables, beside the steps: one request to each server, to all of them at once.
//
// Its streams stay open for the next read. Owned by ServerSteps; used by its thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/gradients/wire_metrics.h"
#include "client/job_setup.h"
#include "client/rows/arriving_rows.h"
#include "client/rows/row_exchange.h"
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

  // Fills `rows`, which name each table at most once. UNAVAILABLE if a stream broke, DEADLINE_EXCEEDED if a server does
  // not answer in time, or the server's error. After an error the streams are closed, and the rows are unspecified.
  absl::Status Read(const LearntJob& job, const RowTables& tables, absl::Span<const RowValues> rows);
  void Drop();

 private:
  struct Stream {
    std::unique_ptr<ServerSession> session{};
    int moves = 0;  // Connection::moves() of the session
  };
  // The keys of one table, and where its rows go.
  struct Part {
    int table = 0;
    std::shared_ptr<const RowPartition> partition{};
  };
  // A request that waits for its answer.
  struct Reading {
    int server = 0;
    std::unique_ptr<PendingDone> done = std::make_unique<PendingDone>();
  };
  ServerSession& SessionOf(int server);
  absl::Status Exchange(const LearntJob& job, v1::Encoding encoding, absl::Span<const Part> parts,
                        ArrivingRows& arriving, std::vector<Reading>& readings);
  absl::Status Begin(const LearntJob& job, v1::Encoding encoding, absl::Span<const Part> parts,
                     ArrivingRows& arriving, Reading& reading);

  Connection& connection_;
  const Duration timeout_;
  WireMetrics* const wire_;
  std::vector<Stream> streams_;  // [server]
};

}  // namespace cairn::client
