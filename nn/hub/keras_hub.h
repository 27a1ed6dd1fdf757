// Layers and models of keras_hub (formerly keras_nlp) that consist of other layers. They are read as models within the
// model: their JSON is replaced by that of a Functional model of the layers.
//
// Pure; any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cairn::nn {

// TransformerEncoder and other layers that consist of layers.
bool IsHubLayer(absl::string_view class_name);
// GPT2Backbone and other models, whose JSON has only their sizes.
bool IsHubModel(absl::string_view class_name);
// Their names, for messages.
std::string HubLayers();
std::string HubModels();

// Replaces the config of a hub layer by that of a Functional model with an input for each tensor of its calls, and
// rewrites the calls so that all tensors are in `args`. Leaves other layers, and expanded ones, unchanged.
// INVALID_ARGUMENT, without the layer's name, for a custom class of the same name, and for options and arguments that
// are not supported.
absl::Status ExpandHubLayer(nlohmann::json& layer);
// The same for the config of a hub model.
absl::Status ExpandHubModel(nlohmann::json& model);

// The group of an inner layer within that of a hub layer in Keras' files of weights: the attribute that holds it.
std::string HubGroup(absl::string_view layer);

}  // namespace cairn::nn
