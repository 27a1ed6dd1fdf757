// MaxPooling1D, 2D and 3D, and AveragePooling1D, 2D and 3D: channels last, images in the layout that the input has.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "kernels/window.h"
#include "nn/layers/image/conv_config.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"
#include "nn/layers/spatial.h"

namespace cairn::nn {
namespace {

class PoolingLayer final : public Layer {
 public:
  struct Config {
    kernels::Pooling pooling;
    std::vector<int64_t> pool_size, strides;  // [spatial axis]
    kernels::Padding padding;
  };
  PoolingLayer(std::string name, std::string class_name, Config config)
      : Layer(std::move(name), std::move(class_name)), config_(std::move(config)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_RETURN_IF_ERROR(CheckSpatial(inputs[0], config_.pool_size.size()));
    Shape output;
    for (size_t axis = 0; axis < config_.pool_size.size(); ++axis) {
      output.Append(kernels::MakeWindow(inputs[0][static_cast<int>(axis)], config_.pool_size[axis],
                                        config_.strides[axis], config_.padding)
                        .output);
    }
    const int64_t channels = inputs[0][inputs[0].rank() - 1];
    if (std::min(output.num_elements(), channels) < 1) {
      return absl::InvalidArgumentError(absl::StrCat("a window of ", absl::StrJoin(config_.pool_size, "x"),
                                                     " does not fit input ", inputs[0].ToString()));
    }
    output.Append(channels);
    return output;
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
  bool accepts_blocked(absl::Span<const Shape>) const override { return config_.pool_size.size() == 2; }

  // The maxima of maxima, and the means of means, are those of the whole window.
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const auto of = [](const std::vector<int64_t>& values, int axis) {
      return axis == kNoAxis ? 1 : values[static_cast<size_t>(axis)];
    };
    return MakeSpatialOp(
        params.inputs[0],
        [&](const kernels::TensorDesc& image, int rows,
            int columns) -> absl::StatusOr<std::unique_ptr<LayerOp>> {
          CAIRN_ASSIGN_OR_RETURN(auto op,
                                 device.ops().MakePool2D({.pooling = config_.pooling,
                                                          .input = image,
                                                          .pool_height = of(config_.pool_size, rows),
                                                          .pool_width = of(config_.pool_size, columns),
                                                          .stride_height = of(config_.strides, rows),
                                                          .stride_width = of(config_.strides, columns),
                                                          .padding = config_.padding}));
          return std::make_unique<UnaryLayerOp>(std::move(op), kReadsNothing);
        },
        device);
  }

  std::optional<std::array<int64_t, 2>> max_pooling() const override {
    const bool side_by_side =
        config_.pool_size == config_.strides && config_.padding == kernels::Padding::kValid;
    if (config_.pooling != kernels::Pooling::kMax || !side_by_side || config_.pool_size.size() != 2) {
      return std::nullopt;
    }
    return std::array<int64_t, 2>{config_.pool_size[0], config_.pool_size[1]};
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    const Shape input = onnx.ShapeOf(inputs[0]);
    CAIRN_ASSIGN_OR_RETURN(const Shape output, OutputShape({&input, 1}));
    const std::vector<int64_t> adjacent(config_.pool_size.size(), 1);
    // Both kinds of pooling ignore elements beyond the edge, in ONNX as in Keras.
    const std::string name =
        onnx.Add(config_.pooling == kernels::Pooling::kMax ? "MaxPool" : "AveragePool",
                 {onnx.ChannelsFirst(inputs[0])},
                 OnnxWindows(input.dims().first(config_.pool_size.size()), config_.pool_size, config_.strides,
                             adjacent, config_.padding));
    return onnx.FromChannelsFirst(name, output);
  }

 private:
  const Config config_;
};

std::unique_ptr<Layer> MakePooling(kernels::Pooling pooling, size_t axes, const char* class_name,
                                   std::string name, ConfigReader& config) {
  const std::vector<int64_t> pool_size =
      config.PositiveInts("pool_size", axes, std::vector<int64_t>(axes, 2));
  PoolingLayer::Config read = {.pooling = pooling,
                               .pool_size = pool_size,
                               .strides = config.PositiveInts("strides", axes, pool_size),
                               .padding = ReadPadding(config)};
  config.Refuse("data_format", "channels_last");
  return std::make_unique<PoolingLayer>(std::move(name), class_name, std::move(read));
}

}  // namespace

std::unique_ptr<Layer> MakeAveragePooling1D(std::string name, ConfigReader& config) {
  return MakePooling(kernels::Pooling::kAverage, 1, "AveragePooling1D", std::move(name), config);
}

std::unique_ptr<Layer> MakeAveragePooling2D(std::string name, ConfigReader& config) {
  return MakePooling(kernels::Pooling::kAverage, 2, "AveragePooling2D", std::move(name), config);
}

std::unique_ptr<Layer> MakeAveragePooling3D(std::string name, ConfigReader& config) {
  return MakePooling(kernels::Pooling::kAverage, 3, "AveragePooling3D", std::move(name), config);
}

std::unique_ptr<Layer> MakeMaxPooling1D(std::string name, ConfigReader& config) {
  return MakePooling(kernels::Pooling::kMax, 1, "MaxPooling1D", std::move(name), config);
}

std::unique_ptr<Layer> MakeMaxPooling2D(std::string name, ConfigReader& config) {
  return MakePooling(kernels::Pooling::kMax, 2, "MaxPooling2D", std::move(name), config);
}

std::unique_ptr<Layer> MakeMaxPooling3D(std::string name, ConfigReader& config) {
  return MakePooling(kernels::Pooling::kMax, 3, "MaxPooling3D", std::move(name), config);
}

}  // namespace cairn::nn
