// Weights of examples by their class, as Keras' fit(class_weight=...).
#pragma once

#include "absl/status/status.h"
#include "data/dataset.h"
#include "data/formats.h"

namespace cairn::data {

// Multiplies the weights of the training set by those of the classes (DataOptions::class_weights). The class of an
// example is its class index, of which negative ones are no class, or for targets with a number for each class
// (DataOptions::targets_per_row) the largest of them, the first of equal ones. Targets that are class indices of
// several positions, or vectors of them, give each position its own weight: each row of the model's output.
//
// INVALID_ARGUMENT naming the targets if they have no classes or lack a class with a weight, or if the model has
// several outputs.
absl::Status ApplyClassWeights(const DataOptions& options, Split& train);

}  // namespace cairn::data
