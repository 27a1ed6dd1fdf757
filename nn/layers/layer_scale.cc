// LayerScale of keras.applications' ConvNeXt: each channel is multiplied by a variable (Touvron et al., "Going deeper
// with image transformers", 2021).
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

// A batch normalization whose statistics are the constants 0 and 1, without an epsilon.
class LayerScaleOp final : public LayerOp {
 public:
  static absl::StatusOr<std::unique_ptr<LayerOp>> Create(const LayerOpParams& params,
                                                         kernels::Device& device) {
    const kernels::TensorDesc& input = params.inputs[0];
    const int64_t channels = input.shape[input.shape.rank() - 1];
    std::unique_ptr<LayerScaleOp> made(new LayerScaleOp(channels));
    CAIRN_ASSIGN_OR_RETURN(
        made->op_, device.ops().MakeBatchNorm(
                       {.input = input, .epsilon = 0, .scale = true, .center = false, .frozen = true}));
    CAIRN_ASSIGN_OR_RETURN(made->statistics_, device.Allocate(2 * channels, "layer scale: statistics"));
    const std::vector<float> ones(static_cast<size_t>(channels), 1.0f);
    CAIRN_RETURN_IF_ERROR(device.CopyToDevice(ones.data(), made->statistics_->data() + channels,
                                              channels * static_cast<int64_t>(sizeof(float))));
    CAIRN_RETURN_IF_ERROR(device.Synchronize());
    if (!params.needs_input_gradients) {
      CAIRN_ASSIGN_OR_RETURN(made->unused_, device.Allocate(input.num_floats(), "layer scale: gradient"));
    }
    return made;
  }

  const kernels::TensorDesc& output() const override { return op_->output(); }
  absl::Status Forward(const ForwardArgs& args) override {
    return op_->Infer(args.inputs[0], args.variables[0], nullptr, mean(), variance(), args.output);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    float* const dx = unused_ == nullptr ? args.input_gradients[0] : unused_->data();
    return op_->Backward(args.inputs[0], args.variables[0], mean(), variance(), args.output_gradient, dx,
                         args.gradients[0], nullptr);
  }

 private:
  explicit LayerScaleOp(int64_t channels) : channels_(channels) {}
  const float* mean() const { return statistics_->data(); }
  const float* variance() const { return statistics_->data() + channels_; }

  const int64_t channels_;
  std::unique_ptr<kernels::BatchNorm> op_;
  std::unique_ptr<kernels::DeviceMemory> statistics_;  // means, then variances
  std::unique_ptr<kernels::DeviceMemory> unused_;      // receives dx if it is not needed; otherwise null
};

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
    return LayerScaleOp::Create(params, device);
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
