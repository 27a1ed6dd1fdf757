// Dense: kernel [inputs, units] over the last axis, with bias and relu fused, or a softmax after it.
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "worker/nn/layers/activation.h"
#include "worker/nn/layers/layers.h"

namespace cairn::nn {
namespace {

class DenseOp final : public LayerOp {
 public:
  DenseOp(kernels::TensorDesc output, std::unique_ptr<kernels::Dense> op, bool use_bias)
      : output_(std::move(output)), op_(std::move(op)), use_bias_(use_bias) {}

  const kernels::TensorDesc& output() const override { return output_; }
  absl::Status Forward(const ForwardArgs& args) override {
    return op_->Forward(args.inputs[0], args.variables[0], use_bias_ ? args.variables[1] : nullptr,
                        args.output);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    return op_->Backward(args.inputs[0], args.variables[0], args.output, args.output_gradient,
                         args.input_gradients[0], args.gradients[0], use_bias_ ? args.gradients[1] : nullptr);
  }

 private:
  const kernels::TensorDesc output_;
  const std::unique_ptr<kernels::Dense> op_;
  const bool use_bias_;
};

// A linear Dense, then softmax.
class DenseSoftmaxOp final : public LayerOp {
 public:
  DenseSoftmaxOp(std::unique_ptr<LayerOp> dense, std::unique_ptr<kernels::Softmax> softmax,
                 std::unique_ptr<kernels::DeviceMemory> logits)
      : dense_(std::move(dense)), softmax_(std::move(softmax)), logits_(std::move(logits)) {}

  const kernels::TensorDesc& output() const override { return dense_->output(); }
  absl::Status Forward(const ForwardArgs& args) override {
    ForwardArgs dense_args = args;
    dense_args.output = logits_->data();
    CAIRN_RETURN_IF_ERROR(dense_->Forward(dense_args));
    return softmax_->Forward(logits_->data(), args.output);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    // A linear layer does not read its output again: the logits' memory takes their gradient.
    CAIRN_RETURN_IF_ERROR(softmax_->Backward(args.output, args.output_gradient, logits_->data()));
    BackwardArgs dense_args = args;
    dense_args.output_gradient = logits_->data();
    return dense_->Backward(dense_args);
  }

 private:
  const std::unique_ptr<LayerOp> dense_;
  const std::unique_ptr<kernels::Softmax> softmax_;
  const std::unique_ptr<kernels::DeviceMemory> logits_;  // [rows, units]
};

class DenseLayer final : public Layer {
 public:
  struct Config {
    int64_t units;
    ActivationKind activation;
    bool use_bias;
    InitializerSpec kernel_initializer, bias_initializer;
  };
  DenseLayer(std::string name, Config config) : Layer(std::move(name), "Dense"), config_(std::move(config)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (inputs[0].rank() < 1) return absl::InvalidArgumentError("input [] has no axis to work on");
    return WithUnits(inputs[0]);
  }

  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    std::vector<VariableSpec> variables = {{.name = "kernel",
                                            .shape = {inputs[0][inputs[0].rank() - 1], config_.units},
                                            .initializer = config_.kernel_initializer}};
    if (config_.use_bias) {
      variables.push_back(
          {.name = "bias", .shape = {config_.units}, .initializer = config_.bias_initializer});
    }
    return variables;
  }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const Shape& input = params.inputs[0].shape;
    const int64_t inputs = input[input.rank() - 1];
    const int64_t rows = input.num_elements() / inputs;
    CAIRN_ASSIGN_OR_RETURN(auto op,
                           device.ops().MakeDense({.input = {.shape = {rows, inputs}},
                                                   .units = config_.units,
                                                   .use_bias = config_.use_bias,
                                                   .activation = FusedPart(config_.activation),
                                                   .needs_input_gradient = params.needs_input_gradients}));
    auto dense = std::make_unique<DenseOp>(kernels::TensorDesc{.shape = WithUnits(input)}, std::move(op),
                                           config_.use_bias);
    if (config_.activation != ActivationKind::kSoftmax) return dense;
    CAIRN_ASSIGN_OR_RETURN(auto softmax, device.ops().MakeSoftmax(rows, config_.units));
    CAIRN_ASSIGN_OR_RETURN(
        auto logits, device.Allocate(rows * config_.units, absl::StrCat("layer '", name(), "': logits")));
    return std::make_unique<DenseSoftmaxOp>(std::move(dense), std::move(softmax), std::move(logits));
  }

 private:
  Shape WithUnits(const Shape& input) const {
    Shape output(input.dims().first(input.dims().size() - 1));
    output.Append(config_.units);
    return output;
  }

  const Config config_;
};

}  // namespace

std::unique_ptr<Layer> MakeDense(std::string name, ConfigReader& config) {
  DenseLayer::Config read = {.units = config.PositiveInt("units"),
                             .activation = ReadActivation("activation", config),
                             .use_bias = config.Bool("use_bias", true),
                             .kernel_initializer = config.Initializer("kernel_initializer", "glorot_uniform"),
                             .bias_initializer = config.Initializer("bias_initializer", "zeros")};
  config.RefuseUnlessNull({"kernel_regularizer", "bias_regularizer", "activity_regularizer",
                           "kernel_constraint", "bias_constraint", "quantization_config", "lora_rank"});
  return std::make_unique<DenseLayer>(std::move(name), std::move(read));
}

}  // namespace cairn::nn
