// LayerNormalization over the last axis.
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

struct LayerNormConfig {
  float epsilon;
  bool scale, center;
  InitializerSpec gamma, beta;
  RegularizerSpec gamma_regularizer, beta_regularizer;
};

// Variables: gamma and beta, if they exist.
class LayerNormOp final : public LayerOp {
 public:
  LayerNormOp(kernels::TensorDesc output, bool scale, bool center, std::unique_ptr<kernels::LayerNorm> op)
      : output_(std::move(output)), scale_(scale), center_(center), op_(std::move(op)) {}

  const kernels::TensorDesc& output() const override { return output_; }
  absl::Status Forward(const ForwardArgs& args) override {
    return op_->Forward(args.inputs[0], scale_ ? args.variables.front() : nullptr,
                        center_ ? args.variables.back() : nullptr, args.output);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    return op_->Backward(args.inputs[0], scale_ ? args.variables.front() : nullptr, args.output_gradient,
                         args.input_gradients[0], scale_ ? args.gradients.front() : nullptr,
                         center_ ? args.gradients.back() : nullptr);
  }

 private:
  const kernels::TensorDesc output_;
  const bool scale_, center_;
  const std::unique_ptr<kernels::LayerNorm> op_;
};

class LayerNormalizationLayer final : public Layer {
 public:
  LayerNormalizationLayer(std::string name, LayerNormConfig config, int64_t axis)
      : Layer(std::move(name), "LayerNormalization"), config_(std::move(config)), axis_(axis) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (inputs[0].rank() < 1) return absl::InvalidArgumentError("input [] has no axis to work on");
    if (axis_ != -1 && axis_ != inputs[0].rank()) {
      return absl::InvalidArgumentError(absl::StrCat("axis: ", axis_, " of input ", inputs[0].ToString(),
                                                     " with its batch is not supported, only the last"));
    }
    return inputs[0];
  }

  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    const Shape width = {inputs[0][inputs[0].rank() - 1]};
    std::vector<VariableSpec> variables;
    if (config_.scale) {
      variables.push_back({.name = "gamma",
                           .shape = width,
                           .initializer = config_.gamma,
                           .regularizer = config_.gamma_regularizer});
    }
    if (config_.center) {
      variables.push_back({.name = "beta",
                           .shape = width,
                           .initializer = config_.beta,
                           .regularizer = config_.beta_regularizer});
    }
    return variables;
  }

  MaskUse mask_use() const override { return MaskUse::kPasses; }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const Shape& input = params.inputs[0].shape;
    const int64_t width = input[input.rank() - 1];
    CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeLayerNorm({.rows = input.num_elements() / width,
                                                                .width = width,
                                                                .type = params.inputs[0].type,
                                                                .epsilon = config_.epsilon,
                                                                .scale = config_.scale,
                                                                .center = config_.center}));
    return std::make_unique<LayerNormOp>(params.inputs[0], config_.scale, config_.center, std::move(op));
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    const Shape shape = onnx.ShapeOf(inputs[0]);
    const int64_t width = shape[shape.rank() - 1];
    std::vector<std::string> names = {onnx.ChannelsLast(inputs[0])};
    names.push_back(config_.scale
                        ? onnx.Weights(variables.front())
                        : onnx.Floats("ones", {width}, std::vector<float>(static_cast<size_t>(width), 1)));
    if (config_.center) names.push_back(onnx.Weights(variables.back()));
    return onnx.FromChannelsLast(onnx.Add("LayerNormalization", std::move(names),
                                          {{"axis", int64_t{-1}}, {"epsilon", config_.epsilon}}),
                                 shape);
  }

 private:
  const LayerNormConfig config_;
  const int64_t axis_;  // counted with the batch axis, or -1
};

}  // namespace

std::unique_ptr<Layer> MakeLayerNormalization(std::string name, ConfigReader& config) {
  LayerNormConfig read = {.epsilon = static_cast<float>(config.Number("epsilon", 1e-3)),
                          .scale = config.Bool("scale", true),
                          .center = config.Bool("center", true),
                          .gamma = config.Initializer("gamma_initializer", "ones"),
                          .beta = config.Initializer("beta_initializer", "zeros"),
                          .gamma_regularizer = config.Regularizer("gamma_regularizer"),
                          .beta_regularizer = config.Regularizer("beta_regularizer")};
  if (!(read.epsilon >= 0)) config.Fail("epsilon", absl::StrCat(read.epsilon, " is negative"));
  config.Refuse("rms_scaling", false);
  config.RefuseUnlessNull({"beta_constraint", "gamma_constraint"});
  const std::vector<int64_t> axis = config.Ints("axis", {{-1}});
  if (axis.size() != 1) config.Fail("axis", "several axes are not supported, only the last");
  return std::make_unique<LayerNormalizationLayer>(std::move(name), std::move(read),
                                                   axis.empty() ? -1 : axis[0]);
}

}  // namespace cairn::nn
