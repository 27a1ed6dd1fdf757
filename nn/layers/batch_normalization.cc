// BatchNormalization over an axis of channels. Its moving statistics are variables on the servers, like all others.
// Every push carries the batch's mean and variance in the place of gradients.
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/axes.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"
#include "nn/layers/norm_weights.h"
#include "nn/layers/synchronized_batch_norm.h"

namespace cairn::nn {
namespace {

struct BatchNormConfig : NormWeights {
  float momentum = 0, epsilon = 0;
  // Set if trainable is false: the moving statistics are used even in training, as in Keras.
  bool frozen = false;
  bool synchronized = false;
  InitializerSpec moving_mean{}, moving_variance{};
};

// Variables: gamma and beta if they exist, the moving mean and the moving variance.
class BatchNormOp final : public LayerOp {
 public:
  struct Memory {
    std::unique_ptr<kernels::DeviceMemory> statistics{};  // the batch's means, then its variances
    std::unique_ptr<kernels::DeviceMemory> unused{};      // receives dx if it is not needed; otherwise null
  };
  // `share` multiplies by LayerOpParams::statistics_weight; null if that is 1.
  BatchNormOp(const BatchNormConfig& config, std::unique_ptr<kernels::BatchNorm> op, Memory memory,
              std::unique_ptr<kernels::UnaryOp> share, kernels::Device& device)
      : config_(config),
        op_(std::move(op)),
        memory_(std::move(memory)),
        share_(std::move(share)),
        device_(device) {}

  const kernels::TensorDesc& output() const override { return op_->output(); }
  BackwardReads backward_reads() const override { return {.output = false}; }

  absl::Status Forward(const ForwardArgs& args) override {
    const float* gamma = config_.scale ? args.variables[0] : nullptr;
    const float* beta = config_.center ? args.variables[beta_index()] : nullptr;
    if (args.training && !config_.frozen) {
      return op_->Forward(args.inputs[0], gamma, beta, mean(), variance(), args.output);
    }
    return op_->Infer(args.inputs[0], gamma, beta, args.variables[mean_index()],
                      args.variables[mean_index() + 1], args.output);
  }

  absl::Status Backward(const BackwardArgs& args) override {
    const float* gamma = config_.scale ? args.variables[0] : nullptr;
    const float* used_mean = config_.frozen ? args.variables[mean_index()] : mean();
    const float* used_variance = config_.frozen ? args.variables[mean_index() + 1] : variance();
    float* dx = memory_.unused == nullptr ? args.input_gradients[0] : memory_.unused->data();
    CAIRN_RETURN_IF_ERROR(op_->Backward(args.inputs[0], gamma, used_mean, used_variance, args.output_gradient,
                                        dx, config_.scale ? args.gradients[0] : nullptr,
                                        config_.center ? args.gradients[beta_index()] : nullptr));
    CAIRN_RETURN_IF_ERROR(WriteStatistic(used_mean, args.gradients[mean_index()]));
    return WriteStatistic(used_variance, args.gradients[mean_index() + 1]);
  }

 private:
  absl::Status WriteStatistic(const float* from, float* to) {
    return share_ != nullptr ? share_->Forward(from, to) : device_.CopyOnDevice(from, to, channels());
  }

  size_t beta_index() const { return config_.scale ? 1 : 0; }
  size_t mean_index() const { return beta_index() + (config_.center ? 1 : 0); }
  int64_t channels() const { return memory_.statistics->num_floats() / 2; }
  float* mean() { return memory_.statistics->data(); }
  float* variance() { return memory_.statistics->data() + channels(); }

  const BatchNormConfig config_;
  const std::unique_ptr<kernels::BatchNorm> op_;
  const Memory memory_;
  const std::unique_ptr<kernels::UnaryOp> share_;
  kernels::Device& device_;
};

class BatchNormalizationLayer final : public Layer {
 public:
  BatchNormalizationLayer(std::string name, BatchNormConfig config, int64_t axis)
      : Layer(std::move(name), "BatchNormalization"), config_(std::move(config)), axis_(axis) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_RETURN_IF_ERROR(ResolveAxes({axis_}, inputs[0]));
    return inputs[0];
  }

  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    const Shape channels = {inputs[0][AxisOf(inputs[0]) - 1]};
    std::vector<VariableSpec> variables = config_.Variables(channels);
    variables.push_back({.name = "moving_mean",
                         .shape = channels,
                         .initializer = config_.moving_mean,
                         .moving_average_momentum = config_.momentum});
    variables.push_back({.name = "moving_variance",
                         .shape = channels,
                         .initializer = config_.moving_variance,
                         .moving_average_momentum = config_.momentum});
    return variables;
  }

  bool accepts_blocked(absl::Span<const Shape> inputs) const override {
    return AxisOf(inputs[0]) == inputs[0].rank();
  }

  // Frozen moving averages are used in training, too.
  bool differs_in_training() const override { return !config_.frozen; }
  bool synchronizes_batch() const override { return config_.synchronized && !config_.frozen; }
  MaskUse mask_use() const override { return MaskUse::kRefuses; }
  StepUse step_use(absl::Span<const Shape> inputs, absl::Span<const DecodedInput>) const override {
    return UseOfSteps(AxisOf(inputs[0]) > 1);
  }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const Shape& shape = params.inputs[0].shape;
    const int axis = AxisOf(Shape(shape.dims().subspan(1)));
    // A gradient also passes a transposition.
    const bool needs_gradient = params.needs_input_gradients || axis + 1 != shape.rank();
    return MakeOnLastAxes(
        params.inputs[0], {axis}, config_.variables() + 2,
        [&](const kernels::TensorDesc& last) {
          return MakeForLastAxis(last, needs_gradient, params, device);
        },
        device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    const Shape shape = onnx.ShapeOf(inputs[0]);
    const int axis = AxisOf(shape);
    if (axis != shape.rank()) return OnnxByFormula(inputs[0], axis, variables, onnx);
    const int64_t channels = shape[axis - 1];
    const auto constant = [&](const char* what, float value) {
      return onnx.Floats(what, {channels}, std::vector<float>(static_cast<size_t>(channels), value));
    };
    size_t next = 0;
    std::vector<std::string> names = {onnx.ChannelsFirst(inputs[0])};
    names.push_back(config_.scale ? onnx.Weights(variables[next++]) : constant("ones", 1));
    names.push_back(config_.center ? onnx.Weights(variables[next++]) : constant("zeros", 0));
    names.push_back(onnx.Weights(variables[next]));
    names.push_back(onnx.Weights(variables[next + 1]));
    return onnx.FromChannelsFirst(
        onnx.Add("BatchNormalization", std::move(names), {{"epsilon", config_.epsilon}}), shape);
  }

 private:
  // Counted with the batch. The input must have been accepted.
  int AxisOf(const Shape& input) const { return ResolveAxes({axis_}, input)->front(); }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeForLastAxis(const kernels::TensorDesc& input,
                                                           bool needs_gradient, const LayerOpParams& made,
                                                           kernels::Device& device) const {
    const kernels::BatchNormParams params = {.input = input,
                                             .epsilon = config_.epsilon,
                                             .scale = config_.scale,
                                             .center = config_.center,
                                             .frozen = config_.frozen};
    CAIRN_ASSIGN_OR_RETURN(auto op, synchronizes_batch() && made.sync != nullptr
                                        ? MakeSynchronizedBatchNorm(params, *made.sync, device)
                                        : device.ops().MakeBatchNorm(params));
    const int64_t channels = input.shape[input.shape.rank() - 1];
    BatchNormOp::Memory memory;
    CAIRN_ASSIGN_OR_RETURN(memory.statistics,
                           device.Allocate(2 * channels, absl::StrCat("layer '", name(), "': statistics")));
    if (!needs_gradient) {
      CAIRN_ASSIGN_OR_RETURN(memory.unused,
                             device.Allocate(input.num_floats(), absl::StrCat("layer '", name(), "'")));
    }
    std::unique_ptr<kernels::UnaryOp> share;
    if (made.statistics_weight != 1) {
      CAIRN_ASSIGN_OR_RETURN(
          share, device.ops().MakeAffine(
                     {.input = {.shape = {channels}}, .scale = {made.statistics_weight}, .offset = {0}}));
    }
    return std::make_unique<BatchNormOp>(config_, std::move(op), std::move(memory), std::move(share), device);
  }

  // gamma (x - mean) / sqrt(variance + epsilon) + beta, because ONNX's operation has the channels as its axis 1.
  OnnxValue OnnxByFormula(OnnxValue input, int axis, absl::Span<const OnnxVariable> variables,
                          OnnxBuilder& onnx) const {
    const Shape shape = onnx.ShapeOf(input);
    Shape broadcast = {shape[axis - 1]};
    for (int other = axis; other < shape.rank(); ++other) broadcast.Append(1);
    const auto weights = [&](size_t variable) { return onnx.Weights(variables[variable], {0}, broadcast); };
    const size_t beta = config_.scale ? 1 : 0, mean = beta + (config_.center ? 1 : 0);
    const std::string deviation =
        onnx.Add("Sqrt", {onnx.Add("Add", {weights(mean + 1), onnx.Scalar("epsilon", config_.epsilon)})});
    std::string y = onnx.Add("Div", {onnx.Add("Sub", {onnx.ChannelsLast(input), weights(mean)}), deviation});
    if (config_.scale) y = onnx.Add("Mul", {y, weights(0)});
    if (config_.center) y = onnx.Add("Add", {y, weights(beta)});
    return onnx.FromChannelsLast(y, shape);
  }

  const BatchNormConfig config_;
  const int64_t axis_;  // counted with the batch, from the end if negative
};

}  // namespace

std::unique_ptr<Layer> MakeBatchNormalization(std::string name, ConfigReader& config) {
  BatchNormConfig read = {ReadNormWeights(config)};
  read.momentum = static_cast<float>(config.Number("momentum", 0.99));
  read.epsilon = static_cast<float>(config.Number("epsilon", 1e-3));
  read.frozen = !config.Bool("trainable", true);
  read.synchronized = config.Bool("synchronized", false);
  read.moving_mean = config.Initializer("moving_mean_initializer", "zeros");
  read.moving_variance = config.Initializer("moving_variance_initializer", "ones");
  if (!(read.momentum >= 0 && read.momentum <= 1)) {
    config.Fail("momentum", absl::StrCat(read.momentum, " is not in [0, 1]"));
  }
  if (!(read.epsilon >= 0)) config.Fail("epsilon", absl::StrCat(read.epsilon, " is negative"));
  config.Refuse("renorm", false);
  config.Ignore({"renorm_momentum"});
  config.RefuseUnlessNull({"renorm_clipping", "virtual_batch_size"});
  const std::vector<int64_t> axis = config.Ints("axis", {{-1}});
  if (axis.size() != 1) config.Fail("axis", "several axes are not supported, only one");
  return std::make_unique<BatchNormalizationLayer>(std::move(name), std::move(read),
                                                   axis.empty() ? -1 : axis[0]);
}

}  // namespace cairn::nn
