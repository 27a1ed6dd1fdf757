// Numbers of 16 bits on the wire, in the place of float32: half the bytes, at a relative error of at most
// 2^-8 (bfloat16) or, from 6e-5 to 65504, 2^-11 (float16). gradient/codec.h has what is for gradients alone.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cairn/v1/session.pb.h"
#include "common/net/frame.h"

namespace cairn::net {

class Codec {
 public:
  virtual ~Codec() = default;

  // What `count` elements take on the wire: whole floats.
  static int64_t Floats(int64_t count) { return (count + 1) / 2; }

  // `to`: 2 bytes for each of `values`, anywhere.
  virtual void Encode(absl::Span<const float> values, char* to) const = 0;
  // The other way; `from` may lie anywhere.
  virtual void Decode(const char* from, absl::Span<float> values) const = 0;
};

// Null for float32, which needs none, and for encodings of gradients alone.
const Codec* CodecOf(v1::Encoding encoding);
// INVALID_ARGUMENT for an encoding that values do not travel in, or that this version does not know.
absl::Status CheckEncoding(v1::Encoding encoding);
// "bfloat16": a flag's value. Of all encodings; "float32" for numbers that are none.
const char* EncodingName(v1::Encoding encoding);
// The other way; none for another name.
std::optional<v1::Encoding> EncodingOf(absl::string_view name);

// How many elements a chunk brings in float32 or 16 bits. INVALID_ARGUMENT when it and its payload do not
// agree, it has none, or another encoding.
absl::StatusOr<int64_t> CountElements(const v1::Chunk& chunk, Payload payload);

// Elements [first, first + to.size()) of a chunk that CountElements() has found whole. Fails as
// LentBytes::Read().
absl::Status CopyElements(const v1::Chunk& chunk, Payload payload, int64_t first, absl::Span<float> to);

}  // namespace cairn::net
