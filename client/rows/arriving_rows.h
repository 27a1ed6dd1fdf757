// Rows on their way from the servers to the caller's memory: in answers to reads, or to the pushes of a step.
//
// Thread-safe: a caller expects rows, and the threads of the streams add them, at most one thread for each
// server. Elements are copied outside the lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cairn/v1/session.pb.h"
#include "client/gradients/wire_metrics.h"
#include "client/rows/row_exchange.h"
#include "client/rows/row_partition.h"
#include "client/rows/row_tables.h"
#include "client/transport/server_session.h"
#include "common/core/mutex.h"
#include "common/net/wire/frame.h"

namespace cairn::client {

class ArrivingRows {
 public:
  // Nothing is expected any more.
  void Clear() ABSL_LOCKS_EXCLUDED(mutex_);
  // Divides the keys of `rows` among the servers, and expects the rows in the memory of `rows`, which must stay valid
  // until Clear(), or until no stream of the request exists. INVALID_ARGUMENT, without effect, for a key that the
  // table cannot have.
  absl::StatusOr<std::vector<DividedRows>> Expect(const RowTables& tables, absl::Span<const RowValues> rows)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Expect(const DividedRows& divided, absl::Span<float> rows) ABSL_LOCKS_EXCLUDED(mutex_);
  // The server will send its answer from the beginning.
  void Restart(int server) ABSL_LOCKS_EXCLUDED(mutex_);

  // A frame of a server's answer. INTERNAL for rows that are not expected; INVALID_ARGUMENT for a malformed frame.
  absl::Status Add(int server, const v1::Rows& rows, net::Payload payload) ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether all rows have come from all `servers`. To be called when their answers have ended well.
  bool complete(int servers) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Expected {
    int table = 0;
    std::shared_ptr<const RowPartition> partition;
    absl::Span<float> rows;
    std::vector<size_t> come{};  // [server] the number of rows; a shorter vector: 0 for the others
  };
  // Where the rows of a frame go.
  struct Place {
    std::shared_ptr<const RowPartition> partition;
    absl::Span<float> rows;
    size_t row_elements = 0;
    size_t first = 0;  // of the server's rows
  };
  absl::StatusOr<Place> PlaceOf(int server, const v1::Rows& rows) ABSL_LOCKS_EXCLUDED(mutex_);
  Expected* Find(int table) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::vector<Expected> expected_ ABSL_GUARDED_BY(mutex_);
};

// Receives the rows in the answer of one server, and counts their bytes.
class RowSink final : public ChunkSink {
 public:
  // `rows` and `wire` (may be null) must outlive this object.
  RowSink(ArrivingRows& rows, int server, WireMetrics* wire) : rows_(rows), server_(server), wire_(wire) {}

  absl::Status Add(const v1::Chunk& chunk, net::Payload payload) override;
  absl::Status AddRows(const v1::Rows& rows, net::Payload payload) override;

 private:
  ArrivingRows& rows_;
  const int server_;
  WireMetrics* const wire_;
};

}  // namespace cairn::client
