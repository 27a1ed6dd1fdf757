// LayerScale of keras.applications' ConvNeXt: each channel is multiplied by a variable (Touvron et al., "Going deeper
// with image transformers", 2021).
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/ops.h"
#include "nn/layers/channel_scale.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

class LayerScaleLayer final : public Layer {
 public:
  LayerScaleLayer(std::string name, int64_t channels, InitializerSpec gamma)
      : Layer(std::move(name), "LayerScale"), channels_(channels), gamma_(gamma) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (inputs[0].rank() > 0 && inputs[0][inputs[0].rank() - 1] == channels_) return inputs[0];
    return absl::InvalidArgumentError(
        absl::StrCat("projection_dim: ", channels_, " is not the last axis of input ", inputs[0].ToString()));
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override {
    return {{.name = "gamma", .shape = {channels_}, .initializer = gamma_}};
  }
  bool accepts_blocked(absl::Span<const Shape>) const override { return true; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    return MakeChannelScale({.input = params.inputs[0], .needs_input_gradient = params.needs_input_gradients},
                            device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    const Shape shape = onnx.ShapeOf(inputs[0]);
    return onnx.FromChannelsLast(onnx.Add("Mul", {onnx.ChannelsLast(inputs[0]), onnx.Weights(variables[0])}),
                                 shape);
  }

 private:
  const int64_t channels_;
  const InitializerSpec gamma_;
};

}  // namespace

std::unique_ptr<Layer> MakeLayerScale(std::string name, ConfigReader& config) {
  const InitializerSpec gamma = {.center = config.Number("init_values")};
  return std::make_unique<LayerScaleLayer>(std::move(name), config.PositiveInt("projection_dim"), gamma);
}

}  // namespace cairn::nn
