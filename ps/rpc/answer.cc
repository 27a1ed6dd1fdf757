#include "ps/rpc/answer.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/core/status.h"
#include "common/net/wire/codec.h"
#include "common/net/wire/row_frame.h"
#include "optim/store/buffer_pool.h"

namespace cairn::ps {
namespace {

constexpr auto kElementBytes = static_cast<int64_t>(sizeof(float));

// The elements of `count` rows from row `first` on.
absl::Span<const float> RowsFrom(const AlignedBuffer& elements, int64_t row_elements, int64_t first,
                                 int64_t count) {
  return elements.span().subspan(static_cast<size_t>(first * row_elements),
                                 static_cast<size_t>(count * row_elements));
}

// The rows of a table, divided into frames.
struct RowFrames {
  net::RowForm form;
  int64_t rows = 0;
  // [frame][float] Each frame but the last has the same size.
  std::shared_ptr<const AlignedBuffer> payload;

  // RESOURCE_EXHAUSTED if there is no room for encoded rows.
  static absl::StatusOr<RowFrames> Of(const std::shared_ptr<const AlignedBuffer>& elements, int64_t rows,
                                      v1::Encoding encoding,
                                      const std::shared_ptr<optim::MemoryBudget>& budget) {
    RowFrames frames = {.form = {.ids = false, .elements = elements->size() / rows, .encoding = encoding},
                        .rows = rows,
                        .payload = elements};
    const net::Codec* const codec = net::CodecOf(encoding);
    if (codec == nullptr) return frames;
    const int64_t most = frames.form.max_rows();
    optim::BufferPool pool(rows / most * frames.form.Floats(most) + frames.form.Floats(rows % most),
                           /*max_idle=*/0, budget);
    const std::shared_ptr<AlignedBuffer> encoded = pool.TryAcquire();
    if (encoded == nullptr) return pool.Refusal("encoded rows");
    float* to = encoded->data();
    for (int64_t first = 0; first < rows; first += most) {
      const int64_t count = std::min(most, rows - first);
      codec->Encode(RowsFrom(*elements, frames.form.elements, first, count), reinterpret_cast<char*>(to));
      to += frames.form.Floats(count);
    }
    frames.payload = encoded;
    return frames;
  }
};

}  // namespace

Answer::Answer(std::shared_ptr<SessionSink> sink, uint64_t request_id,
               std::shared_ptr<const std::monostate> unanswered)
    : sink_(std::move(sink)), unanswered_(std::move(unanswered)) {
  header_.set_request_id(request_id);
}

int64_t Answer::SendElements(const std::shared_ptr<const AlignedBuffer>& data, int64_t begin, int64_t end,
                             int64_t shift) {
  for (int64_t offset = begin; offset < end; offset += net::kMaxPayloadFloats) {
    const int64_t count = std::min(net::kMaxPayloadFloats, end - offset);
    header_.mutable_chunk()->set_offset(shift + offset);
    const absl::Span<const float> chunk(data->data() + offset, static_cast<size_t>(count));
    SendChunk(chunk, data);
  }
  return (end - begin) * kElementBytes;
}

absl::StatusOr<int64_t> Answer::SendValues(const std::shared_ptr<const AlignedBuffer>& values,
                                           v1::Encoding encoding, optim::EncodedValues& encoded) {
  if (encoding == v1::ENCODING_FLOAT32) return SendElements(values, 0, values->size());
  CAIRN_ASSIGN_OR_RETURN(const auto data, encoded.Of(values, encoding));
  return SendEncoded(data, encoding, 0, values->size());
}

absl::StatusOr<int64_t> Answer::SendEarly(const std::shared_ptr<const AlignedBuffer>& values,
                                          v1::Encoding encoding, optim::EncodedValues& encoded, int64_t begin,
                                          int64_t end) {
  early_ = true;
  if (encoding == v1::ENCODING_FLOAT32) return SendElements(values, begin, end);
  CAIRN_ASSIGN_OR_RETURN(const auto data, encoded.OfPiece(values, encoding, begin, end));
  return SendEncoded(data, encoding, begin, end);
}

int64_t Answer::SendTable(int table, absl::Span<const std::shared_ptr<const AlignedBuffer>> state,
                          int64_t begin, int64_t end) {
  header_.mutable_chunk()->set_table(table);
  int64_t shift = 0;
  for (const auto& buffer : state) {
    SendElements(buffer, std::max<int64_t>(begin - shift, 0), std::min(end - shift, buffer->size()), shift);
    shift += buffer->size();
  }
  return (end - begin) * kElementBytes;
}

absl::StatusOr<int64_t> Answer::SendRows(const AnsweredRows& rows, v1::Encoding encoding,
                                         const std::shared_ptr<optim::MemoryBudget>& budget) {
  if (rows.none()) return 0;
  const absl::Span<const WantedRows::OfTable> wanted = rows.wanted->tables();
  std::vector<RowFrames> tables;  // before the first frame is sent, because all of them must have room
  for (size_t i = 0; i < wanted.size(); ++i) {
    CAIRN_ASSIGN_OR_RETURN(
        tables.emplace_back(),
        RowFrames::Of(rows.tables[i].elements, static_cast<int64_t>(wanted[i].ids.size()), encoding, budget));
  }
  int64_t bytes = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const RowFrames& frames = tables[i];
    v1::Rows& header = *header_.mutable_rows();
    header.set_table(static_cast<int>(wanted[i].table));
    header.set_encoding(encoding);
    const float* from = frames.payload->data();
    for (int64_t first = 0; first < frames.rows; first += header.count()) {
      header.set_count(std::min(frames.form.max_rows(), frames.rows - first));
      const absl::Span<const float> payload(from, static_cast<size_t>(frames.form.Floats(header.count())));
      sink_->Send(header_, {&payload, 1}, frames.payload);
      from += payload.size();
      bytes += static_cast<int64_t>(payload.size()) * kElementBytes;
    }
  }
  return bytes;
}

void Answer::SendDone(v1::Done done) {
  *header_.mutable_done() = std::move(done);
  sink_->Send(header_, {}, nullptr);
}

void Answer::SendFailure(const absl::Status& failure) {
  v1::Done done;
  done.set_code(static_cast<int>(failure.code()));
  done.set_message(std::string(failure.message()));
  SendDone(std::move(done));
}

void Answer::SendChunk(absl::Span<const float> chunk, const std::shared_ptr<const AlignedBuffer>& data) {
  if (early_) {
    sink_->SendValues(header_, {&chunk, 1}, data);
  } else {
    sink_->Send(header_, {&chunk, 1}, data);
  }
}

int64_t Answer::SendEncoded(const std::shared_ptr<const AlignedBuffer>& data, v1::Encoding encoding,
                            int64_t begin, int64_t end) {
  int64_t floats = 0;
  header_.mutable_chunk()->set_encoding(encoding);
  for (int64_t offset = begin; offset < end; offset += net::kMaxPayloadFloats) {
    const int64_t count = std::min(net::kMaxPayloadFloats, end - offset);
    header_.mutable_chunk()->set_offset(offset);
    header_.mutable_chunk()->set_count(count);
    const absl::Span<const float> chunk(data->data() + offset / 2,
                                        static_cast<size_t>(net::Codec::Floats(count)));
    SendChunk(chunk, data);
    floats += net::Codec::Floats(count);
  }
  return floats * kElementBytes;
}

}  // namespace cairn::ps
