// The fields that dense layers and convolutions share, as Keras names them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "nn/layer/config_reader.h"
#include "nn/layer/layer.h"
#include "nn/layers/activation.h"

namespace cairn::nn {

struct LinearConfig {
  ActivationSpec activation{};
  bool use_bias = true;
  InitializerSpec kernel_initializer{}, bias_initializer{};
  RegularizerSpec kernel_regularizer{}, bias_regularizer{};
  std::optional<Constraint> kernel_constraint{}, bias_constraint{};

  // A kernel of this shape, and the bias [units] if there is one.
  std::vector<VariableSpec> KernelAndBias(Shape kernel, int64_t units, std::string name = "kernel") const;
};

// `kernel`: the prefix of the kernel's fields.
LinearConfig ReadLinearConfig(ConfigReader& config, absl::string_view kernel = "kernel");

}  // namespace cairn::nn
