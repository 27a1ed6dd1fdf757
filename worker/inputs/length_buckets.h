// --bucket_boundaries: batches of sequences of like lengths. The job has a network for each length, all with the same
// variables.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "data/length_buckets.h"
#include "nn/model.h"
#include "nn/objective.h"
#include "worker/options/options.h"

namespace cairn::worker {

// Reads the model of `options` once for each boundary, and adds the shorter networks to `model`, which was read from
// the same file. INVALID_ARGUMENT naming the boundary, and why it does not fit the model. Blocks on the disk.
absl::Status AddShorterModels(const TrainOptions& options, nn::Model& model);

// The buckets of a data set for the lengths of `model` and model.shorter(). INVALID_ARGUMENT naming the output if its
// loss counts padding. Blocks on the disk.
absl::StatusOr<data::LengthBuckets> BucketsOf(const nn::Model& model, const nn::Objective& objective,
                                              const data::Dataset& dataset);

// Null if there are none.
inline const data::LengthBuckets* PointerTo(const std::optional<data::LengthBuckets>& buckets) {
  return buckets.has_value() ? &*buckets : nullptr;
}

}  // namespace cairn::worker
