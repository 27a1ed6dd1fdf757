// PReLU: x above 0, and alpha * x below, with an alpha for each element or shared along some axes.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"
#include "nn/layers/typed_parameter.h"

namespace cairn::nn {
namespace {

// y = max(x, 0) + alpha * min(x, 0), composed of existing ops. Variable: alpha.
class PReluOp final : public LayerOp {
 public:
  // `alpha` has the rank of the input, and extents of 1 where it is shared.
  static absl::StatusOr<std::unique_ptr<LayerOp>> Create(const kernels::TensorDesc& input, const Shape& alpha,
                                                         kernels::Device& device) {
    const kernels::TensorDesc alpha_desc = input.WithShape(alpha);
    std::unique_ptr<PReluOp> op(new PReluOp(input));
    CAIRN_ASSIGN_OR_RETURN(op->positive_,
                           device.ops().MakeActivation(input, {.kind = kernels::Activation::kRelu}));
    CAIRN_ASSIGN_OR_RETURN(
        op->negative_,
        device.ops().MakeActivation(input, {.kind = kernels::Activation::kRelu, .slope = 1, .limit = 0}));
    CAIRN_ASSIGN_OR_RETURN(op->multiply_,
                           device.ops().MakeBroadcastMerge(
                               {.kind = kernels::MergeKind::kMultiply, .inputs = {input, alpha_desc}}));
    CAIRN_ASSIGN_OR_RETURN(op->add_, device.ops().MakeAdd(input, 2));
    CAIRN_ASSIGN_OR_RETURN(op->alpha_, TypedParameter::Create(alpha_desc, device));
    for (auto* memory : {&op->above_, &op->below_, &op->scaled_}) {
      CAIRN_ASSIGN_OR_RETURN(*memory, device.Allocate(input.num_floats(), "PReLU"));
    }
    return op;
  }

  const kernels::TensorDesc& output() const override { return output_; }
  absl::Status Forward(const ForwardArgs& args) override {
    CAIRN_ASSIGN_OR_RETURN(const float* const alpha, alpha_.Load(args.variables[0]));
    CAIRN_RETURN_IF_ERROR(positive_->Forward(args.inputs[0], above_->data()));
    CAIRN_RETURN_IF_ERROR(negative_->Forward(args.inputs[0], below_->data()));
    CAIRN_RETURN_IF_ERROR(multiply_->Forward({below_->data(), alpha}, scaled_->data()));
    return add_->Forward({above_->data(), scaled_->data()}, args.output);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    float* const dx = args.input_gradients[0];
    float* const below_gradient = scaled_->data();
    CAIRN_RETURN_IF_ERROR(
        multiply_->Backward({below_->data(), alpha_.values()}, args.output_gradient,
                            {dx == nullptr ? nullptr : below_gradient, alpha_.Target(args.gradients[0])}));
    CAIRN_RETURN_IF_ERROR(alpha_.StoreGradient(args.gradients[0]));
    if (dx == nullptr) return absl::OkStatus();
    float* const from_below = below_->data();
    CAIRN_RETURN_IF_ERROR(negative_->Backward(args.inputs[0], below_->data(), below_gradient, dx));
    CAIRN_RETURN_IF_ERROR(
        positive_->Backward(args.inputs[0], above_->data(), args.output_gradient, from_below));
    return add_->Forward({dx, from_below}, dx);
  }

 private:
  explicit PReluOp(kernels::TensorDesc output) : output_(std::move(output)) {}

  const kernels::TensorDesc output_;
  std::unique_ptr<kernels::UnaryOp> positive_, negative_;
  std::unique_ptr<kernels::NaryOp> multiply_, add_;
  std::unique_ptr<kernels::DeviceMemory> above_, below_, scaled_;  // max(x, 0), min(x, 0), alpha * min(x, 0)
  TypedParameter alpha_;
};

class PReluLayer final : public Layer {
 public:
  struct Config {
    InitializerSpec initializer;
    RegularizerSpec regularizer;
    std::optional<Constraint> constraint;
    std::vector<int64_t> shared_axes;  // from 1 on; axis 0 is the batch
  };
  PReluLayer(std::string name, Config config) : Layer(std::move(name), "PReLU"), config_(std::move(config)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    for (const int64_t axis : config_.shared_axes) {
      if (axis > inputs[0].rank()) {
        return absl::InvalidArgumentError(absl::StrCat("shared_axes: input ", inputs[0].ToString(),
                                                       " has no axis ", axis, " (axis 0 is the batch)"));
      }
    }
    return inputs[0];
  }

  MaskUse mask_use() const override { return MaskUse::kPasses; }
  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    return {{.name = "alpha",
             .shape = AlphaOf(inputs[0]),
             .initializer = config_.initializer,
             .regularizer = config_.regularizer,
             .constraint = config_.constraint}};
  }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const kernels::TensorDesc& input = params.inputs[0];
    const Shape own = AlphaOf(Shape(input.shape.dims().subspan(1)));
    Shape alpha = {1};
    for (const int64_t extent : own.dims()) alpha.Append(extent);
    return PReluOp::Create(input, alpha, device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    return onnx.FromChannelsLast(
        onnx.Add("PRelu", {onnx.ChannelsLast(inputs[0]), onnx.Weights(variables[0])}),
        onnx.ShapeOf(inputs[0]));
  }

 private:
  Shape AlphaOf(const Shape& input) const {
    Shape alpha;
    for (int axis = 0; axis < input.rank(); ++axis) {
      const bool shared = std::find(config_.shared_axes.begin(), config_.shared_axes.end(), axis + 1) !=
                          config_.shared_axes.end();
      alpha.Append(shared ? 1 : input[axis]);
    }
    return alpha;
  }

  const Config config_;
};

}  // namespace

std::unique_ptr<Layer> MakePRelu(std::string name, ConfigReader& config) {
  PReluLayer::Config read = {.initializer = config.Initializer("alpha_initializer", "zeros"),
                             .regularizer = config.Regularizer("alpha_regularizer"),
                             .constraint = config.ReadConstraint("alpha_constraint"),
                             .shared_axes = config.Ints("shared_axes", {{}})};
  for (const int64_t axis : read.shared_axes) {
    if (axis < 1)
      config.Fail("shared_axes", absl::StrCat(axis, ": expected axes from 1 on (axis 0 is the batch)"));
  }
  return std::make_unique<PReluLayer>(std::move(name), std::move(read));
}

}  // namespace cairn::nn
