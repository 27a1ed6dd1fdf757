// The layers of a model's JSON that lack what Keras' adapt() finds: lookups without a vocabulary, Normalization without
// mean and variance, Discretization without boundaries. Any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn::worker {

struct UnadaptedLayer {
  std::string name;        // with those of the models around it, "inner/words"; unique among those of a class
  std::string own_name;    // one of ours if the file has none
  std::string class_name;  // "StringLookup"
  nlohmann::json* config = nullptr;  // in the model's JSON, an object

  std::string Describe() const;  // "layer 'words' (TextVectorization)"
};

// Whether a layer of tokens with this config has idf_weights: its output_mode is "tf_idf".
bool WeighsTokens(const nlohmann::json& config);

// The unadapted layers of `model` and of models within it, in the order of the file. They point into `model`.
// INVALID_ARGUMENT if two of them have one name.
absl::StatusOr<std::vector<UnadaptedLayer>> FindUnadaptedLayers(nlohmann::json& model);

// Gives the layers a name and values of the right kind, so that the model can be read before it is adapted.
void AddPlaceholders(const std::vector<UnadaptedLayer>& layers);

}  // namespace cairn::worker
