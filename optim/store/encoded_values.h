// A version's values in the 16-bit encoding in which they are sent: encoded once for all workers that pull
// them, as a whole or chunk by chunk.
//
// Thread-safe. The returned buffers may outlive this object.
#pragma once

#include <cstdint>
#include <memory>
#include <set>

#include "absl/status/statusor.h"
#include "cairn/v1/session.pb.h"
#include "common/core/mutex.h"
#include "common/memory/aligned_buffer.h"
#include "optim/store/buffer_pool.h"

namespace cairn::optim {

class EncodedValues {
 public:
  // `size`: the number of elements of the values.
  EncodedValues(int64_t size, std::shared_ptr<MemoryBudget> budget);

  // Returns the encoded values; element i is at byte 2 i. `encoding` must be a 16-bit encoding.
  // RESOURCE_EXHAUSTED if there is no room for the encoded values.
  absl::StatusOr<std::shared_ptr<const AlignedBuffer>> Of(const std::shared_ptr<const AlignedBuffer>& values,
                                                          v1::Encoding encoding) ABSL_LOCKS_EXCLUDED(mutex_);
  // As Of(), for values that are not complete yet: only elements [begin, end) of the result are valid. Calls
  // for the same values must always divide them into the same chunks, and `begin` must be even.
  absl::StatusOr<std::shared_ptr<const AlignedBuffer>> OfPiece(
      const std::shared_ptr<const AlignedBuffer>& values, v1::Encoding encoding, int64_t begin, int64_t end)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Makes `kept_` the entry for these values in this encoding. A new entry has no encoded elements yet.
  absl::Status Keep(const std::shared_ptr<const AlignedBuffer>& values, v1::Encoding encoding)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  BufferPool pool_;
  Mutex mutex_;
  // The values and the encoding of the last request. Does not keep the source values alive.
  struct Kept {
    std::weak_ptr<const AlignedBuffer> source{};
    v1::Encoding encoding = v1::ENCODING_FLOAT32;
    std::shared_ptr<AlignedBuffer> encoded{};  // null: no elements have been encoded
    std::set<int64_t> pieces{};                // the first element of each chunk that OfPiece() has encoded
    int64_t elements = 0;                      // the number of encoded elements
  };
  Kept kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::optim
