// The states of tables that move over one stream in pieces: in partial writes of a client, and in its reads of a
// snapshot.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/session.pb.h"
#include "common/core/mutex.h"
#include "common/net/wire/frame.h"
#include "ps/job/active_job.h"
#include "ps/rpc/answer.h"
#include "ps/table/received_state.h"
#include "ps/table/table.h"

namespace cairn::ps {

// The states that the writes of a stream for one layout bring. One thread.
class WrittenTables {
 public:
  // The states that `begin` adds to: those of `before`, from earlier writes of the stream, unless it is null or of
  // another layout. INVALID_ARGUMENT if the states have other sizes than in earlier writes.
  static absl::StatusOr<std::shared_ptr<WrittenTables>> For(const v1::WriteBegin& begin, ActiveJob& job,
                                                            std::shared_ptr<WrittenTables> before);

  // INVALID_ARGUMENT for a chunk of a table that is not written, as all are if `tables` is null; as
  // ReceivedState::Add().
  friend absl::Status AddTo(WrittenTables* tables, const v1::Chunk& chunk, net::Payload payload);
  // The states, to be called once. INVALID_ARGUMENT if one is not complete.
  absl::StatusOr<ReceivedTables> Take();

 private:
  WrittenTables() = default;

  uint64_t layout_ = 0;
  std::vector<std::unique_ptr<ReceivedState>> states_;  // [table - 1]
};

// The states at the marker of a snapshot, which the stream reads afterwards. Thread-safe.
class KeptTables {
 public:
  // Keeps the states [table - 1], and sets their sizes in `done`.
  void Keep(std::vector<TableState> states, v1::Done& done) ABSL_LOCKS_EXCLUDED(mutex_);
  // Answers a read of a piece. Returns the number of payload bytes.
  int64_t Read(const v1::ReadBegin& begin, Answer answer) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Mutex mutex_;
  std::vector<TableState> states_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::ps
