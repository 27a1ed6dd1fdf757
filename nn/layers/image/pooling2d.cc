// MaxPooling2D and AveragePooling2D: channels last, in the layout that the input has.
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/core/status.h"
#include "kernels/ops.h"
#include "kernels/window.h"
#include "nn/layers/image/conv_config.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

class Pooling2DLayer final : public Layer {
 public:
  struct Config {
    kernels::Pooling pooling;
    std::array<int64_t, 2> pool_size, strides;
    kernels::Padding padding;
  };
  Pooling2DLayer(std::string name, std::string class_name, Config config)
      : Layer(std::move(name), std::move(class_name)), config_(config) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    return ImageOutputShape(inputs[0],
                            [this](kernels::TensorDesc input) { return Params(std::move(input)); });
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
  bool accepts_blocked(absl::Span<const Shape>) const override { return true; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakePool2D(Params(params.inputs[0])));
    return std::make_unique<UnaryLayerOp>(std::move(op));
  }

  std::optional<std::array<int64_t, 2>> max_pooling() const override {
    const bool side_by_side =
        config_.pool_size == config_.strides && config_.padding == kernels::Padding::kValid;
    if (config_.pooling != kernels::Pooling::kMax || !side_by_side) return std::nullopt;
    return config_.pool_size;
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    const Shape image = onnx.ShapeOf(inputs[0]);
    CAIRN_ASSIGN_OR_RETURN(const Shape output, OutputShape({&image, 1}));
    // Both kinds of pooling ignore elements beyond the edge, in ONNX as in Keras.
    const std::string name = onnx.Add(
        config_.pooling == kernels::Pooling::kMax ? "MaxPool" : "AveragePool",
        {onnx.ChannelsFirst(inputs[0])},
        OnnxWindows(image.dims().first(2), config_.pool_size, config_.strides, {1, 1}, config_.padding));
    return onnx.FromChannelsFirst(name, output);
  }

 private:
  kernels::Pool2DParams Params(kernels::TensorDesc input) const {
    return {.pooling = config_.pooling,
            .input = std::move(input),
            .pool_height = config_.pool_size[0],
            .pool_width = config_.pool_size[1],
            .stride_height = config_.strides[0],
            .stride_width = config_.strides[1],
            .padding = config_.padding};
  }

  const Config config_;
};

std::unique_ptr<Layer> MakePooling(kernels::Pooling pooling, const char* class_name, std::string name,
                                   ConfigReader& config) {
  const std::array<int64_t, 2> pool_size = config.PositivePair("pool_size", {{2, 2}});
  const Pooling2DLayer::Config read = {.pooling = pooling,
                                       .pool_size = pool_size,
                                       .strides = config.PositivePair("strides", pool_size),
                                       .padding = ReadPadding(config)};
  config.Refuse("data_format", "channels_last");
  return std::make_unique<Pooling2DLayer>(std::move(name), class_name, read);
}

}  // namespace

std::unique_ptr<Layer> MakeAveragePooling2D(std::string name, ConfigReader& config) {
  return MakePooling(kernels::Pooling::kAverage, "AveragePooling2D", std::move(name), config);
}

std::unique_ptr<Layer> MakeMaxPooling2D(std::string name, ConfigReader& config) {
  return MakePooling(kernels::Pooling::kMax, "MaxPooling2D", std::move(name), config);
}

}  // namespace cairn::nn
