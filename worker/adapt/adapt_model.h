// `cairn model adapt`: finds in a training set what Keras' adapt() of the layers of a model would find, and writes it
// into the model's JSON.
//
// A lookup learns the tokens of its inputs, a Normalization their mean and variance, a Discretization their quantiles.
// Reads a set into memory as far as training does. Any thread; blocks on the disk.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/options/options.h"

namespace cairn::worker {

struct AdaptedModel {
  std::string json;                // of the model, without comments
  std::vector<std::string> notes;  // "layer 'words' (TextVectorization): 1498 tokens"
};

// Reads `options.model`, which must be JSON or a .keras archive, and `options.data` with the rules of training. Layers
// that have values keep them; the JSON has none of the archive's other weights. INVALID_ARGUMENT naming the file and
// the layer if no layer lacks them, if one does not read an input of the model, or if what it learned does not fit its
// options.
absl::StatusOr<AdaptedModel> AdaptModel(const TrainOptions& options);

}  // namespace cairn::worker
