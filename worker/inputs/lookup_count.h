// How many rows of embedding tables the batches of a training set look up: for `cairn plan`.
//
// Any thread; blocks on the disk.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "worker/embedding/table_plan.h"

namespace cairn::worker {

struct LookupCount {
  double ids = 0;       // that a batch looks up, on average
  double distinct = 0;  // different ones among them
  int64_t rows = 0;     // different ids in all counted examples
};

struct LookupCounts {
  std::vector<LookupCount> tables;  // [table of the plan]
  int64_t examples = 0;             // counted
};

// The most ids that are counted: the memory of CountLookups() is about 20 bytes for each.
inline constexpr int64_t kMaxCountedIds = 16'000'000;

// Counts batches of an epoch in the order of training, until they have `max_ids` ids. INVALID_ARGUMENT as
// BatchLookup::Begin(); the errors of the data set.
absl::StatusOr<LookupCounts> CountLookups(const data::Dataset& dataset, const data::SamplerOptions& sampler,
                                          const TablePlan& plan, int64_t max_ids = kMaxCountedIds);

}  // namespace cairn::worker
