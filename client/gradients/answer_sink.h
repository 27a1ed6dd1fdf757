// Receives the values and rows in a server's answer to a push: writes them to their place, notes which have
// arrived, and counts their bytes.
//
// Owned by the server's session, which calls it from one thread at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cairn/v1/session.pb.h"
#include "client/gradients/arrivals.h"
#include "client/gradients/wire_metrics.h"
#include "client/transport/server_session.h"

namespace cairn::client {

class AnswerSink final : public ChunkSink {
 public:
  struct Options {
    int server = 0;
    WireMetrics* wire = nullptr;              // may be null
    std::shared_ptr<int64_t> first_values{};  // receives when the first values arrived; may be null
  };
  // `values` writes a chunk; `rows` writes a frame of rows, and counts its bytes. `arrivals` must outlive this object.
  AnswerSink(Arrivals& arrivals, std::unique_ptr<ChunkSink> values, std::unique_ptr<ChunkSink> rows,
             Options options)
      : arrivals_(arrivals),
        values_(std::move(values)),
        rows_(std::move(rows)),
        options_(std::move(options)) {}

  absl::Status Add(const v1::Chunk& chunk, net::Payload payload) override;
  absl::Span<float> DestinationFor(const v1::Chunk& chunk, int64_t count) override;
  absl::Status AddRows(const v1::Rows& rows, net::Payload payload) override;

 private:
  void NoteFirst() const;
  // Counts payload bytes, and what they would be as float32.
  void Count(int64_t bytes, int64_t float32_bytes) const;

  Arrivals& arrivals_;
  const std::unique_ptr<ChunkSink> values_, rows_;
  const Options options_;
};

}  // namespace cairn::client
