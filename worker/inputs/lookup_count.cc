#include "worker/inputs/lookup_count.h"

#include <cstddef>

#include "absl/container/flat_hash_set.h"
#include "common/core/status.h"
#include "data/batch_loader.h"
#include "nn/batch.h"
#include "worker/embedding/batch_lookup.h"

namespace cairn::worker {

absl::StatusOr<LookupCounts> CountLookups(const data::Dataset& dataset, const data::SamplerOptions& sampler,
                                          const TablePlan& plan, int64_t max_ids) {
  LookupCounts counts = {.tables = std::vector<LookupCount>(plan.tables.size())};
  std::vector<absl::flat_hash_set<int64_t>> seen(plan.tables.size());
  BatchLookup lookup(plan);
  data::BatchLoader loader(dataset, sampler);
  int64_t ids = 0, batches = 0;
  for (; batches < loader.batches_per_epoch() && ids < max_ids; ++batches) {
    const data::Batch& batch = loader.Next(batches);
    CAIRN_RETURN_IF_ERROR(dataset.status());
    CAIRN_RETURN_IF_ERROR(
        lookup.Begin({.examples = batch.examples, .inputs = batch.inputs.First(batch.examples)}));
    counts.examples += batch.examples;
    for (size_t t = 0; t < seen.size(); ++t) {
      const absl::Span<const int64_t> keys = lookup.rows()[t].keys;
      counts.tables[t].ids += static_cast<double>(lookup.num_ids(t));
      counts.tables[t].distinct += static_cast<double>(keys.size());
      seen[t].insert(keys.begin(), keys.end());
    }
    ids += lookup.num_ids();
  }
  for (size_t t = 0; t < seen.size(); ++t) {
    counts.tables[t].ids /= static_cast<double>(batches);
    counts.tables[t].distinct /= static_cast<double>(batches);
    counts.tables[t].rows = static_cast<int64_t>(seen[t].size());
  }
  return counts;
}

}  // namespace cairn::worker
