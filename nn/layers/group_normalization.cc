// GroupNormalization: normalizes groups of adjacent channels of each example over all places.
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/axes.h"
#include "nn/layers/channel_scale.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"
#include "nn/layers/norm_weights.h"

namespace cairn::nn {
namespace {

struct GroupNormConfig : NormWeights {
  int64_t groups = 0;  // -1: one for each channel
  int64_t axis = -1;   // of the channels, counted with the batch
  float epsilon = 0;
};

// Rows of numbers to the mean 0 and the variance 1. No variables.
class StandardRowsOp final : public LayerOp {
 public:
  StandardRowsOp(kernels::TensorDesc output, std::unique_ptr<kernels::LayerNorm> op)
      : output_(std::move(output)), op_(std::move(op)) {}

  const kernels::TensorDesc& output() const override { return output_; }
  absl::Status Forward(const ForwardArgs& args) override {
    return op_->Forward(args.inputs[0], nullptr, nullptr, args.output);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    if (args.input_gradients[0] == nullptr) return absl::OkStatus();
    return op_->Backward(args.inputs[0], nullptr, args.output_gradient, args.input_gradients[0], nullptr,
                         nullptr);
  }

 private:
  const kernels::TensorDesc output_;
  const std::unique_ptr<kernels::LayerNorm> op_;
};

class GroupNormalizationLayer final : public Layer {
 public:
  GroupNormalizationLayer(std::string name, GroupNormConfig config)
      : Layer(std::move(name), "GroupNormalization"), config_(std::move(config)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_ASSIGN_OR_RETURN(const int axis, ChannelAxis(inputs[0]));
    const int64_t channels = inputs[0][axis - 1];
    if (channels % GroupsOf(channels) != 0) {
      return absl::InvalidArgumentError(absl::StrCat("groups: ", config_.groups, " do not divide the ",
                                                     channels, " channels of input ", inputs[0].ToString()));
    }
    return inputs[0];
  }

  MaskUse mask_use() const override { return MaskUse::kPasses; }
  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    return config_.Variables({inputs[0][*ChannelAxis(inputs[0]) - 1]});
  }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const kernels::TensorDesc& input = params.inputs[0];
    CAIRN_ASSIGN_OR_RETURN(const int axis, ChannelAxis(Shape(input.shape.dims().subspan(1))));
    return MakeOnLastAxes(
        input, {axis}, config_.variables(),
        [&](const kernels::TensorDesc& last) { return MakeForLastAxis(last, device); }, device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    const Shape shape = onnx.ShapeOf(inputs[0]);
    CAIRN_ASSIGN_OR_RETURN(const int axis, ChannelAxis(shape));
    if (axis != shape.rank()) return absl::UnimplementedError("axis: in ONNX only the last");
    const int64_t channels = shape[axis - 1], groups = GroupsOf(channels);
    const auto constant = [&](const char* what, float value) {
      return onnx.Floats(what, {groups}, std::vector<float>(static_cast<size_t>(groups), value));
    };
    // Instances of one "channel" per group.
    const std::string grouped =
        onnx.Add("Reshape", {onnx.ChannelsFirst(inputs[0]), onnx.Ints("groups", {0, groups, -1})});
    const std::string normal =
        onnx.Add("InstanceNormalization", {grouped, constant("ones", 1), constant("zeros", 0)},
                 {{"epsilon", config_.epsilon}});
    std::vector<int64_t> extents = {0, channels};
    Shape broadcast = {channels};
    for (int other = 0; other + 1 < shape.rank(); ++other) {
      extents.push_back(shape[other]);
      broadcast.Append(1);
    }
    std::string y = onnx.Add("Reshape", {normal, onnx.Ints("shape", std::move(extents))});
    if (config_.scale) y = onnx.Add("Mul", {y, onnx.Weights(variables.front(), {0}, broadcast)});
    if (config_.center) y = onnx.Add("Add", {y, onnx.Weights(variables.back(), {0}, broadcast)});
    return onnx.FromChannelsFirst(y, shape);
  }

 private:
  int64_t GroupsOf(int64_t channels) const { return config_.groups == -1 ? channels : config_.groups; }
  // Counted with the batch.
  absl::StatusOr<int> ChannelAxis(const Shape& input) const {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<int> axes, ResolveAxes({config_.axis}, input));
    return axes[0];
  }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeForLastAxis(const kernels::TensorDesc& input,
                                                           kernels::Device& device) const {
    const Shape& shape = input.shape;
    const int64_t examples = shape[0], channels = shape[shape.rank() - 1], groups = GroupsOf(channels);
    const int64_t places = shape.num_elements() / (examples * channels);
    const kernels::TensorDesc grouped = input.WithShape({examples, places, groups, channels / groups});
    const auto standardize =
        [&](const kernels::TensorDesc& rows) -> absl::StatusOr<std::unique_ptr<LayerOp>> {
      CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeLayerNorm({.rows = examples * groups,
                                                                  .width = places * channels / groups,
                                                                  .type = input.type,
                                                                  .epsilon = config_.epsilon,
                                                                  .scale = false,
                                                                  .center = false}));
      return std::make_unique<StandardRowsOp>(rows, std::move(op));
    };
    // The places and channels of a group are adjacent for the normalization.
    CAIRN_ASSIGN_OR_RETURN(auto standard, MakeOnLastAxes(grouped, {1, 3}, 0, standardize, device));
    if (config_.variables() == 0) return std::make_unique<ReshapedOp>(input, std::move(standard));
    CAIRN_ASSIGN_OR_RETURN(auto scale,
                           MakeChannelScale({.input = input.WithShape({examples * places, channels}),
                                             .scale = config_.scale,
                                             .center = config_.center},
                                            device));
    std::vector<ChainOp::Link> links;
    links.push_back({std::move(standard)});
    links.push_back({std::move(scale), config_.variables()});
    CAIRN_ASSIGN_OR_RETURN(auto chain, ChainOp::Create(std::move(links), device));
    return std::make_unique<ReshapedOp>(input, std::move(chain));
  }

  const GroupNormConfig config_;
};

}  // namespace

std::unique_ptr<Layer> MakeGroupNormalization(std::string name, ConfigReader& config) {
  const std::vector<int64_t> groups = config.Ints("groups", {{32}}), axis = config.Ints("axis", {{-1}});
  GroupNormConfig read = {ReadNormWeights(config)};
  if (!groups.empty()) read.groups = groups[0];
  if (!axis.empty()) read.axis = axis[0];
  read.epsilon = static_cast<float>(config.Number("epsilon", 1e-3));
  if (groups.size() != 1 || (read.groups < 1 && read.groups != -1)) {
    config.Fail("groups", "expected a positive integer, or -1 for one group per channel");
  }
  if (axis.size() != 1) config.Fail("axis", "expected one axis");
  if (!(read.epsilon >= 0)) config.Fail("epsilon", absl::StrCat(read.epsilon, " is negative"));
  return std::make_unique<GroupNormalizationLayer>(std::move(name), std::move(read));
}

}  // namespace cairn::nn
