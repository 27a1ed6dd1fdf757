// The frames of the answer to one request of a session.
//
// Refers to neither the session nor the job, so a waiting request keeps neither alive. Made by the session,
// used by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/session.pb.h"
#include "common/memory/aligned_buffer.h"
#include "optim/store/encoded_values.h"
#include "optim/store/memory_budget.h"
#include "ps/rpc/session_sink.h"
#include "ps/table/wanted_rows.h"

namespace cairn::ps {

class Answer {
 public:
  // `unanswered`: counts the answers that a session still owes.
  Answer(std::shared_ptr<SessionSink> sink, uint64_t request_id,
         std::shared_ptr<const std::monostate> unanswered = nullptr);

  // Each of these returns the number of payload bytes.

  // Sends elements [begin, end) of `data` in chunks, with `shift` added to their offsets.
  int64_t SendElements(const std::shared_ptr<const AlignedBuffer>& data, int64_t begin, int64_t end,
                       int64_t shift = 0);
  // Sends all of `values` in chunks, encoded. RESOURCE_EXHAUSTED as EncodedValues.
  absl::StatusOr<int64_t> SendValues(const std::shared_ptr<const AlignedBuffer>& values,
                                     v1::Encoding encoding, optim::EncodedValues& encoded);
  // Sends elements [begin, end) of the values before the answer is due.
  absl::StatusOr<int64_t> SendEarly(const std::shared_ptr<const AlignedBuffer>& values, v1::Encoding encoding,
                                    optim::EncodedValues& encoded, int64_t begin, int64_t end);
  // Sends elements [begin, end) of the state of a table, which may consist of several buffers.
  int64_t SendTable(int table, absl::Span<const std::shared_ptr<const AlignedBuffer>> state, int64_t begin,
                    int64_t end);
  // Sends all rows in frames. RESOURCE_EXHAUSTED, without effect, if `budget` has no room for encoded rows.
  absl::StatusOr<int64_t> SendRows(const AnsweredRows& rows, v1::Encoding encoding,
                                   const std::shared_ptr<optim::MemoryBudget>& budget);

  // The last frame.
  void SendDone(v1::Done done);
  void SendFailure(const absl::Status& failure);

 private:
  void SendChunk(absl::Span<const float> chunk, const std::shared_ptr<const AlignedBuffer>& data);
  // `data` has element i at byte 2 i; `begin` is even.
  int64_t SendEncoded(const std::shared_ptr<const AlignedBuffer>& data, v1::Encoding encoding, int64_t begin,
                      int64_t end);

  std::shared_ptr<SessionSink> sink_;
  std::shared_ptr<const std::monostate> unanswered_;
  v1::ServerHeader header_;
  bool early_ = false;
};

}  // namespace cairn::ps
