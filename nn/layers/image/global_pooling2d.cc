// GlobalAveragePooling2D and GlobalMaxPooling2D: one value per channel.
#include <nlohmann/json.hpp>
#include <utility>

#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/image/conv_config.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

class GlobalPooling2DLayer final : public Layer {
 public:
  GlobalPooling2DLayer(std::string name, std::string class_name, kernels::Pooling pooling, bool keep_dims)
      : Layer(std::move(name), std::move(class_name)), pooling_(pooling), keep_dims_(keep_dims) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_RETURN_IF_ERROR(CheckImage(inputs[0]));
    return keep_dims_ ? Shape({1, 1, inputs[0][2]}) : Shape({inputs[0][2]});
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
  bool accepts_blocked(absl::Span<const Shape>) const override { return true; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeGlobalPool(pooling_, params.inputs[0]));
    const kernels::TensorDesc pooled = op->output();
    auto layer_op = std::make_unique<UnaryLayerOp>(std::move(op));
    if (!keep_dims_) return layer_op;
    return std::make_unique<ReshapedOp>(pooled.WithShape({pooled.shape[0], 1, 1, pooled.shape[1]}),
                                        std::move(layer_op));
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    const int64_t channels = onnx.ShapeOf(inputs[0])[2];
    const std::string pooled =
        onnx.Add(pooling_ == kernels::Pooling::kMax ? "GlobalMaxPool" : "GlobalAveragePool",
                 {onnx.ChannelsFirst(inputs[0])});
    if (keep_dims_) return onnx.FromChannelsFirst(pooled, {1, 1, channels});
    return onnx.FromChannelsLast(onnx.Add("Flatten", {pooled}, {{"axis", int64_t{1}}}), {channels});
  }

 private:
  const kernels::Pooling pooling_;
  const bool keep_dims_;
};

std::unique_ptr<Layer> MakeGlobalPooling(kernels::Pooling pooling, const char* class_name, std::string name,
                                         ConfigReader& config) {
  config.Refuse("data_format", "channels_last");
  return std::make_unique<GlobalPooling2DLayer>(std::move(name), class_name, pooling,
                                                config.Bool("keepdims", false));
}

}  // namespace

std::unique_ptr<Layer> MakeGlobalAveragePooling2D(std::string name, ConfigReader& config) {
  return MakeGlobalPooling(kernels::Pooling::kAverage, "GlobalAveragePooling2D", std::move(name), config);
}

std::unique_ptr<Layer> MakeGlobalMaxPooling2D(std::string name, ConfigReader& config) {
  return MakeGlobalPooling(kernels::Pooling::kMax, "GlobalMaxPooling2D", std::move(name), config);
}

}  // namespace cairn::nn
