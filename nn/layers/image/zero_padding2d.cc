// ZeroPadding2D: adds a frame of zeros.
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/image/conv_config.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

struct Frame {
  int64_t top = 0, bottom = 0, left = 0, right = 0;
};

class ZeroPadding2DLayer final : public Layer {
 public:
  ZeroPadding2DLayer(std::string name, Frame frame)
      : Layer(std::move(name), "ZeroPadding2D"), frame_(frame) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_RETURN_IF_ERROR(CheckImage(inputs[0]));
    return Shape(
        {inputs[0][0] + frame_.top + frame_.bottom, inputs[0][1] + frame_.left + frame_.right, inputs[0][2]});
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
  bool accepts_blocked(absl::Span<const Shape>) const override { return true; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeZeroPad2D({.input = params.inputs[0],
                                                                .top = frame_.top,
                                                                .bottom = frame_.bottom,
                                                                .left = frame_.left,
                                                                .right = frame_.right}));
    return std::make_unique<UnaryLayerOp>(std::move(op));
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    const Shape image = onnx.ShapeOf(inputs[0]);
    CAIRN_ASSIGN_OR_RETURN(const Shape output, OutputShape({&image, 1}));
    // ONNX lists the padding before every axis first, then the padding after every axis.
    if (onnx.IsChannelsFirst(inputs[0])) {
      const std::string pads =
          onnx.Ints("pads", {0, 0, frame_.top, frame_.left, 0, 0, frame_.bottom, frame_.right});
      return onnx.FromChannelsFirst(onnx.Add("Pad", {onnx.ChannelsFirst(inputs[0]), pads}), output);
    }
    const std::string pads =
        onnx.Ints("pads", {0, frame_.top, frame_.left, 0, 0, frame_.bottom, frame_.right, 0});
    return onnx.FromChannelsLast(onnx.Add("Pad", {onnx.ChannelsLast(inputs[0]), pads}), output);
  }

 private:
  const Frame frame_;
};

// Reads one side of Keras' padding: p, [height, width], or [[top, bottom], [left, right]].
bool ReadSide(const json& value, int64_t& before, int64_t& after) {
  constexpr int64_t kWidest = 1 << 16;
  const auto is_width = [](const json& n) { return n.is_number_integer() && n >= 0 && n <= kWidest; };
  if (is_width(value)) {
    before = after = value.get<int64_t>();
    return true;
  }
  if (!value.is_array() || value.size() != 2 || !is_width(value[0]) || !is_width(value[1])) return false;
  before = value[0].get<int64_t>();
  after = value[1].get<int64_t>();
  return true;
}

}  // namespace

std::unique_ptr<Layer> MakeZeroPadding2D(std::string name, ConfigReader& config) {
  const json& value = config.Raw("padding");
  Frame frame = {1, 1, 1, 1};
  bool valid = true;
  if (value.is_array() && value.size() == 2) {
    valid = ReadSide(value[0], frame.top, frame.bottom) && ReadSide(value[1], frame.left, frame.right);
  } else if (!value.is_null()) {
    valid = value.is_number_integer() && ReadSide(value, frame.top, frame.bottom) &&
            ReadSide(value, frame.left, frame.right);
  }
  if (!valid)
    config.Fail("padding",
                absl::StrCat("expected a value such as 1, [1,1] or [[1,1],[1,1]], got ", value.dump()));
  config.Refuse("data_format", "channels_last");
  return std::make_unique<ZeroPadding2DLayer>(std::move(name), frame);
}

}  // namespace cairn::nn
