// The identity of a training set, by which workers detect that their training sets differ.
#pragma once

#include "cairn/v1/job.pb.h"
#include "data/dataset.h"

namespace cairn::worker {

// Reads all targets, and a few hundred examples spread over the set.
v1::TrainingSet IdentityOf(const data::Dataset& dataset);

}  // namespace cairn::worker
