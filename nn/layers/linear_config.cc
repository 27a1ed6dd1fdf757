#include "nn/layers/linear_config.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn::nn {

std::vector<VariableSpec> LinearConfig::KernelAndBias(Shape kernel, int64_t units, std::string name) const {
  std::vector<VariableSpec> variables = {{.name = std::move(name),
                                          .shape = std::move(kernel),
                                          .initializer = kernel_initializer,
                                          .regularizer = kernel_regularizer,
                                          .constraint = kernel_constraint}};
  if (use_bias) {
    variables.push_back({.name = "bias",
                         .shape = {units},
                         .initializer = bias_initializer,
                         .regularizer = bias_regularizer,
                         .constraint = bias_constraint});
  }
  return variables;
}

LinearConfig ReadLinearConfig(ConfigReader& config, absl::string_view kernel) {
  const LinearConfig read = {
      .activation = ReadActivation("activation", config),
      .use_bias = config.Bool("use_bias", true),
      .kernel_initializer = config.Initializer(absl::StrCat(kernel, "_initializer"), "glorot_uniform"),
      .bias_initializer = config.Initializer("bias_initializer", "zeros"),
      .kernel_regularizer = config.Regularizer(absl::StrCat(kernel, "_regularizer")),
      .bias_regularizer = config.Regularizer("bias_regularizer"),
      .kernel_constraint = config.ReadConstraint(absl::StrCat(kernel, "_constraint")),
      .bias_constraint = config.ReadConstraint("bias_constraint")};
  if (kernel != "kernel") config.RefuseUnlessNull({"kernel_constraint"});
  return read;
}

}  // namespace cairn::nn
