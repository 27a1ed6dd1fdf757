// Encodings of 16 bits on the wire in place of float32: half the bytes, with a relative error of at most 2^-8
// (bfloat16) or, from 6e-5 to 65504, 2^-11 (float16). gradient/codec.h has the encodings that are only for
// gradients.
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
#include "common/net/wire/frame.h"

namespace cairn::net {

class Codec {
 public:
  virtual ~Codec() = default;

  // The number of floats that `count` encoded elements occupy, rounded up.
  static int64_t Floats(int64_t count) { return (count + 1) / 2; }

  // Encodes `values` to `to`, 2 bytes each, unaligned.
  virtual void Encode(absl::Span<const float> values, char* to) const = 0;
  // Decodes; `from` may be unaligned.
  virtual void Decode(const char* from, absl::Span<float> values) const = 0;
};

// Null for float32, which needs no codec, and for encodings that are only for gradients.
const Codec* CodecOf(v1::Encoding encoding);
// INVALID_ARGUMENT for an encoding that is not for values, or that this version does not know.
absl::Status CheckEncoding(v1::Encoding encoding);
// The name of an encoding as a flag's value, "bfloat16"; "float32" for unknown numbers.
const char* EncodingName(v1::Encoding encoding);
// The encoding of this name; nullopt for an unknown name.
std::optional<v1::Encoding> EncodingOf(absl::string_view name);

// The number of elements in a chunk that is encoded as float32 or in 16 bits. INVALID_ARGUMENT if the chunk
// and its payload do not agree, if it has no elements, or if it has another encoding.
absl::StatusOr<int64_t> CountElements(const v1::Chunk& chunk, Payload payload);

// Decodes the elements [first, first + to.size()) of a chunk that CountElements() has accepted. Fails as
// BorrowedBytes::Read() does.
absl::Status CopyElements(const v1::Chunk& chunk, Payload payload, int64_t first, absl::Span<float> to);

}  // namespace cairn::net
