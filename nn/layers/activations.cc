// Activation, ELU, Identity, LeakyReLU, ReLU and Softmax: activations as separate layers. MathFunction: functions of
// keras.ops that are no activations of Keras.
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "kernels/device.h"
#include "nn/layers/activation.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

using kernels::Activation;

class ActivationLayer final : public Layer {
 public:
  ActivationLayer(std::string name, std::string class_name, ActivationSpec spec)
      : Layer(std::move(name), std::move(class_name)), spec_(spec) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (spec_.softmax && inputs[0].rank() < 1)
      return absl::InvalidArgumentError("input [] has no axis to work on");
    return inputs[0];
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
  MaskUse mask_use() const override {
    return class_name() == "Softmax" ? MaskUse::kRefuses : MaskUse::kPasses;
  }
  bool accepts_blocked(absl::Span<const Shape> inputs) const override {
    constexpr int64_t kLargestBlock = 16;
    if (spec_.softmax || inputs[0].rank() < 1) return false;
    return spec_.function.keeps_zero() || inputs[0][inputs[0].rank() - 1] % kLargestBlock == 0;
  }

  StepUse step_use(absl::Span<const Shape> inputs, absl::Span<const DecodedInput>) const override {
    return UseOfSteps(!spec_.softmax || inputs[0].rank() > 1);
  }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    return MakeActivationOp(params.inputs[0], spec_, device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    return OnnxActivation(spec_, inputs[0], onnx);
  }

 private:
  const ActivationSpec spec_;
};

}  // namespace

std::unique_ptr<Layer> MakeActivation(std::string name, ConfigReader& config) {
  if (config.Raw("activation").is_null()) config.Fail("activation", "required");
  return std::make_unique<ActivationLayer>(std::move(name), "Activation",
                                           ReadActivation("activation", config));
}

std::unique_ptr<Layer> MakeElu(std::string name, ConfigReader& config) {
  const auto alpha = static_cast<float>(config.Number("alpha", 1.0));
  return std::make_unique<ActivationLayer>(
      std::move(name), "ELU", ActivationSpec{.function = {.kind = Activation::kElu, .slope = alpha}});
}

std::unique_ptr<Layer> MakeIdentity(std::string name, ConfigReader&) {
  return std::make_unique<ActivationLayer>(std::move(name), "Identity", ActivationSpec());
}

std::unique_ptr<Layer> MakeLeakyRelu(std::string name, ConfigReader& config) {
  // Keras 2 writes alpha.
  const double slope = config.Number("negative_slope", config.Number("alpha", 0.3));
  return std::make_unique<ActivationLayer>(
      std::move(name), "LeakyReLU",
      ActivationSpec{.function = {.kind = Activation::kRelu, .slope = static_cast<float>(slope)}});
}

std::unique_ptr<Layer> MakeMathFunction(std::string name, ConfigReader& config) {
  constexpr std::pair<const char*, Activation> kFunctions[] = {
      {"ceil", Activation::kCeil},
      {"cos", Activation::kCos},
      {"exp", Activation::kExp},
      {"floor", Activation::kFloor},
      {"log", Activation::kLog},
      {"log1p", Activation::kLog1p},
      {"round", Activation::kRound},
      {"rsqrt", Activation::kRsqrt},
      {"reciprocal", Activation::kReciprocal},
      {"sign", Activation::kSign},
      {"sin", Activation::kSin},
      {"sqrt", Activation::kSqrt},
      {"trunc", Activation::kTruncate},
  };
  const std::string wanted = config.Choice("function",
                                           {"ceil", "cos", "exp", "floor", "log", "log1p", "round", "rsqrt",
                                            "reciprocal", "sign", "sin", "sqrt", "trunc"},
                                           "exp");
  const auto* const found =
      absl::c_find_if(kFunctions, [&](const auto& function) { return wanted == function.first; });
  const Activation kind = found == std::end(kFunctions) ? Activation::kExp : found->second;
  return std::make_unique<ActivationLayer>(std::move(name), "MathFunction",
                                           ActivationSpec{.function = {.kind = kind}});
}

std::unique_ptr<Layer> MakeRelu(std::string name, ConfigReader& config) {
  const double limit = config.Number("max_value", std::numeric_limits<double>::infinity());
  const ActivationSpec spec = {.function = {.kind = Activation::kRelu,
                                            .slope = static_cast<float>(config.Number("negative_slope", 0)),
                                            .limit = static_cast<float>(limit),
                                            .threshold = static_cast<float>(config.Number("threshold", 0))}};
  return std::make_unique<ActivationLayer>(std::move(name), "ReLU", spec);
}

std::unique_ptr<Layer> MakeSoftmax(std::string name, ConfigReader& config) {
  config.Refuse("axis", -1);
  return std::make_unique<ActivationLayer>(std::move(name), "Softmax", ActivationSpec{.softmax = true});
}

}  // namespace cairn::nn
