#include "client/gradients/answer_sink.h"

#include <chrono>

#include "common/core/status.h"
#include "common/net/wire/codec.h"
#include "common/trace/trace.h"

namespace cairn::client {

absl::Status AnswerSink::Add(const v1::Chunk& chunk, net::Payload payload) {
  NoteFirst();
  const int64_t bytes = net::PayloadBytes(payload);
  const int64_t elements = net::CodecOf(chunk.encoding()) == nullptr ? bytes / 4 : chunk.count();
  Count(bytes, elements * 4);
  if (!arrivals_.Admit(options_.server, chunk.offset(), elements)) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(values_->Add(chunk, payload));
  arrivals_.Add(options_.server, chunk.offset(), elements);
  return absl::OkStatus();
}

absl::Span<float> AnswerSink::DestinationFor(const v1::Chunk& chunk, int64_t count) {
  NoteFirst();
  const absl::Span<float> place = values_->DestinationFor(chunk, count);
  if (place.empty() || !arrivals_.Admit(options_.server, chunk.offset(), count)) return {};
  return place;
}

absl::Status AnswerSink::AddRows(const v1::Rows& rows, net::Payload payload) {
  return rows_->AddRows(rows, payload);
}

void AnswerSink::Count(int64_t bytes, int64_t float32_bytes) const {
  if (options_.wire == nullptr) return;
  options_.wire->pull_bytes.Add(bytes);
  options_.wire->pull_float32_bytes.Add(float32_bytes);
}

void AnswerSink::NoteFirst() const {
  if (options_.first_values != nullptr && *options_.first_values == 0) {
    *options_.first_values = TraceNanos(std::chrono::steady_clock::now());
  }
}

}  // namespace cairn::client
