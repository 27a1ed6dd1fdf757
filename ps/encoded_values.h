// A version's values in the encoding in which they travel: made once, for however many workers pull them.
//
// Thread-safe. What it hands out may outlive it.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "cairn/v1/session.pb.h"
#include "common/core/aligned_buffer.h"
#include "common/core/mutex.h"
#include "ps/buffer_pool.h"

namespace cairn::ps {

class EncodedValues {
 public:
  // Of values of `size` elements.
  EncodedValues(int64_t size, std::shared_ptr<MemoryBudget> budget);

  // Element i at byte 2 i. `encoding` is one of 16 bits. RESOURCE_EXHAUSTED when there is no room for them.
  absl::StatusOr<std::shared_ptr<const AlignedBuffer>> Of(const std::shared_ptr<const AlignedBuffer>& values,
                                                          v1::Encoding encoding) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  BufferPool pool_;
  Mutex mutex_;
  // What was asked for last. It does not keep the values.
  std::weak_ptr<const AlignedBuffer> source_ ABSL_GUARDED_BY(mutex_);
  v1::Encoding encoding_ ABSL_GUARDED_BY(mutex_) = v1::ENCODING_FLOAT32;
  std::shared_ptr<const AlignedBuffer> encoded_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::ps
