// One client's stream of frames (session.proto), over any transport.
//
// Owned by the transport for the lifetime of the stream; incomplete requests are discarded with it. Frames
// are received by one thread at a time. Answers go to the sink from any thread, even after the session is gone:
// they refer to the sink only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/session.pb.h"
#include "common/net/wire/frame.h"
#include "common/trace/trace.h"
#include "ps/job/server.h"
#include "ps/rpc/permissions.h"
#include "ps/rpc/session_sink.h"
#include "ps/rpc/table_transfer.h"
#include "ps/table/wanted_rows.h"

namespace cairn::ps {

class Session {
 public:
  // Limits on requests whose chunks are arriving, and on requests that wait for their answer. A client that
  // exceeds them breaks the protocol.
  static constexpr size_t kMaxOpen = 4;
  static constexpr long kMaxUnanswered = 16;

  // `server` must outlive the session and its answers. `permissions` are the client's.
  Session(Server& server, std::shared_ptr<SessionSink> sink, Permissions permissions = {})
      : server_(server), sink_(std::move(sink)), permissions_(std::move(permissions)) {}
  ~Session();

  // Each frame is one call of BeginFrame(), then one of CompleteFrame(), unless the stream ends in between.
  // INVALID_ARGUMENT or RESOURCE_EXHAUSTED from either if the frame breaks the protocol: the stream must end.
  // If only the request fails, the client gets the error in the request's `done`.
  //
  // `header` must be valid until the end of the second call. `bytes`: the size of the payload, if the
  // transport can receive it in any memory, else 0. Returns the memory in which to receive those bytes;
  // empty: any memory.
  absl::StatusOr<absl::Span<char>> BeginFrame(const v1::ClientHeader& header, size_t bytes);
  absl::Status CompleteFrame(net::Payload payload);
  // A whole frame.
  absl::Status OnFrame(const v1::ClientHeader& header, net::Payload payload);
  // Whether a request waits for its answer. Called from the thread that receives.
  bool owes_answer() const { return unanswered_.use_count() > 1; }

 private:
  // A request whose chunks or rows are arriving.
  struct Open {
    std::shared_ptr<ActiveJob> job;
    // One of them, or none for a read of rows, unless the request has failed.
    std::unique_ptr<OpenPush> push;
    std::unique_ptr<Accumulator> write;
    // The rows that the answer shall contain; null: none so far.
    std::shared_ptr<WantedRows> wanted;
    // There is no memory for the ids of rows that a push wants: its answer has none.
    bool leaves_rows_out = false;
    // Those of the previous push on this stream, whose ids gradients may refer to. May be null.
    std::shared_ptr<const WantedRows> known;
    std::shared_ptr<WrittenTables> tables;                // of a write; null: it has none
    int worker = 0;                                       // the worker that pushes
    v1::Encoding values_encoding = v1::ENCODING_FLOAT32;  // the encoding of the answer's values and rows
    TraceEvent received{};                                // not recorded if its name is empty
    bool initialise = false;
    bool state = false;    // the write contains values and slots
    bool partial = false;  // the write is a part of the states of tables
    absl::Status failure;  // not OK: the rest of the request is skipped
  };

  void BeginPush(uint64_t request_id, const v1::PushBegin& begin);
  void BeginWrite(uint64_t request_id, const v1::WriteBegin& begin);
  void Read(uint64_t request_id, const v1::ReadBegin& begin);
  void BeginRowRead(uint64_t request_id, const v1::RowReadBegin& begin);
  // A frame with a payload. If it is refused, the request fails.
  void AddPayload(Open& open, const v1::ClientHeader& header, net::Payload payload);
  static absl::Status AddChunk(Open& open, const v1::Chunk& chunk, net::Payload payload);
  static absl::Status AddRows(Open& open, const v1::Rows& rows, net::Payload payload);
  static absl::Status AddRowGradients(Open& open, const v1::Rows& rows, net::Payload payload);
  void End(uint64_t request_id, Open open);
  void FinishWrite(uint64_t request_id, Open open);
  void FinishRowRead(uint64_t request_id, Open open);

  // The member that pushes on this stream. After several pushes, the end of the stream suggests the end of
  // its process.
  struct Pusher {
    int worker = 0;
    uint64_t incarnation = 0;
    int pushes = 0;
  };
  void NotePusher(const v1::PushBegin& begin);

  Server& server_;
  const std::shared_ptr<SessionSink> sink_;
  const Permissions permissions_;
  Pusher pusher_;
  std::map<uint64_t, Open> open_;                  // [request_id]
  std::shared_ptr<const WantedRows> known_rows_;   // of the last complete push; null: none
  std::shared_ptr<WrittenTables> written_tables_;  // of partial writes; null: none
  // Shared with a read that waits for its marker.
  const std::shared_ptr<KeptTables> kept_tables_ = std::make_shared<KeptTables>();
  // The frame that is being received, and the request of a chunk.
  const v1::ClientHeader* frame_ = nullptr;
  Open* frame_request_ = nullptr;
  // Every pending answer holds a copy, so use_count() - 1 is the number of pending answers.
  const std::shared_ptr<const std::monostate> unanswered_ = std::make_shared<const std::monostate>();
};

}  // namespace cairn::ps
