#include "worker/client/request.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"

namespace cairn::client {
namespace {

// Copies `count` floats from byte `begin` of the payload's runs on.
void CopyFrom(net::Payload payload, size_t begin, size_t bytes, char* to) {
  for (const auto& run : payload) {
    if (begin >= run.size()) {
      begin -= run.size();
      continue;
    }
    const size_t part = std::min(bytes, run.size() - begin);
    std::memcpy(to, run.data() + begin, part);
    to += part;
    bytes -= part;
    begin = 0;
    if (bytes == 0) return;
  }
}

}  // namespace

void SendExtents(ServerSession& session, uint64_t request_id, absl::Span<const net::Extent> extents,
                 absl::Span<const float> buffer) {
  absl::InlinedVector<absl::Span<const float>, 8> chunk;
  int64_t chunk_offset = 0, chunk_floats = 0;
  const auto flush = [&] {
    if (chunk_floats > 0) session.SendChunk(request_id, chunk_offset, chunk);
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
      chunk.push_back(
          buffer.subspan(static_cast<size_t>(extent.local_offset + done), static_cast<size_t>(count)));
      chunk_floats += count;
      done += count;
    }
  }
  flush();
}

ServerSession::OnChunk ReceiveInto(absl::Span<const net::Extent> extents, absl::Span<float> buffer) {
  return [extents, buffer](int64_t offset, net::Payload payload) -> absl::Status {
    const int64_t bytes = net::PayloadBytes(payload);
    if (bytes % static_cast<int64_t>(sizeof(float)) != 0) {
      return absl::InvalidArgumentError(absl::StrCat("values of ", bytes, " bytes are no run of floats"));
    }
    if (offset < 0 || offset > std::numeric_limits<int64_t>::max() / 2) {
      return absl::InvalidArgumentError(absl::StrCat("values at element ", offset));
    }
    const int64_t end = offset + bytes / static_cast<int64_t>(sizeof(float));
    // The first extent that ends behind the chunk's begin.
    auto extent =
        std::partition_point(extents.begin(), extents.end(), [offset](const net::Extent& candidate) {
          return candidate.server_offset + candidate.count <= offset;
        });
    for (; extent != extents.end() && extent->server_offset < end; ++extent) {
      const int64_t first = std::max(offset, extent->server_offset);
      const int64_t last = std::min(end, extent->server_offset + extent->count);
      if (last <= first) continue;
      float* const to = buffer.data() + extent->local_offset + (first - extent->server_offset);
      CopyFrom(payload, static_cast<size_t>(first - offset) * sizeof(float),
               static_cast<size_t>(last - first) * sizeof(float), reinterpret_cast<char*>(to));
    }
    return absl::OkStatus();
  };
}

absl::StatusOr<v1::Done> PendingDone::Wait(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(mutex_);
  while (!result_.has_value()) {
    if (!changed_.WaitUntil(mutex_, deadline) && !result_.has_value()) {
      return absl::DeadlineExceededError(absl::StrCat("no answer within ", timeout.count() / 1000.0, " s"));
    }
  }
  return *result_;
}

}  // namespace cairn::client
