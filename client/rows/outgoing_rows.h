// The rows of one step's pushes on their way to the servers: gradients of rows, and the keys of the rows that the
// answers shall contain. Keeps both until the step ends, because a push may have to be sent again.
//
// The keys of gradients are not sent if they are the keys that the previous step wanted, as they are in training
// with a loader that looks one batch ahead: the stream's server still knows them (v1::Rows.known).
//
// Owned by StepPushes, whose lock guards every call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/gradients/wire_metrics.h"
#include "client/rows/arriving_rows.h"
#include "client/rows/row_exchange.h"
#include "client/rows/row_partition.h"
#include "client/rows/row_tables.h"
#include "client/transport/server_session.h"
#include "common/memory/aligned_buffer.h"

namespace cairn::client {

class OutgoingRows {
 public:
  // `tables` and `metrics` (may be null) must outlive this object.
  OutgoingRows(const RowTables& tables, WireMetrics* metrics)
      : tables_(tables), metrics_(metrics), servers_(static_cast<size_t>(tables.servers())) {}

  // Forgets the previous step, except for the keys that it wanted.
  void BeginStep();
  // The push to this server goes over a new stream, whose server knows no keys.
  void OnNewStream(int server) { state(server).knows_keys = false; }
  // A push to this server begins: none of its rows has been sent.
  void BeginPush(int server);
  // As in RowExchange. `arriving` expects the wanted rows.
  absl::Status Push(absl::Span<const RowGradients> gradients);
  absl::Status Want(absl::Span<const RowValues> rows, ArrivingRows& arriving);
  // Sends what has not been sent to this server. Returns the number of payload bytes.
  int64_t Send(int server, ServerSession& session, uint64_t request_id);
  // All servers have answered. `with_rows`: with the wanted rows, so that their servers know the keys.
  void EndStep(bool with_rows) { answered_ = with_rows; }

  // The arguments of Want() in this step.
  absl::Span<const RowValues> wanted() const { return wanted_rows_; }

 private:
  struct Pushed {
    DividedRows rows{};
    bool known = false;  // the previous step wanted these keys
    // [server] The elements as they are sent, one frame after another.
    std::vector<absl::Span<const float>> elements{};
  };
  struct State {
    bool knows_keys = false;  // those of previous_
    size_t sent_pushed = 0, sent_wanted = 0;
  };
  State& state(int server) { return servers_[static_cast<size_t>(server)]; }

  // The partition of the keys is taken from the previous step if it wanted them.
  absl::StatusOr<Pushed> Divide(const RowGradients& gradients) const;
  // The most rows in a frame of gradients.
  int64_t RowsInFrame(int table) const;
  // The gradients of a server as they are sent: gathered and encoded, or those of the caller.
  absl::Span<const float> Pack(const Pushed& pushed, absl::Span<const float> gradients, int server);
  absl::Span<float> NextBuffer(int64_t floats);
  int64_t SendGradients(const Pushed& pushed, int server, ServerSession& session, uint64_t request_id);

  const RowTables& tables_;
  WireMetrics* const metrics_;  // may be null
  std::vector<Pushed> pushed_;
  std::vector<DividedRows> wanted_, previous_;  // of this step and of the previous one
  std::vector<RowValues> wanted_rows_;
  std::vector<State> servers_;  // [server]
  bool answered_ = false;
  // Memory of Pushed::elements, reused by every step.
  std::vector<AlignedBuffer> buffers_;
  size_t buffers_used_ = 0;
};

// Sends frames of keys only; returns the number of payload bytes. The memory of the keys must stay unchanged as
// FrameStream::Send() requires.
int64_t SendKeys(ServerSession& session, uint64_t request_id, const v1::Rows& header,
                 absl::Span<const int64_t> keys);

}  // namespace cairn::client
