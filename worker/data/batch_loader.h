// Prepares batches ahead of the computation, on one thread of its own.
//
// Owned by a trainer. Start() and Next() from one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/core/aligned_buffer.h"
#include "common/core/mutex.h"
#include "common/core/thread.h"
#include "worker/data/dataset.h"
#include "worker/data/sampler.h"

namespace cairn::data {

struct Batch {
  int64_t epoch = 0;
  int64_t index = 0;     // within the epoch
  int64_t examples = 0;  // perhaps 0 in the last batch of an epoch
  AlignedBuffer inputs;  // [batch_size, example_shape], the first `examples` rows are valid
  std::vector<int32_t> labels;  // [examples]
};

class BatchLoader {
 public:
  // `dataset` must outlive the loader. Keeps up to `depth` batches ready (memory: depth + 1 batches).
  BatchLoader(const Dataset& dataset, const SamplerOptions& sampler, int depth = 2);
  ~BatchLoader();

  int64_t batches_per_epoch() const { return batches_per_epoch_; }

  // The batch at `position` of the endless sequence of epochs: epoch position / batches_per_epoch(), batch position %
  // batches_per_epoch(). Calls with consecutive positions are answered from what was prepared; any other
  // position restarts the preparation there. The batch stays valid until the next call.
  const Batch& Next(int64_t position);

 private:
  void Run();
};

}  // namespace cairn::data
