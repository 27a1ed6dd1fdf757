// Conv1D: a convolution over an image of one row, kernel [width, c / groups, filters].
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "kernels/window.h"
#include "nn/layers/image/conv_layer.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

class Conv1DLayer final : public ConvLayer {
 public:
  using ConvLayer::ConvLayer;

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (inputs[0].rank() != 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("input ", inputs[0].ToString(), " is not a sequence [steps, channels]"));
    }
    CAIRN_ASSIGN_OR_RETURN(
        const Shape output,
        kernels::OutputShape(config_.Params({.shape = {1, 1, inputs[0][0], inputs[0][1]}})));
    return Shape({output[2], output[3]});
  }

  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    return config_.KernelAndBias({config_.kernel_size[1], inputs[0][1] / config_.groups, config_.filters},
                                 config_.filters);
  }

  bool accepts_blocked(absl::Span<const Shape>) const override { return false; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const Shape& input = params.inputs[0].shape;
    kernels::Conv2DParams op_params =
        config_.Params(params.inputs[0].WithShape({input[0], 1, input[1], input[2]}));
    op_params.needs_input_gradient = params.needs_input_gradients;
    CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeConv2D(op_params));
    std::unique_ptr<LayerOp> conv = std::make_unique<LinearLayerOp>(std::move(op), config_.use_bias);
    const kernels::TensorDesc image = conv->output();
    const kernels::TensorDesc sequence = image.WithShape({image.shape[0], image.shape[2], image.shape[3]});
    if (image.layout != kernels::Layout::kRowMajor) {
      std::vector<ChainOp::Link> links;
      links.push_back({std::move(conv)});
      CAIRN_ASSIGN_OR_RETURN(auto reorder, ReorderOp::Create(image, device));
      links.push_back({std::move(reorder)});
      CAIRN_ASSIGN_OR_RETURN(conv, ChainOp::Create(std::move(links), device));
    }
    return ReluFusedOp(std::make_unique<ReshapedOp>(sequence, std::move(conv)), config_.activation, device);
  }
};

}  // namespace

std::unique_ptr<Layer> MakeConv1D(std::string name, ConfigReader& config) {
  ConvConfig read = ReadConv1DConfig(config);
  read.filters = config.PositiveInt("filters");
  read.groups = config.PositiveInt("groups", 1);
  return std::make_unique<Conv1DLayer>(std::move(name), "Conv1D", std::move(read));
}

}  // namespace cairn::nn
