// Normalization: standardizes inputs by the mean and variance of a data set. The mean and the variance are in
// the model file or, after adapt(), among the model's weights.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

constexpr float kEpsilon = 1e-7f;  // Keras' backend.epsilon()

struct NormalizationConfig {
  std::vector<int64_t> axes;  // as in Keras, counted with the batch; empty: one mean for everything
  bool invert = false;
  // Constants from the model file; empty: the statistics are variables.
  std::vector<double> mean{}, variance{};

  bool has_constants() const { return !mean.empty(); }
};

// The sizes of the mean and of the variance. Each element along the input's last axes has its own mean and
// variance.
struct Statistics {
  Shape shape;  // the shape of Keras' variables
  // The extents of the input's last axes.
  Shape trailing;
  int64_t width = 1;  // number of elements
};

// Returns an error unless the statistics cover exactly the input's last axes. Axes of extent 1 do not matter.
absl::StatusOr<Statistics> StatisticsOf(const std::vector<int64_t>& axes, const Shape& input) {
  const auto fault = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("axis [", absl::StrJoin(axes, ","), "], input ",
                                                   input.ToString(), ": ", what, " (axis 0 is the batch)"));
  };
  // [axis of the input] Whether the statistics have this axis.
  std::vector<bool> kept(static_cast<size_t>(input.rank()));
  for (const int64_t axis : axes) {
    const int64_t own = (axis < 0 ? axis + input.rank() + 1 : axis) - 1;
    if (own < 0 || own >= input.rank()) return fault("the input has no such axis");
    kept[static_cast<size_t>(own)] = true;
  }
  Statistics statistics;
  int first = input.rank();  // the first of the trailing axes
  while (first > 0 && (kept[static_cast<size_t>(first) - 1] || input[first - 1] == 1)) --first;
  for (int axis = 0; axis < input.rank(); ++axis) {
    if (kept[static_cast<size_t>(axis)]) {
      if (axis < first && input[axis] != 1) return fault("only the last axes are supported");
      statistics.shape.Append(input[axis]);
      statistics.width *= input[axis];
    }
    if (axis >= first) statistics.trailing.Append(input[axis]);
  }
  return statistics;
}

// Variables: mean, variance, and the number of examples.
class NormalizationOp final : public LayerOp {
 public:
  NormalizationOp(std::unique_ptr<kernels::Standardize> op, int64_t width, kernels::Device& device)
      : op_(std::move(op)), widths_{width, width, 1}, device_(device) {}

  const kernels::TensorDesc& output() const override { return op_->output(); }
  absl::Status Forward(const ForwardArgs& args) override {
    return op_->Forward(args.inputs[0], args.variables[0], args.variables[1], args.output);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    for (size_t i = 0; i < args.gradients.size(); ++i) {  // the variables keep their values
      CAIRN_RETURN_IF_ERROR(device_.CopyOnDevice(args.variables[i], args.gradients[i], widths_[i]));
    }
    if (args.input_gradients[0] == nullptr) return absl::OkStatus();
    return op_->Backward(args.variables[1], args.output_gradient, args.input_gradients[0]);
  }

 private:
  const std::unique_ptr<kernels::Standardize> op_;
  const int64_t widths_[3];  // [variable] number of elements
  kernels::Device& device_;
};

class NormalizationLayer final : public Layer {
 public:
  NormalizationLayer(std::string name, NormalizationConfig config)
      : Layer(std::move(name), "Normalization"), config_(std::move(config)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_ASSIGN_OR_RETURN(const Statistics statistics, StatisticsOf(config_.axes, inputs[0]));
    const auto values = static_cast<int64_t>(config_.mean.size());
    if (values > 1 && values != statistics.width) {
      return absl::InvalidArgumentError(absl::StrCat("mean: ", values, " values do not fit the ",
                                                     statistics.width, " elements of input ",
                                                     inputs[0].ToString()));
    }
    return inputs[0];
  }

  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    if (config_.has_constants()) return {};
    const Shape shape = StatisticsOf(config_.axes, inputs[0])->shape;
    std::vector<VariableSpec> variables = {
        {.name = "mean", .shape = shape, .initializer = Constant(0)},
        {.name = "variance", .shape = shape, .initializer = Constant(1)},
        {.name = "count", .shape = {}, .initializer = Constant(0)},
    };
    for (VariableSpec& variable : variables) variable.moving_average_momentum = 1.0f;  // never changes
    return variables;
  }

  MaskUse mask_use() const override { return MaskUse::kPasses; }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const kernels::TensorDesc& input = params.inputs[0];
    CAIRN_ASSIGN_OR_RETURN(const Statistics statistics,
                           StatisticsOf(config_.axes, Shape(input.shape.dims().subspan(1))));
    if (!config_.has_constants()) {
      CAIRN_ASSIGN_OR_RETURN(
          auto op,
          device.ops().MakeStandardize(
              {.input = input, .width = statistics.width, .epsilon = kEpsilon, .invert = config_.invert}));
      return std::make_unique<NormalizationOp>(std::move(op), statistics.width, device);
    }
    const kernels::TensorDesc rows =
        input.WithShape({input.shape.num_elements() / statistics.width, statistics.width});
    CAIRN_ASSIGN_OR_RETURN(auto op,
                           device.ops().MakeAffine({.input = rows, .scale = Scale(), .offset = Offset()}));
    return std::make_unique<ReshapedOp>(input, std::make_unique<UnaryLayerOp>(std::move(op)));
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    const Shape input = onnx.ShapeOf(inputs[0]);
    CAIRN_ASSIGN_OR_RETURN(const Statistics statistics, StatisticsOf(config_.axes, input));
    const std::string x = onnx.ChannelsLast(inputs[0]);
    if (config_.has_constants()) {
      const auto constant = [&](const char* what, const std::vector<float>& values) {
        return onnx.Floats(what, values.size() == 1 ? Shape() : statistics.trailing, values);
      };
      const std::string scaled = onnx.Add("Mul", {x, constant("scale", Scale())});
      return onnx.FromChannelsLast(onnx.Add("Add", {scaled, constant("offset", Offset())}), input);
    }
    std::vector<int> as_it_is(static_cast<size_t>(statistics.shape.rank()));
    std::iota(as_it_is.begin(), as_it_is.end(), 0);
    const std::string mean = onnx.Weights(variables[0], as_it_is, statistics.trailing),
                      variance = onnx.Weights(variables[1], as_it_is, statistics.trailing),
                      root = onnx.Add("Sqrt", {variance}),
                      deviation = onnx.Add("Max", {root, onnx.Scalar("epsilon", kEpsilon)});
    const std::string y = config_.invert ? onnx.Add("Add", {onnx.Add("Mul", {x, deviation}), mean})
                                         : onnx.Add("Div", {onnx.Add("Sub", {x, mean}), deviation});
    return onnx.FromChannelsLast(y, input);
  }

 private:
  static InitializerSpec Constant(double value) {
    return {.distribution = InitializerSpec::Distribution::kConstant, .center = value};
  }
  static double DeviationOf(double variance) { return std::max(std::sqrt(variance), double{kEpsilon}); }

  // y = x * scale + offset
  std::vector<float> Scale() const {
    std::vector<float> scale;
    for (const double variance : config_.variance) {
      const double deviation = DeviationOf(variance);
      scale.push_back(static_cast<float>(config_.invert ? deviation : 1 / deviation));
    }
    return scale;
  }
  std::vector<float> Offset() const {
    std::vector<float> offset;
    for (size_t i = 0; i < config_.mean.size(); ++i) {
      offset.push_back(static_cast<float>(
          config_.invert ? config_.mean[i] : -config_.mean[i] / DeviationOf(config_.variance[i])));
    }
    return offset;
  }

  const NormalizationConfig config_;
};

}  // namespace

std::unique_ptr<Layer> MakeNormalization(std::string name, ConfigReader& config) {
  NormalizationConfig read = {.axes = config.Ints("axis", {{-1}}), .invert = config.Bool("invert", false)};
  const bool has_mean = !config.Raw("mean").is_null(), has_variance = !config.Raw("variance").is_null();
  if (has_mean != has_variance) {
    config.Fail(has_mean ? "variance" : "mean", "required if the other one is given");
  } else if (has_mean) {
    read.mean = config.Numbers("mean");
    read.variance = config.Numbers("variance");
    if (read.mean.size() != read.variance.size()) {
      config.Fail("variance", absl::StrCat(read.variance.size(), " values do not match the ",
                                           read.mean.size(), " means"));
      read.variance.resize(read.mean.size(), 1);
    }
    for (const double variance : read.variance) {
      if (!(variance >= 0)) config.Fail("variance", absl::StrCat(variance, " is negative"));
    }
  }
  return std::make_unique<NormalizationLayer>(std::move(name), std::move(read));
}

}  // namespace cairn::nn
