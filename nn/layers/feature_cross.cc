// keras_rs' FeatureCross, a layer of DCN v2: y = x0 * (W x + bias + diag_scale * x) + x.
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/activation.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear_config.h"

namespace cairn::nn {
namespace {

// Inputs x0 and x, each [..., width].
class FeatureCrossOp final : public LayerOp {
 public:
  // `linear` maps x to W x + bias. Its input gradient is computed if `needs_input_gradients`.
  static absl::StatusOr<std::unique_ptr<LayerOp>> Create(std::unique_ptr<LayerOp> linear, float diag_scale,
                                                         bool needs_input_gradients,
                                                         kernels::Device& device) {
    auto op = std::make_unique<FeatureCrossOp>();
    op->linear_ = std::move(linear);
    op->needs_input_gradients_ = needs_input_gradients;
    const kernels::TensorDesc& desc = op->linear_->output();
    CAIRN_ASSIGN_OR_RETURN(op->add_, device.ops().MakeAdd(desc, 2));
    CAIRN_ASSIGN_OR_RETURN(op->multiply_, device.ops().MakeMultiply(desc, 2));
    std::vector<std::unique_ptr<kernels::DeviceMemory>*> memory = {
        &op->mapped_, &op->product_, &op->factor_gradient_, &op->linear_gradient_};
    if (diag_scale != 0) {
      CAIRN_ASSIGN_OR_RETURN(
          op->scale_, device.ops().MakeAffine({.input = desc, .scale = {diag_scale}, .offset = {0.0f}}));
      memory.insert(memory.end(), {&op->scaled_, &op->factor_});
    }
    for (std::unique_ptr<kernels::DeviceMemory>* each : memory) {
      CAIRN_ASSIGN_OR_RETURN(*each, device.Allocate(desc.num_floats(), "values within a layer"));
    }
    return op;
  }

  const kernels::TensorDesc& output() const override { return linear_->output(); }

  absl::Status Forward(const ForwardArgs& args) override {
    const float* const x = args.inputs[1];
    ForwardArgs map = args;
    map.inputs = absl::MakeConstSpan(&x, 1);
    map.output = mapped_->data();
    CAIRN_RETURN_IF_ERROR(linear_->Forward(map));
    if (scale_ != nullptr) {
      CAIRN_RETURN_IF_ERROR(scale_->Forward(x, scaled_->data()));
      CAIRN_RETURN_IF_ERROR(add_->Forward({mapped_->data(), scaled_->data()}, factor_->data()));
    }
    CAIRN_RETURN_IF_ERROR(multiply_->Forward({args.inputs[0], factor()}, product_->data()));
    return add_->Forward({product_->data(), x}, args.output);
  }

  // With f = W x + bias + diag_scale x: dx0 = f dy, df = x0 dy, dx = dy + W^T df + diag_scale df.
  absl::Status Backward(const BackwardArgs& args) override {
    const float* const x = args.inputs[1];
    float* const dx = args.input_gradients[1];
    float* const df = factor_gradient_->data();
    CAIRN_RETURN_IF_ERROR(
        multiply_->Backward({args.inputs[0], factor()}, args.output_gradient, {args.input_gradients[0], df}));
    if (scale_ != nullptr && dx != nullptr) {
      CAIRN_RETURN_IF_ERROR(scale_->Backward(x, scaled_->data(), df, product_->data()));
    }
    float* const through_map = needs_input_gradients_ ? linear_gradient_->data() : nullptr;
    CAIRN_RETURN_IF_ERROR(linear_->Backward({.inputs = absl::MakeConstSpan(&x, 1),
                                             .variables = args.variables,
                                             .output = mapped_->data(),
                                             .output_gradient = df,
                                             .input_gradients = absl::MakeConstSpan(&through_map, 1),
                                             .gradients = args.gradients,
                                             .on_gradients = args.on_gradients}));
    if (dx == nullptr) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(add_->Forward({args.output_gradient, through_map}, dx));
    return scale_ == nullptr ? absl::OkStatus() : add_->Forward({dx, product_->data()}, dx);
  }

 private:
  const float* factor() const { return scale_ == nullptr ? mapped_->data() : factor_->data(); }

  std::unique_ptr<LayerOp> linear_;
  bool needs_input_gradients_ = true;
  std::unique_ptr<kernels::NaryOp> add_, multiply_;  // of two inputs
  std::unique_ptr<kernels::UnaryOp> scale_;          // null if diag_scale is 0
  // All have the shape of the output. mapped_ = W x + bias, scaled_ = diag_scale x, factor_ = their sum, product_ =
  // x0 * factor. Backward() also uses product_.
  std::unique_ptr<kernels::DeviceMemory> mapped_, scaled_, factor_, product_, factor_gradient_,
      linear_gradient_;
};

class FeatureCrossLayer final : public Layer {
 public:
  FeatureCrossLayer(std::string name, int64_t projection_dim, float diag_scale, LinearConfig config)
      : Layer(std::move(name), "FeatureCross"),
        projection_dim_(projection_dim),
        diag_scale_(diag_scale),
        config_(std::move(config)) {}

  bool merges() const override { return true; }
  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (inputs.size() != 2)
      return absl::InvalidArgumentError(absl::StrCat("takes x0 and x, not ", inputs.size(), " inputs"));
    if (inputs[0].rank() < 1) return absl::InvalidArgumentError("input [] has no axis to work on");
    if (inputs[0] != inputs[1]) {
      return absl::InvalidArgumentError(absl::StrCat("inputs x0 ", inputs[0].ToString(), " and x ",
                                                     inputs[1].ToString(), " have different shapes"));
    }
    return inputs[0];
  }

  // As in Keras, both kernels of a projection have the same initializer and regularizer.
  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    const int64_t width = inputs[0][inputs[0].rank() - 1];
    if (projection_dim_ == 0) return config_.KernelAndBias({width, width}, width);
    std::vector<VariableSpec> variables = config_.KernelAndBias({projection_dim_, width}, width);
    VariableSpec projection = variables[0];
    projection.name = "projection_kernel";
    projection.shape = {width, projection_dim_};
    variables.insert(variables.begin(), std::move(projection));
    return variables;
  }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const kernels::TensorDesc& input = params.inputs[1];
    const int64_t width = input.shape[input.shape.rank() - 1], rows = input.shape.num_elements() / width;
    std::vector<ChainOp::Link> links;
    kernels::TensorDesc desc = input.WithShape({rows, width});
    if (projection_dim_ > 0) {
      CAIRN_ASSIGN_OR_RETURN(auto op,
                             device.ops().MakeDense({.input = desc,
                                                     .units = projection_dim_,
                                                     .use_bias = false,
                                                     .needs_input_gradient = params.needs_input_gradients}));
      desc = op->output();
      links.push_back({.op = std::make_unique<LinearLayerOp>(std::move(op), /*use_bias=*/false)});
    }
    CAIRN_ASSIGN_OR_RETURN(
        auto op,
        device.ops().MakeDense({.input = desc,
                                .units = width,
                                .use_bias = config_.use_bias,
                                .relu = config_.activation.is_plain_relu(),
                                .needs_input_gradient = params.needs_input_gradients || !links.empty()}));
    const kernels::TensorDesc output = op->output().WithShape(input.shape);
    auto dense = std::make_unique<ReshapedOp>(
        output, std::make_unique<LinearLayerOp>(std::move(op), config_.use_bias));
    CAIRN_ASSIGN_OR_RETURN(auto activated, ReluFusedOp(std::move(dense), config_.activation, device));
    links.push_back({.op = std::move(activated), .variables = size_t{1} + (config_.use_bias ? 1 : 0)});
    CAIRN_ASSIGN_OR_RETURN(auto linear, ChainOp::Create(std::move(links), device));
    return FeatureCrossOp::Create(std::move(linear), diag_scale_, params.needs_input_gradients, device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    const Shape shape = onnx.ShapeOf(inputs[0]);
    const std::string x0 = onnx.ChannelsLast(inputs[0]), x = onnx.ChannelsLast(inputs[1]);
    std::string mapped = x;
    const size_t kernels = projection_dim_ > 0 ? 2 : 1;
    for (size_t i = 0; i < kernels; ++i) mapped = onnx.Add("MatMul", {mapped, onnx.Weights(variables[i])});
    if (config_.use_bias) mapped = onnx.Add("Add", {mapped, onnx.Weights(variables[kernels])});
    std::string factor =
        onnx.ChannelsLast(OnnxActivation(config_.activation, onnx.FromChannelsLast(mapped, shape), onnx));
    if (diag_scale_ != 0) {
      factor = onnx.Add("Add", {factor, onnx.Add("Mul", {x, onnx.Scalar("diag_scale", diag_scale_)})});
    }
    return onnx.FromChannelsLast(onnx.Add("Add", {onnx.Add("Mul", {x0, factor}), x}), shape);
  }

 private:
  const int64_t projection_dim_;  // 0: W is one square matrix
  const float diag_scale_;
  const LinearConfig config_;
};

}  // namespace

std::unique_ptr<Layer> MakeFeatureCross(std::string name, ConfigReader& config) {
  const int64_t projection_dim =
      config.Raw("projection_dim").is_null() ? 0 : config.PositiveInt("projection_dim");
  const double diag_scale = config.Number("diag_scale", 0);
  if (diag_scale < 0) config.Fail("diag_scale", "must not be negative");
  LinearConfig linear = {.activation = ReadActivation("pre_activation", config),
                         .use_bias = config.Bool("use_bias", true),
                         .kernel_initializer = config.Initializer("kernel_initializer", "glorot_uniform"),
                         .bias_initializer = config.Initializer("bias_initializer", "zeros"),
                         .kernel_regularizer = config.Regularizer("kernel_regularizer"),
                         .bias_regularizer = config.Regularizer("bias_regularizer")};
  return std::make_unique<FeatureCrossLayer>(std::move(name), projection_dim, static_cast<float>(diag_scale),
                                             std::move(linear));
}

}  // namespace cairn::nn
