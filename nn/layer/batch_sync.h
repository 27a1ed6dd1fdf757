// The other parts of a batch that is divided among devices and workers, for an op that normalizes by the whole batch
// (Layer::synchronizes_batch()). One object for each part; one thread at a time.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace cairn::nn {

class BatchSync {
 public:
  virtual ~BatchSync() = default;
  // Replaces each value by its mean over the parts that have examples, each weighted by its number of examples. All of
  // them make the same calls in the order of their ops. Blocks until they have. ABORTED if one of them has failed.
  virtual absl::Status Mean(absl::Span<double> values) = 0;
};

}  // namespace cairn::nn
