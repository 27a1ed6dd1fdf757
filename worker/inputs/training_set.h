// The identity of a training set, by which workers detect that their training sets differ.
#pragma once

#include "cairn/v1/job.pb.h"
#include "data/dataset.h"
#include "data/length_buckets.h"

namespace cairn::worker {

// Reads all targets that are in memory, and a few hundred examples with their targets, spread over the set. Differences
// elsewhere in mapped files of tokens are not detected.
// `buckets` may be null. They are part of the identity, since the order of the examples depends on them.
v1::TrainingSet IdentityOf(const data::Dataset& dataset, const data::LengthBuckets* buckets);

}  // namespace cairn::worker
