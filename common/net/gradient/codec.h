// Gradients in far fewer bytes than float32 takes. What the encoding leaves out the sender may keep back and
// add to its next gradient: worker/client/compressed_gradients. Values never travel so.
//
// Each encoding is one class in a file of its own and a row in codec.cc. Pure functions; any thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cairn/v1/session.pb.h"

namespace cairn::net {

// Elements [first, first + count) of a variable, one chunk of it. To read a chunk, `first` may be less by any
// number of whole blocks: Chunk.phase.
struct Cut {
  int64_t first = 0;
  int64_t count = 0;
};

// Which elements of a variable travel, where not all do: those whose magnitude is above the threshold, and
// those at it up to an index.
struct Selection {
  uint32_t threshold = 0;  // the bits of a float without its sign
  int64_t last_tie = -1;
};

class GradientCodec {
 public:
  virtual ~GradientCodec() = default;

  // Elements that share numbers: blocks of so many, counted from the variable's first, however it is cut.
  virtual int64_t block_elements() const = 0;
  // A chunk reaches to the next multiple of it within the variable at most: its payload then has at most 256
  // KiB.
  virtual int64_t chunk_elements() const = 0;
  // Whether what it leaves out is so much that it must be kept back.
  virtual bool wants_feedback() const = 0;

  // The `most` largest by magnitude, of equal ones the first. Zeros are never among them. All where all
  // travel.
  virtual Selection Select(absl::Span<const float> variable, int64_t most) const = 0;
  // What Encode() takes at most when `most` elements of the variable are selected.
  virtual int64_t MostBytes(const Cut& cut, int64_t most) const = 0;
  // Writes a cut of `variable`, all of which is finite; returns the bytes, whole floats. The same bytes on
  // every machine.
  virtual int64_t Encode(absl::Span<const float> variable, const Selection& selection, const Cut& cut,
                         char* to) const = 0;

  // That `payload` is what Encode() may write for such a cut. INVALID_ARGUMENT says what is wrong.
  virtual absl::Status Check(const Cut& cut, absl::Span<const char> payload) const = 0;
  // Elements [skip, skip + to.size()) of a payload that Check() has found right and nobody has changed since.
  virtual void Decode(const Cut& cut, absl::Span<const char> payload, int64_t skip,
                      absl::Span<float> to) const = 0;
};

// Null for encodings that are not of gradients alone.
const GradientCodec* GradientCodecOf(v1::Encoding encoding);

// Rows of codec.cc's table.
const GradientCodec& Int8Codec();    // int8.cc
const GradientCodec& OneBitCodec();  // one_bit.cc
const GradientCodec& TopKCodec();    // top_k.cc

}  // namespace cairn::net
