// Functions of keras.ops that are composed of reductions and of functions of elements: variances, logarithms of sums of
// exponentials, and normalizations.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "nn/functions/axes.h"
#include "nn/functions/bodies.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

constexpr double kKerasEpsilon = 1e-7;  // keras.config.epsilon()

double ReadEpsilon(ConfigReader& config) {
  return config.Number("epsilon", kKerasEpsilon);
}

// Reduces the latest output and keeps the axes, with an extent of 1.
int Mean(const std::vector<int64_t>& axes, FunctionSteps& steps) {
  Reduce({.axes = axes, .keep_dims = true, .option = {.layer = "GlobalAveragePooling"}}, steps);
  return steps.latest();
}
int Sum(const std::vector<int64_t>& axes, FunctionSteps& steps) {
  Reduce({.axes = axes, .keep_dims = true, .option = {.layer = "GlobalSumPooling"}}, steps);
  return steps.latest();
}
int Max(const std::vector<int64_t>& axes, FunctionSteps& steps) {
  Reduce({.axes = axes, .keep_dims = true, .option = {.layer = "GlobalMaxPooling"}}, steps);
  return steps.latest();
}

int Square(FunctionSteps& steps) {
  return steps.Add("Multiply", json::object(), {steps.latest(), steps.latest()});
}

// The variance of the latest output, as the mean of squared differences from the mean.
int Variance(const std::vector<int64_t>& axes, FunctionSteps& steps) {
  const int x = steps.latest();
  const int mean = Mean(axes, steps);
  steps.Add("Subtract", json::object(), {x, mean});
  Square(steps);
  return Mean(axes, steps);
}

// Removes the axes from the latest output, in which their extent is 1.
void DropAxes(const std::vector<int64_t>& axes, FunctionSteps& steps) {
  std::vector<int64_t> extents = ExtentsOf(steps.shape());
  const auto all = AxesOf(steps.shape());
  if (extents.empty()) return;  // after a failure
  for (const int64_t axis : axes) extents[static_cast<size_t>(AxisOf(axis, all, "axis", steps) - 1)] = 0;
  std::erase(extents, 0);
  steps.Reshape(extents);
}

struct LogOfSum {
  int rest;  // x - max
  int log;   // log(sum(exp(rest)))
  int max;
};
// Without overflow. The gradient of the maximum cancels out.
LogOfSum LogOfSumOf(const std::vector<int64_t>& axes, FunctionSteps& steps) {
  const int x = steps.latest();
  const int max = Max(axes, steps);
  const int rest = steps.Add("Subtract", json::object(), {x, max});
  steps.AddMath("exp");
  Sum(axes, steps);
  return {.rest = rest, .log = steps.AddMath("log"), .max = max};
}

// x / sqrt(mean + epsilon), where the mean is the latest output.
void DivideByRoot(int x, double epsilon, FunctionSteps& steps) {
  steps.Add("Rescaling", {{"scale", 1}, {"offset", epsilon}});
  const int factor = steps.AddMath("rsqrt");
  steps.Add("Multiply", json::object(), {x, factor});
}

}  // namespace

FunctionBody ReadLayerNorm(const FunctionOption&, ConfigReader& config) {
  const std::vector<int64_t> axes = config.Ints("axis", {{-1}});
  const double epsilon = ReadEpsilon(config);
  if (!config.Bool("rms_scaling", false)) {
    return [axes, epsilon](FunctionSteps& steps) {
      steps.Add("LayerNormalization",
                {{"axis", axes}, {"epsilon", epsilon}, {"center", false}, {"scale", false}});
    };
  }
  return [axes, epsilon](FunctionSteps& steps) {
    const int x = steps.latest();
    Variance(axes, steps);
    DivideByRoot(x, epsilon, steps);
  };
}

FunctionBody ReadLogSoftmax(const FunctionOption&, ConfigReader& config) {
  if (config.Raw("axis").is_null() && config.Has("axis"))
    config.Fail("axis", "null normalizes over the batch, which is not supported");
  return [axis = ReadAxis("axis", config, -1)](FunctionSteps& steps) {
    const LogOfSum sum = LogOfSumOf({axis}, steps);
    steps.Add("Subtract", json::object(), {sum.rest, sum.log});
  };
}

FunctionBody ReadLogSumExp(const FunctionOption&, ConfigReader& config) {
  const bool keep_dims = config.Bool("keepdims", false);
  return [keep_dims, axes = ReadReducedAxes(config)](FunctionSteps& steps) {
    const LogOfSum sum = LogOfSumOf(axes, steps);
    steps.Add("Add", json::object(), {sum.log, sum.max});
    if (!keep_dims) DropAxes(axes, steps);
  };
}

FunctionBody ReadMoments(const FunctionOption&, ConfigReader& config) {
  config.Refuse("synchronized", false);
  const bool keep_dims = config.Bool("keepdims", false);
  return [keep_dims, axes = config.Ints("axes")](FunctionSteps& steps) {
    if (!steps.SetNumOutputs(2)) return;
    steps.output() == 0 ? Mean(axes, steps) : Variance(axes, steps);
    if (!keep_dims) DropAxes(axes, steps);
  };
}

FunctionBody ReadNormalize(const FunctionOption&, ConfigReader& config) {
  config.Refuse("order", 2);
  const double epsilon = ReadEpsilon(config);
  return [epsilon, axes = config.Ints("axis", {{-1}})](FunctionSteps& steps) {
    steps.Add("UnitNormalization", {{"axis", axes}, {"epsilon", epsilon}});
  };
}

FunctionBody ReadRmsNorm(const FunctionOption&, ConfigReader& config) {
  const double epsilon = ReadEpsilon(config);
  return [epsilon, axes = config.Ints("axis", {{-1}})](FunctionSteps& steps) {
    const int x = steps.latest();
    Square(steps);
    Mean(axes, steps);
    DivideByRoot(x, epsilon, steps);
  };
}

FunctionBody ReadVariance(const FunctionOption& option, ConfigReader& config) {
  const bool keep_dims = config.Bool("keepdims", false);
  return [is_root = option.layer == absl::string_view("sqrt"), keep_dims,
          axes = ReadReducedAxes(config)](FunctionSteps& steps) {
    Variance(axes, steps);
    if (is_root) steps.AddMath("sqrt");
    if (!keep_dims) DropAxes(axes, steps);
  };
}

}  // namespace cairn::nn
