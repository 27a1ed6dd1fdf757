// Models of keras_hub with what it computed (tests/support/data/keras_hub/make.py).
#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "nn/model.h"
#include "tests/support/source_dir.h"

namespace cairn::nn {

inline nlohmann::json RecordedModels() {
  std::ifstream file(InSource("tests/support/data/keras_hub/models.json"));
  return nlohmann::json::parse(file);
}

// Keras' name of a variable: that of a model within the model is not in it.
inline std::string KerasName(const std::string& name) {
  return absl::StrReplaceAll(name, {{"gpt2_backbone/", ""}, {"bert_backbone/", ""}, {"llama_backbone/", ""}});
}

// The values that make.py gives all models.
inline std::vector<float> RecordedParameters(const Model& model) {
  std::vector<float> parameters(static_cast<size_t>(model.num_parameters()));
  for (const ModelVariable& variable : model.variables()) {
    const bool factor = absl::EndsWith(variable.name, "gamma") || absl::EndsWith(variable.name, "scale");
    const std::string name = KerasName(variable.name);
    const auto salt = std::accumulate(name.begin(), name.end(), int64_t{0});
    for (int64_t i = 0; i < variable.shape.num_elements(); ++i) {
      const double value = static_cast<double>((i * i * 31 + i * 17 + salt) % 101 - 50) / 100;
      parameters[static_cast<size_t>(variable.offset + i)] = static_cast<float>(value + (factor ? 1 : 0));
    }
  }
  return parameters;
}

// With the sizes of its recorded inputs.
inline absl::StatusOr<Model> ModelOf(const nlohmann::json& recorded) {
  InputSizes sizes;
  for (const auto& [name, input] : recorded["inputs"].items()) {
    auto shape = input["shape"].get<std::vector<int64_t>>();
    sizes.given[name] = {shape.begin() + 1, shape.end()};
  }
  return Model::FromJson(recorded["model"].dump(), "model.json", sizes);
}

}  // namespace cairn::nn
