// Arguments of functions of keras.ops that are constants of the model file, numbers and arrays: arithmetic of a tensor
// and an array, such as `x + positions`, and functions of several tensors and constants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "nn/functions/steps.h"

namespace cairn::nn {

// A number has no extents.
struct ConstantArray {
  std::vector<int64_t> extents;
  std::vector<double> values;  // [extents], row-major
};

// A number, a boolean, or an array as Keras writes it. Nothing for another argument.
std::optional<ConstantArray> ReadConstant(const nlohmann::json& argument);

// A constant, and the argument that it is.
struct PlacedConstant {
  size_t input = 0;
  ConstantArray array;
};

// Adds an ElementwiseFunction of the function's inputs and the constants, which are in the order of the arguments.
void AddElementwise(const std::string& function, const std::vector<PlacedConstant>& constants,
                    FunctionSteps& steps);

// Adds an ElementwiseFunction of the latest output and a number.
void AddWithNumber(const std::string& function, double number, FunctionSteps& steps);

}  // namespace cairn::nn
