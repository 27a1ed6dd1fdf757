// The factor and the offset that follow a normalization: Keras' gamma and beta.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "common/core/shape.h"
#include "nn/layer/config_reader.h"
#include "nn/layer/initializer.h"
#include "nn/layer/layer.h"

namespace cairn::nn {

struct NormWeights {
  bool scale = true, center = true;  // whether there is a gamma, a beta
  InitializerSpec gamma{}, beta{};
  RegularizerSpec gamma_regularizer{}, beta_regularizer{};
  std::optional<Constraint> gamma_constraint{}, beta_constraint{};

  // The number of variables.
  size_t variables() const { return (scale ? size_t{1} : 0) + (center ? size_t{1} : 0); }
  // gamma and beta, as far as they exist.
  std::vector<VariableSpec> Variables(const Shape& shape, const std::string& gamma_name = "gamma") const;
};

// Reads scale, center, and the initializers, regularizers and constraints.
NormWeights ReadNormWeights(ConfigReader& config);

}  // namespace cairn::nn
