// The first values of a table's rows.
//
// A value depends only on (seed, table, key, column): not on the order in which rows are made, on the server, the
// thread, the time or the processor. Created once per table, constant after construction, used by any thread.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "embedding/initializers/row_distribution.h"
#include "optim/simd/isa.h"

namespace cairn::embedding {

class RowInitializer {
 public:
  // `table` is the table's name. Results do not depend on `isa`: only tests pass it.
  RowInitializer(const RowDistribution& distribution, uint64_t seed, absl::string_view table,
                 optim::Isa isa = optim::WidestIsa());

  // Sets `row` to the columns 0, 1, ... of `key`. Does not block or allocate.
  //
  // Columns 2i and 2i + 1 come from the lower and the upper half of the i-th number of SplitMix64 (key_hash.h), which
  // starts at a hash of the key. A normal value is the inverse of the cumulative distribution function (Wichura,
  // algorithm AS 241, PPND7, 1988) in float, with a relative error below 1e-5, and without the C library, whose
  // versions differ. A truncated one is the same function over the part of (0, 1) that is within two standard
  // deviations; values are never drawn again.
  void Fill(int64_t key, absl::Span<float> row) const;

 private:
  RowDistribution::Kind kind_;
  float center_;
  float spread_;
  uint64_t salt_;  // from the seed and the table's name
  optim::Isa isa_;
};

}  // namespace cairn::embedding
