#include "client/transport/request.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/wire/codec.h"
#include "common/net/wire/received_elements.h"

namespace cairn::client {
namespace {

// Writes `runs`, one after another, to `to` in 16 bits. Returns the memory used.
absl::Span<const float> Encoded(const net::Codec& codec, net::FloatSpans runs, float* to) {
  char* out = reinterpret_cast<char*>(to);
  int64_t count = 0;
  for (const auto& run : runs) {
    codec.Encode(run, out + 2 * count);
    count += static_cast<int64_t>(run.size());
  }
  if (count % 2 != 0) std::memset(out + 2 * count, 0, 2);
  return {to, static_cast<size_t>(net::Codec::Floats(count))};
}

class ExtentsSink final : public ChunkSink {
 public:
  ExtentsSink(absl::Span<const net::Extent> extents, absl::Span<float> buffer)
      : extents_(extents), buffer_(buffer) {}

  absl::Status Add(const v1::Chunk& chunk, net::Payload payload) override {
    const int64_t offset = chunk.offset();
    if (chunk.table() != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a chunk of the state of table ", chunk.table(), ", which was not requested"));
    }
    CAIRN_ASSIGN_OR_RETURN(const auto elements, net::ReceivedElements::Of(chunk, payload));
    if (offset < 0 || offset > std::numeric_limits<int64_t>::max() / 2) {
      return absl::InvalidArgumentError(absl::StrCat("values cannot begin at offset ", offset));
    }
    const int64_t end = offset + elements.count();
    // The destinations of adjacent elements of the arena, up to element `done`.
    absl::InlinedVector<absl::Span<float>, 8> places;
    int64_t begun = offset, done = offset;
    for (auto extent = FirstBehind(offset); extent != extents_.end() && extent->server_offset < end;
         ++extent) {
      const int64_t first = std::max(offset, extent->server_offset);
      const int64_t last = std::min(end, extent->server_offset + extent->count);
      if (last <= first) continue;
      if (first != done) {
        CAIRN_RETURN_IF_ERROR(elements.Scatter(begun - offset, places));
        places.clear();
        begun = first;
      }
      places.push_back(Place(*extent, first, last - first));
      done = last;
    }
    return elements.Scatter(begun - offset, places);
  }
  absl::Span<float> DestinationFor(const v1::Chunk& chunk, int64_t count) override {
    const int64_t offset = chunk.offset();
    if (chunk.encoding() != v1::ENCODING_FLOAT32 || offset < 0) return {};
    const auto extent = FirstBehind(offset);
    if (extent == extents_.end() || extent->server_offset > offset ||
        count > extent->server_offset + extent->count - offset) {
      return {};
    }
    return Place(*extent, offset, count);
  }

 private:
  // The first extent that ends after an element of the arena.
  absl::Span<const net::Extent>::const_iterator FirstBehind(int64_t element) const {
    return std::partition_point(extents_.begin(), extents_.end(), [element](const net::Extent& candidate) {
      return candidate.server_offset + candidate.count <= element;
    });
  }
  absl::Span<float> Place(const net::Extent& extent, int64_t element, int64_t count) const {
    return {buffer_.data() + extent.local_offset + (element - extent.server_offset),
            static_cast<size_t>(count)};
  }

  const absl::Span<const net::Extent> extents_;
  const absl::Span<float> buffer_;
};

}  // namespace

void SendExtents(ServerSession& session, uint64_t request_id, absl::Span<const net::Extent> extents,
                 absl::Span<const float> buffer, const Wire& wire) {
  const net::Codec* const codec = net::CodecOf(wire.encoding);
  absl::InlinedVector<absl::Span<const float>, 8> chunk;
  int64_t chunk_offset = 0, chunk_floats = 0;
  const auto flush = [&] {
    if (chunk_floats > 0) {
      v1::Chunk header;
      header.set_offset(chunk_offset);
      if (codec == nullptr) {
        session.SendChunk(request_id, header, chunk);
      } else {
        header.set_encoding(wire.encoding);
        header.set_count(chunk_floats);
        const auto encoded = Encoded(*codec, chunk, wire.room.data() + chunk_offset);
        session.SendChunk(request_id, header, {&encoded, 1});
      }
    }
    chunk.clear();
    chunk_floats = 0;
  };
  for (const net::Extent& extent : extents) {
    int64_t done = 0;
    while (done < extent.count) {
      const int64_t at = extent.server_offset + done;
      if (chunk_floats == net::kMaxPayloadFloats || (chunk_floats > 0 && at != chunk_offset + chunk_floats))
        flush();
      if (chunk_floats == 0) chunk_offset = at;
      const int64_t count = std::min(extent.count - done, net::kMaxPayloadFloats - chunk_floats);
      const auto run =
          buffer.subspan(static_cast<size_t>(extent.local_offset + done), static_cast<size_t>(count));
      if (!chunk.empty() && chunk.back().end() == run.begin()) {
        chunk.back() = {chunk.back().data(), chunk.back().size() + run.size()};
      } else {
        chunk.push_back(run);
      }
      chunk_floats += count;
      done += count;
    }
  }
  flush();
}

void SendTableState(ServerSession& session, uint64_t request_id, TablePlace at,
                    absl::Span<const float> elements) {
  v1::Chunk header;
  header.set_table(at.table);
  while (!elements.empty()) {
    const absl::Span<const float> chunk = elements.subspan(0, static_cast<size_t>(net::kMaxPayloadFloats));
    header.set_offset(at.offset);
    session.SendChunk(request_id, header, {&chunk, 1});
    elements.remove_prefix(chunk.size());
    at.offset += static_cast<int64_t>(chunk.size());
  }
}

std::unique_ptr<ChunkSink> ReceiveInto(absl::Span<const net::Extent> extents, absl::Span<float> buffer) {
  return std::make_unique<ExtentsSink>(extents, buffer);
}

absl::StatusOr<v1::Done> PendingDone::Wait(ServerSession& session, std::chrono::milliseconds timeout) {
  return Wait(session, timeout, StopCheck());
}

absl::StatusOr<v1::Done> PendingDone::Wait(ServerSession& session, std::chrono::milliseconds timeout,
                                           const StopCheck& stopped) {
  const TimePoint deadline = SteadyNow() + timeout;
  while (!WaitUntil(session, std::min(deadline, SteadyNow() + kStopCheckEvery))) {
    if (stopped && stopped()) return absl::CancelledError("stopped");
    if (SteadyNow() >= deadline)
      return absl::DeadlineExceededError(absl::StrCat("no answer within ", timeout.count() / 1000.0, " s"));
  }
  MutexLock lock(mutex_);
  return *result_;
}

bool PendingDone::WaitUntil(ServerSession& session, TimePoint deadline) {
  session.ReceiveUntil(
      [this] {
        MutexLock lock(mutex_);
        return result_.has_value();
      },
      deadline);
  MutexLock lock(mutex_);
  while (!result_.has_value()) {
    if (!changed_.WaitUntil(mutex_, deadline)) return result_.has_value();
  }
  return true;
}

}  // namespace cairn::client
