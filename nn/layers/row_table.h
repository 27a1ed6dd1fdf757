// The table of a layer whose rows are always stored by the servers: keras_rs' EmbedReduce, and each table of its
// DistributedEmbedding. Immutable; any thread.
#pragma once

#include <optional>
#include <string>

#include "nn/layer/compile_config.h"

namespace cairn::nn {

struct RowTable {
  std::string combiner;                    // "sum", "mean" or "sqrtn": how an example's rows become one
  std::optional<KerasObject> optimizer{};  // of the rows; absent: that of the job
  std::optional<KerasObject> learning_rate_schedule{};  // of that optimizer
};

}  // namespace cairn::nn
