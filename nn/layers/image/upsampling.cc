// UpSampling1D, 2D and 3D: repeats every pixel, or interpolates between pixels.
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

using kernels::Interpolation;

class UpSamplingLayer final : public Layer {
 public:
  // `size` has the factor of each spatial axis.
  UpSamplingLayer(std::string name, std::string class_name, std::vector<int64_t> size,
                  Interpolation interpolation = Interpolation::kNearest)
      : Layer(std::move(name), std::move(class_name)),
        size_(std::move(size)),
        interpolation_(interpolation) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_RETURN_IF_ERROR(CheckSpatial(inputs[0], size_.size()));
    Shape output;
    for (size_t axis = 0; axis < size_.size(); ++axis) {
      output.Append(inputs[0][static_cast<int>(axis)] * size_[axis]);
    }
    output.Append(inputs[0][inputs[0].rank() - 1]);
    return output;
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
  bool accepts_blocked(absl::Span<const Shape>) const override { return size_.size() == 2; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const auto factor = [&](int axis) { return axis == kNoAxis ? 1 : size_[static_cast<size_t>(axis)]; };
    return MakeSpatialOp(
        params.inputs[0],
        [&](const kernels::TensorDesc& image, int rows,
            int columns) -> absl::StatusOr<std::unique_ptr<LayerOp>> {
          CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeUpsample2D({.input = image,
                                                                       .height = factor(rows),
                                                                       .width = factor(columns),
                                                                       .interpolation = interpolation_}));
          return std::make_unique<UnaryLayerOp>(std::move(op), kReadsNothing);
        },
        device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    const Shape input = onnx.ShapeOf(inputs[0]);
    CAIRN_ASSIGN_OR_RETURN(const Shape output, OutputShape({&input, 1}));
    std::vector<float> scales = {1, 1};
    for (const int64_t factor : size_) scales.push_back(static_cast<float>(factor));
    const Shape axes = {static_cast<int64_t>(scales.size())};
    // ONNX's default, the centers of pixels half a pixel from the edges, is Keras' rule too.
    const std::string mode = interpolation_ == Interpolation::kNearest ? "nearest" : "linear";
    return onnx.FromChannelsFirst(
        onnx.Add("Resize",
                 {onnx.ChannelsFirst(inputs[0]), "", onnx.Floats("scales", axes, std::move(scales))},
                 {{"mode", mode}}),
        output);
  }

 private:
  const std::vector<int64_t> size_;
  const Interpolation interpolation_;
};

}  // namespace

std::unique_ptr<Layer> MakeUpSampling1D(std::string name, ConfigReader& config) {
  return std::make_unique<UpSamplingLayer>(std::move(name), "UpSampling1D",
                                           config.PositiveInts("size", 1, {{2}}));
}

std::unique_ptr<Layer> MakeUpSampling2D(std::string name, ConfigReader& config) {
  std::vector<int64_t> size = config.PositiveInts("size", 2, {{2, 2}});
  const std::string interpolation = config.Choice("interpolation", {"nearest", "bilinear"}, "nearest");
  config.Refuse("data_format", "channels_last");
  return std::make_unique<UpSamplingLayer>(
      std::move(name), "UpSampling2D", std::move(size),
      interpolation == "nearest" ? Interpolation::kNearest : Interpolation::kBilinear);
}

std::unique_ptr<Layer> MakeUpSampling3D(std::string name, ConfigReader& config) {
  std::vector<int64_t> size = config.PositiveInts("size", 3, {{2, 2, 2}});
  config.Refuse("data_format", "channels_last");
  return std::make_unique<UpSamplingLayer>(std::move(name), "UpSampling3D", std::move(size));
}

}  // namespace cairn::nn
