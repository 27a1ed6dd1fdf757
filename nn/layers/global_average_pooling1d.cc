// GlobalAveragePooling1D: the mean over the steps of a sequence [steps, channels].
//
// Masked steps do not count. An Embedding of a ragged input has the mean over an example's values already, as one step.
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

class GlobalAveragePooling1DLayer final : public Layer {
 public:
  GlobalAveragePooling1DLayer(std::string name, bool keep_dims)
      : Layer(std::move(name), "GlobalAveragePooling1D"), keep_dims_(keep_dims) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (inputs[0].rank() != 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("input ", inputs[0].ToString(), " is not a sequence [steps, channels]"));
    }
    return keep_dims_ ? Shape({1, inputs[0][1]}) : Shape({inputs[0][1]});
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
  MaskUse mask_use() const override { return MaskUse::kTakes; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const kernels::TensorDesc& input = params.inputs[0];
    CAIRN_ASSIGN_OR_RETURN(auto layer_op,
                           params.masked.empty() ? MakeMean(input, device) : MakeMaskedMean(input, device));
    const kernels::TensorDesc pooled = layer_op->output();
    if (!keep_dims_) return layer_op;
    return std::make_unique<ReshapedOp>(pooled.WithShape({pooled.shape[0], 1, pooled.shape[1]}),
                                        std::move(layer_op));
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    const int64_t channels = onnx.ShapeOf(inputs[0])[1];
    const std::vector<OnnxAttribute> over_steps = {{"axes", std::vector<int64_t>{1}},
                                                   {"keepdims", int64_t{keep_dims_ ? 1 : 0}}};
    const std::string x = onnx.ChannelsLast(inputs[0]);
    std::string mean;
    if (inputs.size() == 1) {
      mean = onnx.Add("ReduceMean", {x}, over_steps);
    } else {  // in opset 17 the axes of a sum are an input
      const std::string mask = onnx.Add("Unsqueeze", {onnx.ChannelsLast(inputs[1]), onnx.Ints("last", {2})});
      const auto sum = [&](std::string of) {
        return onnx.Add("ReduceSum", {std::move(of), onnx.Ints("steps", {1})}, {over_steps[1]});
      };
      mean = onnx.Add("Div", {sum(onnx.Add("Mul", {x, mask})), sum(mask)});
    }
    return onnx.FromChannelsLast(mean, keep_dims_ ? Shape({1, channels}) : Shape({channels}));
  }

 private:
  static absl::StatusOr<std::unique_ptr<LayerOp>> MakeMean(const kernels::TensorDesc& input,
                                                           kernels::Device& device) {
    const kernels::TensorDesc image = input.WithShape({input.shape[0], 1, input.shape[1], input.shape[2]});
    CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeGlobalPool(kernels::Pooling::kAverage, image));
    return std::make_unique<UnaryLayerOp>(std::move(op));
  }
  static absl::StatusOr<std::unique_ptr<LayerOp>> MakeMaskedMean(const kernels::TensorDesc& input,
                                                                 kernels::Device& device) {
    CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeMaskedMean({.input = input}));
    return std::make_unique<NaryLayerOp>(std::move(op));
  }

  const bool keep_dims_;
};

}  // namespace

std::unique_ptr<Layer> MakeGlobalAveragePooling1D(std::string name, ConfigReader& config) {
  config.Refuse("data_format", "channels_last");
  return std::make_unique<GlobalAveragePooling1DLayer>(std::move(name), config.Bool("keepdims", false));
}

}  // namespace cairn::nn
