// The rows of embedding tables that a batch looks up, for a replica that pools them itself: they take the place of the
// inputs that need a gradient (replace_embeddings.h). kernels/bag_pool.h describes bags, positions and unique rows.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/bag_pool.h"

namespace cairn::nn {

// Host memory, borrowed for the call. The same tables and lookups come with every batch of a replica.
struct RowBags {
  struct Table {
    int64_t width = 0;
    absl::Span<const float> rows{};  // [unique rows, width]
  };
  // The pooled rows become an input of the model, whose shape gives the number of bags.
  struct Lookup {
    int input = 0, table = 0;
    kernels::Combiner combiner = kernels::Combiner::kNone;
    absl::Span<const int32_t>
        splits{};  // [bags + 1], from 0; empty without a combiner: a position for each bag
    absl::Span<const int32_t> unique{};  // [positions] the unique row of the table
    absl::Span<const float> weights{};   // [positions]; empty if all weigh 1
  };
  std::vector<Table> tables{};
  std::vector<Lookup> lookups{};
};

}  // namespace cairn::nn
