// Cuts large payloads into fragments of the size that suits the stream best.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "cairn/v1/session.pb.h"
#include "common/net/data_channel/stream/stream.h"
#include "common/net/wire/frame.h"
#include "common/net/wire/row_frame.h"

namespace cairn::net {

static_assert(kMaxRowFrameFloats <= kFragmentFloats, "only chunks can be cut");

// Sends a frame over a stream. A large payload, which only chunks have, is cut into several smaller chunks,
// unless it is borrowed or mapped. Chunks with a gradient encoding are small and are sent whole. `ranked`:
// chunks that wait are sent in the order of their offsets in the server's arena, which is the order in which
// the next forward pass needs them. `Header` is v1::ClientHeader or v1::ServerHeader.
template <typename Header>
void SendInFragments(DataStream& stream, const Header& header, FloatSpans payload,
                     const std::shared_ptr<const void>& owner, bool ranked) {
  const auto rank = [ranked](const Header& of) {
    return ranked && of.has_chunk() ? std::optional(of.chunk().offset()) : std::nullopt;
  };
  int64_t left = 0;
  for (const auto& run : payload) left += static_cast<int64_t>(run.size());
  const PayloadRoute route = stream.RouteOf(payload);
  const int64_t most = route.fragment_floats;
  if (left <= most) {
    stream.Send(header.SerializeAsString(), payload, owner, route, rank(header));
    return;
  }
  Header fragment_header = header;
  size_t run = 0, at = 0;  // the beginning of the next fragment
  // If the chunk is encoded, each float of the payload contains two elements of 16 bits.
  const bool encoded = header.chunk().encoding() != v1::ENCODING_FLOAT32;
  int64_t count = header.chunk().count();
  while (left > 0) {
    const int64_t floats = std::min(left, most);
    const int64_t elements = encoded ? std::min(floats * 2, count) : floats;
    if (encoded) fragment_header.mutable_chunk()->set_count(elements);
    absl::InlinedVector<absl::Span<const float>, 4> fragment;
    for (auto missing = static_cast<size_t>(floats); missing > 0;) {
      const auto part = payload[run].subspan(at, missing);
      fragment.push_back(part);
      missing -= part.size();
      at += part.size();
      if (at == payload[run].size()) {
        ++run;
        at = 0;
      }
    }
    stream.Send(fragment_header.SerializeAsString(), fragment, owner, route, rank(fragment_header));
    fragment_header.mutable_chunk()->set_offset(fragment_header.chunk().offset() + elements);
    left -= floats;
    count -= elements;
  }
}

}  // namespace cairn::net
