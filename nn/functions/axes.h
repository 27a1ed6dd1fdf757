// Axes of functions of keras.ops, and reductions of them, for the functions that compute along axes.
//
// Their axes count the batch, which is axis 0 and has no extent in a Shape: axis i of the function is extent i - 1.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/core/shape.h"
#include "nn/functions/bodies.h"
#include "nn/functions/steps.h"
#include "nn/layer/config_reader.h"

namespace cairn::nn {

std::vector<int64_t> ExtentsOf(const Shape& shape);

// The number of axes, with the batch.
int64_t AxesOf(const Shape& shape);

// One integer. Fails and returns `absent` for a list or another value.
int64_t ReadAxis(absl::string_view field, ConfigReader& config, int64_t absent);

// The field `axis` of a function that reduces axes. Fails for null, which includes the batch.
std::vector<int64_t> ReadReducedAxes(ConfigReader& config);

struct AxesReduction {
  std::vector<int64_t> axes;
  bool keep_dims = false;
  FunctionOption option;
};

// Adds the reduction of the latest output.
void Reduce(const AxesReduction& reduction, FunctionSteps& steps);

}  // namespace cairn::nn
