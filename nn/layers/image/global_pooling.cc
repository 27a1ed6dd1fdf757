// GlobalAveragePooling2D and 3D, GlobalMaxPooling1D, 2D and 3D, and GlobalSumPooling1D, 2D and 3D, which functions of
// keras.ops become: one value per channel.
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"
#include "nn/layers/spatial.h"

namespace cairn::nn {
namespace {

class GlobalPoolingLayer final : public Layer {
 public:
  GlobalPoolingLayer(std::string name, std::string class_name, kernels::Pooling pooling, size_t axes,
                     bool keep_dims)
      : Layer(std::move(name), std::move(class_name)),
        pooling_(pooling),
        axes_(axes),
        keep_dims_(keep_dims) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_RETURN_IF_ERROR(CheckSpatial(inputs[0], axes_));
    Shape output;
    for (size_t axis = 0; axis < axes_ && keep_dims_; ++axis) output.Append(1);
    output.Append(inputs[0][inputs[0].rank() - 1]);
    return output;
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
  bool accepts_blocked(absl::Span<const Shape>) const override { return axes_ == 2; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const kernels::TensorDesc& input = params.inputs[0];
    const Shape& shape = input.shape;
    const int64_t examples = shape[0], channels = shape[shape.rank() - 1];
    const int64_t places = shape.num_elements() / (examples * channels);
    const kernels::TensorDesc image = axes_ == 2 ? input : input.WithShape({examples, places, 1, channels});
    CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeGlobalPool(pooling_, image));
    const kernels::TensorDesc pooled = op->output();
    auto layer_op = std::make_unique<UnaryLayerOp>(std::move(op), kReadsNothing);
    if (!keep_dims_) return layer_op;
    Shape kept = {examples};
    for (size_t axis = 0; axis < axes_; ++axis) kept.Append(1);
    kept.Append(channels);
    return std::make_unique<ReshapedOp>(pooled.WithShape(std::move(kept)), std::move(layer_op));
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    const Shape input = onnx.ShapeOf(inputs[0]);
    CAIRN_ASSIGN_OR_RETURN(const Shape output, OutputShape({&input, 1}));
    if (pooling_ == kernels::Pooling::kSum) {
      std::vector<int64_t> axes;
      for (size_t axis = 1; axis <= axes_; ++axis) axes.push_back(static_cast<int64_t>(axis));
      return onnx.FromChannelsLast(
          onnx.Add("ReduceSum", {onnx.ChannelsLast(inputs[0]), onnx.Ints("axes", std::move(axes))},
                   {{"keepdims", int64_t{keep_dims_ ? 1 : 0}}}),
          output);
    }
    const std::string pooled =
        onnx.Add(pooling_ == kernels::Pooling::kMax ? "GlobalMaxPool" : "GlobalAveragePool",
                 {onnx.ChannelsFirst(inputs[0])});
    if (keep_dims_) return onnx.FromChannelsFirst(pooled, output);
    return onnx.FromChannelsLast(onnx.Add("Flatten", {pooled}, {{"axis", int64_t{1}}}), output);
  }

 private:
  const kernels::Pooling pooling_;
  const size_t axes_;
  const bool keep_dims_;
};

std::unique_ptr<Layer> MakeGlobalPooling(kernels::Pooling pooling, size_t axes, const char* class_name,
                                         std::string name, ConfigReader& config) {
  config.Refuse("data_format", "channels_last");
  return std::make_unique<GlobalPoolingLayer>(std::move(name), class_name, pooling, axes,
                                              config.Bool("keepdims", false));
}

}  // namespace

std::unique_ptr<Layer> MakeGlobalAveragePooling2D(std::string name, ConfigReader& config) {
  return MakeGlobalPooling(kernels::Pooling::kAverage, 2, "GlobalAveragePooling2D", std::move(name), config);
}

std::unique_ptr<Layer> MakeGlobalAveragePooling3D(std::string name, ConfigReader& config) {
  return MakeGlobalPooling(kernels::Pooling::kAverage, 3, "GlobalAveragePooling3D", std::move(name), config);
}

std::unique_ptr<Layer> MakeGlobalMaxPooling1D(std::string name, ConfigReader& config) {
  return MakeGlobalPooling(kernels::Pooling::kMax, 1, "GlobalMaxPooling1D", std::move(name), config);
}

std::unique_ptr<Layer> MakeGlobalMaxPooling2D(std::string name, ConfigReader& config) {
  return MakeGlobalPooling(kernels::Pooling::kMax, 2, "GlobalMaxPooling2D", std::move(name), config);
}

std::unique_ptr<Layer> MakeGlobalMaxPooling3D(std::string name, ConfigReader& config) {
  return MakeGlobalPooling(kernels::Pooling::kMax, 3, "GlobalMaxPooling3D", std::move(name), config);
}

std::unique_ptr<Layer> MakeGlobalSumPooling1D(std::string name, ConfigReader& config) {
  return MakeGlobalPooling(kernels::Pooling::kSum, 1, "GlobalSumPooling1D", std::move(name), config);
}

std::unique_ptr<Layer> MakeGlobalSumPooling2D(std::string name, ConfigReader& config) {
  return MakeGlobalPooling(kernels::Pooling::kSum, 2, "GlobalSumPooling2D", std::move(name), config);
}

std::unique_ptr<Layer> MakeGlobalSumPooling3D(std::string name, ConfigReader& config) {
  return MakeGlobalPooling(kernels::Pooling::kSum, 3, "GlobalSumPooling3D", std::move(name), config);
}

}  // namespace cairn::nn
