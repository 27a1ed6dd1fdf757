// Functions of keras.ops that compute element by element.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "nn/functions/axes.h"
#include "nn/functions/bodies.h"
#include "nn/functions/constants.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

void Scale(double scale, double offset, FunctionSteps& steps) {
  steps.Add("Rescaling", {{"scale", scale}, {"offset", offset}});
}

// min(x, limit). With a slope of 1, a ReLU changes only elements above its limit, which is not below 0.
void LimitAbove(double limit, FunctionSteps& steps) {
  if (limit < 0) return AddWithNumber("minimum", limit, steps);
  steps.Add("ReLU", {{"max_value", limit}, {"negative_slope", 1}});
}

// max(x, limit), of a limit below 0 as -min(-x, -limit).
void LimitBelow(double limit, FunctionSteps& steps) {
  if (limit > 0) return AddWithNumber("maximum", limit, steps);
  if (limit == 0) {
    steps.Add("ReLU", json::object());
    return;
  }
  Scale(-1, 0, steps);
  LimitAbove(-limit, steps);
  Scale(-1, 0, steps);
}

// The product of the latest output with itself, `factors` times.
void Multiply(size_t factors, FunctionSteps& steps) {
  steps.Add("Multiply", json::object(), std::vector<int>(factors, steps.latest()));
}

// A number in place of one of two tensors, as TakeNumber() writes it.
struct Number {
  double value = 0;
  bool is_first = false;
};
std::optional<Number> ReadNumber(ConfigReader& config) {
  if (!config.Has("number")) return std::nullopt;
  return Number{config.Number("number"), config.Bool("number_is_first", false)};
}

FunctionBody MergeWithNumber(const std::string& layer, const Number& number, ConfigReader& config) {
  const double c = number.value;
  if (layer == "Add") return [c](FunctionSteps& steps) { Scale(1, c, steps); };
  if (layer == "Multiply") return [c](FunctionSteps& steps) { Scale(c, 0, steps); };
  if (layer == "Subtract") {
    const double sign = number.is_first ? -1 : 1;
    return [c, sign](FunctionSteps& steps) { Scale(sign, -sign * c, steps); };
  }
  if (layer == "Divide" && number.is_first) {
    return [c](FunctionSteps& steps) {
      steps.AddMath("reciprocal");
      if (c != 1) Scale(c, 0, steps);
    };
  }
  if (layer == "Divide") {
    if (c == 0) config.Fail("number", "divides by 0");
    return [c](FunctionSteps& steps) { Scale(1 / c, 0, steps); };
  }
  if (layer == "Maximum") return [c](FunctionSteps& steps) { LimitBelow(c, steps); };
  return [c](FunctionSteps& steps) { LimitAbove(c, steps); };
}

FunctionBody Clip(double low, double high) {
  return [low, high](FunctionSteps& steps) {
    if (low == 0 && high > 0) {
      steps.Add("ReLU", {{"max_value", high}});
      return;
    }
    LimitBelow(low, steps);
    LimitAbove(high, steps);
  };
}

// number ** x
FunctionBody PowerOfNumber(double number, ConfigReader& config) {
  if (number <= 0) config.Fail("number", "expected a positive number");
  const double log = std::log(number > 0 ? number : 1);
  return [log](FunctionSteps& steps) {
    Scale(log, 0, steps);
    steps.AddMath("exp");
  };
}

}  // namespace

FunctionBody ReadAbsolute(const FunctionOption&, ConfigReader&) {
  return [](FunctionSteps& steps) {
    Scale(-1, 0, steps);
    steps.Add("Maximum", json::object(), {FunctionSteps::Input(0), 0});
  };
}

FunctionBody ReadActivationFunction(const FunctionOption& option, ConfigReader&) {
  return [name = option.layer](FunctionSteps& steps) { steps.Add("Activation", {{"activation", name}}); };
}

// alpha * elu(x / alpha)
FunctionBody ReadCelu(const FunctionOption&, ConfigReader& config) {
  const double alpha = config.Number("alpha", 1.0);
  if (alpha <= 0) config.Fail("alpha", "expected a positive number");
  return [alpha](FunctionSteps& steps) {
    if (alpha != 1) Scale(1 / alpha, 0, steps);
    steps.Add("ELU", {{"alpha", 1.0}});
    if (alpha != 1) Scale(alpha, 0, steps);
  };
}

FunctionBody ReadClip(const FunctionOption&, ConfigReader& config) {
  const double low = config.Number("x_min"), high = config.Number("x_max");
  if (low > high) config.Fail("x_min", absl::StrCat(low, " is above x_max, ", high));
  return Clip(low, high);
}

FunctionBody ReadGelu(const FunctionOption&, ConfigReader& config) {
  const char* const name = config.Bool("approximate", true) ? "keras_hub>gelu_approximate" : "gelu";
  return [name](FunctionSteps& steps) { steps.Add("Activation", {{"activation", name}}); };
}

FunctionBody ReadHardTanh(const FunctionOption&, ConfigReader&) {
  return Clip(-1, 1);
}

// -softplus(-x)
FunctionBody ReadLogSigmoid(const FunctionOption&, ConfigReader&) {
  return [](FunctionSteps& steps) {
    Scale(-1, 0, steps);
    steps.Add("Activation", {{"activation", "softplus"}});
    Scale(-1, 0, steps);
  };
}

FunctionBody ReadMathFunction(const FunctionOption& option, ConfigReader&) {
  return [name = option.layer](FunctionSteps& steps) { steps.AddMath(name); };
}

FunctionBody ReadMerge(const FunctionOption& option, ConfigReader& config) {
  const std::string layer = option.layer;
  if (config.Has("constant")) return MergeWithConstant(layer, config);
  if (const auto number = ReadNumber(config)) return MergeWithNumber(layer, *number, config);
  return [layer](FunctionSteps& steps) {
    const Shape &first = steps.InputShape(0), &second = steps.InputShape(1);
    // A function aligns shapes from their last axis, the batch among them. A layer inserts missing axes after it.
    if (first.rank() != second.rank()) {
      return steps.Fail("inputs", absl::StrCat(first.ToString(), " and ", second.ToString(),
                                               " have different numbers of axes"));
    }
    if (layer != "Divide") {
      steps.Add(layer, json::object(), {FunctionSteps::Input(0), FunctionSteps::Input(1)});
      return;
    }
    steps.GoOnFrom(FunctionSteps::Input(1));
    steps.AddMath("reciprocal");
    steps.Add("Multiply", json::object(), {FunctionSteps::Input(0), steps.latest()});
  };
}

FunctionBody ReadNegative(const FunctionOption&, ConfigReader&) {
  return [](FunctionSteps& steps) { Scale(-1, 0, steps); };
}

// One vector for each id, also where there is one id only, of which CategoryEncoding drops the axis.
FunctionBody ReadOneHot(const FunctionOption&, ConfigReader& config) {
  const int64_t classes = config.PositiveInt("num_classes");
  config.Refuse("axis", -1);
  config.Bool("sparse", false);  // how Keras stores the same numbers
  return [classes](FunctionSteps& steps) {
    std::vector<int64_t> extents = ExtentsOf(steps.shape());
    extents.push_back(classes);
    steps.Add("CategoryEncoding", {{"num_tokens", classes}, {"output_mode", "one_hot"}});
    steps.Reshape(extents);
  };
}

FunctionBody ReadPower(const FunctionOption&, ConfigReader& config) {
  constexpr std::pair<double, const char*> kRoots[] = {{0.5, "sqrt"}, {-0.5, "rsqrt"}, {-1, "reciprocal"}};
  const auto number = ReadNumber(config);
  if (number.has_value() && number->is_first) return PowerOfNumber(number->value, config);
  const double exponent = number.has_value() ? number->value : 0;
  for (const auto& [of_root, name] : kRoots) {
    if (exponent == of_root) return [name = name](FunctionSteps& steps) { steps.AddMath(name); };
  }
  if (exponent != 2 && exponent != 3 && exponent != 4)
    config.Fail("number", "only 2, 3, 4, 0.5, -0.5 and -1 as the exponent are supported");
  const size_t factors = exponent == 2 ? 2 : exponent == 3 ? 3 : 4;
  return [factors](FunctionSteps& steps) { Multiply(factors, steps); };
}

FunctionBody ReadSquare(const FunctionOption&, ConfigReader&) {
  return [](FunctionSteps& steps) { Multiply(2, steps); };
}

FunctionBody ReadWithSlope(const FunctionOption& option, ConfigReader& config) {
  const json layer_config = {{option.argument, config.Number(option.argument)}};
  return [layer = option.layer, layer_config](FunctionSteps& steps) { steps.Add(layer, layer_config); };
}

}  // namespace cairn::nn
