// Encodings that make gradients much smaller than float32. The sender may keep what an encoding drops and add
// it to its next gradient (client/compressed_gradients). Values are never encoded in this way.
//
// Each encoding is one class in its own file and one row in codec.cc. Pure functions; any thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cairn/v1/session.pb.h"

namespace cairn::net {

// One chunk of a variable: the elements [first, first + count). For decoding, any number of whole blocks may
// be subtracted from `first` (Chunk.phase).
struct Cut {
  int64_t first = 0;
  int64_t count = 0;
};

// The elements of a variable that are sent, for encodings that do not send all: those with a magnitude above
// `threshold`, and those with exactly this magnitude up to index `last_tie`.
struct Selection {
  uint32_t threshold = 0;  // the bits of a float without its sign
  int64_t last_tie = -1;
};

class GradientCodec {
 public:
  virtual ~GradientCodec() = default;

  // The size of a block: the elements of a block share numbers, such as a scale. Blocks are counted from the
  // first element of the variable.
  virtual int64_t block_elements() const = 0;
  // A chunk must end at or before the next multiple of this number in the variable, so that its payload has
  // at most 256 KiB.
  virtual int64_t chunk_elements() const = 0;
  // Whether the encoding drops so much that the sender must keep the dropped part (error feedback).
  virtual bool wants_feedback() const = 0;

  // Selects the `most` largest elements by magnitude: the first among equal ones, and never a zero. Selects
  // all for encodings that send all elements.
  virtual Selection Select(absl::Span<const float> variable, int64_t most) const = 0;
  // The maximum result of Encode() if `most` elements of the variable are selected.
  virtual int64_t MostBytes(const Cut& cut, int64_t most) const = 0;
  // Encodes a cut of `variable`, whose elements are all finite. Returns the number of bytes, a multiple of 4.
  // The bytes are the same on every machine.
  virtual int64_t Encode(absl::Span<const float> variable, const Selection& selection, const Cut& cut,
                         char* to) const = 0;

  // INVALID_ARGUMENT with the fault if Encode() cannot have written `payload` for such a cut.
  virtual absl::Status Check(const Cut& cut, absl::Span<const char> payload) const = 0;
  // Decodes the elements [skip, skip + to.size()) of a payload that Check() has accepted and that has not
  // changed since.
  virtual void Decode(const Cut& cut, absl::Span<const char> payload, int64_t skip,
                      absl::Span<float> to) const = 0;
};

// Null for encodings that are not only for gradients.
const GradientCodec* GradientCodecOf(v1::Encoding encoding);

// Rows of codec.cc's table.
const GradientCodec& Int8Codec();    // int8.cc
const GradientCodec& OneBitCodec();  // one_bit.cc
const GradientCodec& TopKCodec();    // top_k.cc

}  // namespace cairn::net
