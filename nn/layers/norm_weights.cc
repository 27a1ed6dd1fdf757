#include "nn/layers/norm_weights.h"

namespace cairn::nn {

std::vector<VariableSpec> NormWeights::Variables(const Shape& shape, const std::string& gamma_name) const {
  std::vector<VariableSpec> variables;
  if (scale) {
    variables.push_back({.name = gamma_name,
                         .shape = shape,
                         .initializer = gamma,
                         .regularizer = gamma_regularizer,
                         .constraint = gamma_constraint});
  }
  if (center) {
    variables.push_back({.name = "beta",
                         .shape = shape,
                         .initializer = beta,
                         .regularizer = beta_regularizer,
                         .constraint = beta_constraint});
  }
  return variables;
}

NormWeights ReadNormWeights(ConfigReader& config) {
  return {.scale = config.Bool("scale", true),
          .center = config.Bool("center", true),
          .gamma = config.Initializer("gamma_initializer", "ones"),
          .beta = config.Initializer("beta_initializer", "zeros"),
          .gamma_regularizer = config.Regularizer("gamma_regularizer"),
          .beta_regularizer = config.Regularizer("beta_regularizer"),
          .gamma_constraint = config.ReadConstraint("gamma_constraint"),
          .beta_constraint = config.ReadConstraint("beta_constraint")};
}

}  // namespace cairn::nn
