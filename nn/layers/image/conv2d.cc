// Conv2D: channels last, kernel [kh, kw, c / groups, filters].
#include <utility>

#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/image/conv_layer.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

class Conv2DLayer final : public ConvLayer {
 public:
  using ConvLayer::ConvLayer;

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeFusedOp(const LayerOpParams& params, const Layer& next,
                                                       kernels::Device& device) const override {
    const auto windows = next.max_pooling();
    if (!windows.has_value() || !config_.activation.is_plain_relu()) {
      return absl::UnimplementedError("nothing to fuse");
    }
    kernels::Conv2DParams op_params = config_.Params(params.inputs[0]);
    op_params.needs_input_gradient = params.needs_input_gradients;
    op_params.pool_height = (*windows)[0];
    op_params.pool_width = (*windows)[1];
    CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeConv2D(op_params));
    return std::make_unique<LinearLayerOp>(std::move(op), config_.use_bias);
  }
};

}  // namespace

std::unique_ptr<Layer> MakeConv2D(std::string name, ConfigReader& config) {
  ConvConfig read = ReadConvConfig(config);
  read.filters = config.PositiveInt("filters");
  read.groups = config.PositiveInt("groups", 1);
  return std::make_unique<Conv2DLayer>(std::move(name), "Conv2D", std::move(read));
}

}  // namespace cairn::nn
