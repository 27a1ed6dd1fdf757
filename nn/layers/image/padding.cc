// ZeroPadding1D, 2D and 3D add a frame of zeros. Cropping1D, 2D and 3D remove a frame.
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"
#include "nn/layers/spatial.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

// The width of the frame at both ends of a spatial axis.
struct Border {
  int64_t before = 0, after = 0;
};

class FrameLayer final : public Layer {
 public:
  // `frame` has a border for each spatial axis.
  FrameLayer(std::string name, std::string class_name, bool crops, std::vector<Border> frame)
      : Layer(std::move(name), std::move(class_name)), crops_(crops), frame_(std::move(frame)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_RETURN_IF_ERROR(CheckSpatial(inputs[0], frame_.size()));
    Shape output;
    for (size_t axis = 0; axis < frame_.size(); ++axis) {
      const Border& border = frame_[axis];
      const int64_t width = border.before + border.after, extent = inputs[0][static_cast<int>(axis)];
      if (crops_ && width >= extent) {
        return absl::InvalidArgumentError(absl::StrCat("cropping: ", border.before, " and ", border.after,
                                                       " leave nothing of the ", extent, " elements of axis ",
                                                       axis + 1, " of input ", inputs[0].ToString()));
      }
      output.Append(crops_ ? extent - width : extent + width);
    }
    output.Append(inputs[0][inputs[0].rank() - 1]);
    return output;
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
  bool accepts_blocked(absl::Span<const Shape>) const override { return frame_.size() == 2; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    return MakeSpatialOp(
        params.inputs[0],
        [&](const kernels::TensorDesc& image, int rows, int columns) {
          return MakeImageFrame(image, BorderOf(rows), BorderOf(columns), device);
        },
        device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    const Shape input = onnx.ShapeOf(inputs[0]);
    CAIRN_ASSIGN_OR_RETURN(const Shape output, OutputShape({&input, 1}));
    const bool first = onnx.IsChannelsFirst(inputs[0]);
    const std::string x = first ? onnx.ChannelsFirst(inputs[0]) : onnx.ChannelsLast(inputs[0]);
    const std::string y = crops_ ? OnnxSlice(x, input, first ? 2 : 1, onnx) : OnnxPad(x, first, onnx);
    return first ? onnx.FromChannelsFirst(y, output) : onnx.FromChannelsLast(y, output);
  }

 private:
  Border BorderOf(int axis) const { return axis == kNoAxis ? Border() : frame_[static_cast<size_t>(axis)]; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeImageFrame(const kernels::TensorDesc& image,
                                                          const Border& rows, const Border& columns,
                                                          kernels::Device& device) const {
    kernels::TensorDesc inner = image;
    if (crops_) {
      inner.shape = {image.shape[0], image.shape[1] - rows.before - rows.after,
                     image.shape[2] - columns.before - columns.after, image.shape[3]};
    }
    CAIRN_ASSIGN_OR_RETURN(auto padding, device.ops().MakeZeroPad2D({.input = inner,
                                                                     .top = rows.before,
                                                                     .bottom = rows.after,
                                                                     .left = columns.before,
                                                                     .right = columns.after}));
    if (crops_) return std::make_unique<CropOp>(std::move(inner), std::move(padding));
    return std::make_unique<UnaryLayerOp>(std::move(padding), kReadsNothing);
  }

  std::string OnnxSlice(const std::string& x, const Shape& input, int64_t first_axis,
                        OnnxBuilder& onnx) const {
    std::vector<int64_t> begins, ends, axes;
    for (size_t axis = 0; axis < frame_.size(); ++axis) {
      begins.push_back(frame_[axis].before);
      ends.push_back(input[static_cast<int>(axis)] - frame_[axis].after);
      axes.push_back(first_axis + static_cast<int64_t>(axis));
    }
    return onnx.Add("Slice", {x, onnx.Ints("begins", std::move(begins)), onnx.Ints("ends", std::move(ends)),
                              onnx.Ints("axes", std::move(axes))});
  }

  // ONNX lists the padding before every axis first, then the padding after every axis.
  std::string OnnxPad(const std::string& x, bool channels_first, OnnxBuilder& onnx) const {
    std::vector<int64_t> pads;
    for (const bool before : {true, false}) {
      pads.insert(pads.end(), channels_first ? 2 : 1, 0);
      for (const Border& border : frame_) pads.push_back(before ? border.before : border.after);
      if (!channels_first) pads.push_back(0);
    }
    return onnx.Add("Pad", {x, onnx.Ints("pads", std::move(pads))});
  }

  const bool crops_;
  const std::vector<Border> frame_;
};

bool IsBorderWidth(const json& value) {
  constexpr int64_t kWidest = 1 << 16;
  return value.is_number_integer() && value >= 0 && value <= kWidest;
}

// Reads one axis of Keras' frames: a width for both ends, or [before, after].
bool ReadBorder(const json& value, Border& border) {
  if (IsBorderWidth(value)) {
    border.before = border.after = value.get<int64_t>();
    return true;
  }
  if (!value.is_array() || value.size() != 2 || !IsBorderWidth(value[0]) || !IsBorderWidth(value[1]))
    return false;
  border = {value[0].get<int64_t>(), value[1].get<int64_t>()};
  return true;
}

// Reads a frame: a width for all axes, or an entry for each axis. A sequence's frame is the entry of its axis.
std::vector<Border> ReadFrame(absl::string_view field, size_t axes, int64_t absent, ConfigReader& config) {
  std::vector<Border> frame(axes, {absent, absent});
  const json& value = config.Raw(field);
  if (value.is_null()) return frame;
  const bool one = axes == 1 || IsBorderWidth(value);
  bool valid = one || (value.is_array() && value.size() == axes);
  for (size_t axis = 0; axis < axes && valid; ++axis)
    valid = ReadBorder(one ? value : value[axis], frame[axis]);
  if (!valid) {
    constexpr const char* kExamples[] = {"1 or [1,1]", "1, [1,1] or [[1,1],[1,1]]",
                                         "1, [1,1,1] or [[1,1],[1,1],[1,1]]"};
    config.Fail(field,
                absl::StrCat("expected a value such as ", kExamples[axes - 1], ", got ", value.dump()));
  }
  return frame;
}

std::unique_ptr<Layer> MakeFrame(std::string name, const char* class_name, bool crops, size_t axes,
                                 ConfigReader& config) {
  // Keras' default is a width of 1, except that Cropping2D removes nothing.
  std::vector<Border> frame =
      ReadFrame(crops ? "cropping" : "padding", axes, crops && axes == 2 ? 0 : 1, config);
  config.Refuse("data_format", "channels_last");
  return std::make_unique<FrameLayer>(std::move(name), class_name, crops, std::move(frame));
}

}  // namespace

std::unique_ptr<Layer> MakeCropping1D(std::string name, ConfigReader& config) {
  return MakeFrame(std::move(name), "Cropping1D", /*crops=*/true, 1, config);
}

std::unique_ptr<Layer> MakeCropping2D(std::string name, ConfigReader& config) {
  return MakeFrame(std::move(name), "Cropping2D", /*crops=*/true, 2, config);
}

std::unique_ptr<Layer> MakeCropping3D(std::string name, ConfigReader& config) {
  return MakeFrame(std::move(name), "Cropping3D", /*crops=*/true, 3, config);
}

std::unique_ptr<Layer> MakeZeroPadding1D(std::string name, ConfigReader& config) {
  return MakeFrame(std::move(name), "ZeroPadding1D", /*crops=*/false, 1, config);
}

std::unique_ptr<Layer> MakeZeroPadding2D(std::string name, ConfigReader& config) {
  return MakeFrame(std::move(name), "ZeroPadding2D", /*crops=*/false, 2, config);
}

std::unique_ptr<Layer> MakeZeroPadding3D(std::string name, ConfigReader& config) {
  return MakeFrame(std::move(name), "ZeroPadding3D", /*crops=*/false, 3, config);
}

}  // namespace cairn::nn
