// EinsumDense whose product is one of matrices: the last axes of the input, which the kernel has first, are
// replaced by the last axes of the kernel.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"
#include "nn/layers/linear_config.h"
#include "nn/layers/typed_parameter.h"

namespace cairn::nn {
namespace {

// "abc,cde->abde": the axes that remain (ab), the axes of the sum (c) and the axes of the result (de).
struct Equation {
  std::string text;
  std::string summed{}, made{};
  size_t kept = 0;        // remaining axes, the batch included; with `ellipsis`, those that are named
  bool ellipsis = false;  // "...c,cd->...d": any number of axes remain
};

absl::StatusOr<Equation> ReadEquation(const std::string& text) {
  const auto unsupported = [&] {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text,
        "' is not supported, only products of matrices such as abc,cd->abd, abc,cde->abde, abcd,cde->abe "
        "and ...a,ab->...b: transpose the input or the kernel"));
  };
  const std::vector<std::string> sides = absl::StrSplit(text, "->");
  const std::vector<std::string> operands = absl::StrSplit(sides[0], ',');
  if (sides.size() != 2 || operands.size() != 2) return unsupported();
  absl::string_view input = operands[0], kernel = operands[1], output = sides[1];
  Equation read = {.text = text};
  const bool of_input = absl::ConsumePrefix(&input, "..."), of_output = absl::ConsumePrefix(&output, "...");
  read.ellipsis = of_input;
  size_t summed = 0;
  while (summed < kernel.size() && absl::StrContains(input, kernel[summed])) ++summed;
  read.summed = std::string(kernel.substr(0, summed));
  read.made = std::string(kernel.substr(summed));
  const bool matrices = of_input == of_output && !read.summed.empty() && !read.made.empty() &&
                        absl::ConsumeSuffix(&input, read.summed) && absl::ConsumeSuffix(&output, read.made) &&
                        input == output && (read.ellipsis || !input.empty()) &&
                        input.find_first_of(kernel) == absl::string_view::npos;
  if (!matrices) return unsupported();
  read.kept = input.size();
  return read;
}

// Adds a bias that has only some of the output's axes.
class BiasOp final : public LayerOp {
 public:
  // `first`: null, or for a bias of steps, where the number of the first one is read.
  static absl::StatusOr<std::unique_ptr<LayerOp>> Create(const kernels::TensorDesc& input, const Shape& bias,
                                                         const int64_t* first, kernels::Device& device) {
    std::unique_ptr<BiasOp> op(new BiasOp(input, first, bias.num_elements() / input.shape[1]));
    const kernels::TensorDesc own = input.WithShape(bias);
    CAIRN_ASSIGN_OR_RETURN(op->add_, device.ops().MakeBroadcastMerge(
                                         {.kind = kernels::MergeKind::kAdd, .inputs = {input, own}}));
    CAIRN_ASSIGN_OR_RETURN(op->bias_, TypedParameter::Create(own, device));
    return op;
  }
  const kernels::TensorDesc& output() const override { return output_; }
  absl::Status Forward(const ForwardArgs& args) override {
    const float* const variable = args.variables[0] + (first_ == nullptr ? 0 : *first_ * step_floats_);
    CAIRN_ASSIGN_OR_RETURN(const float* const bias, bias_.Load(variable));
    return add_->Forward({args.inputs[0], bias}, args.output);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    CAIRN_RETURN_IF_ERROR(add_->Backward({args.inputs[0], bias_.values()}, args.output_gradient,
                                         {args.input_gradients[0], bias_.Target(args.gradients[0])}));
    return bias_.StoreGradient(args.gradients[0]);
  }

 private:
  BiasOp(kernels::TensorDesc output, const int64_t* first, int64_t step_floats)
      : output_(std::move(output)), first_(first), step_floats_(step_floats) {}
  const kernels::TensorDesc output_;
  const int64_t* const first_;
  const int64_t step_floats_;  // those of the bias for one step, if it has steps
  std::unique_ptr<kernels::NaryOp> add_;
  TypedParameter bias_;
};

class EinsumDenseLayer final : public Layer {
 public:
  // `extents`: Keras' output_shape, with 0 for null. `bias_axes`: labels of the output, empty: no bias.
  EinsumDenseLayer(std::string name, Equation equation, std::vector<int64_t> extents, std::string bias_axes,
                   LinearConfig config)
      : Layer(std::move(name), "EinsumDense"),
        equation_(std::move(equation)),
        extents_(std::move(extents)),
        bias_axes_(std::move(bias_axes)),
        config_(std::move(config)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    const auto axes = static_cast<size_t>(inputs[0].rank()) + 1, summed = equation_.summed.size();
    const size_t kept = axes - std::min(axes, summed);
    if (axes <= summed || (equation_.ellipsis ? kept < equation_.kept + 1 : kept != equation_.kept)) {
      return absl::InvalidArgumentError(absl::StrCat("equation: '", equation_.text, "' does not fit input ",
                                                     inputs[0].ToString(), " with its batch"));
    }
    Shape output = MadeOf(inputs[0]);
    for (size_t i = 0; i < extents_.size(); ++i) {  // counted from the end
      const int axis = output.rank() - 1 - static_cast<int>(i);
      const int64_t extent = extents_[extents_.size() - 1 - i];
      if (extent == 0 || (axis >= 0 && output[axis] == extent)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("output_shape: ", extent, " does not fit output ", output.ToString()));
    }
    return output;
  }

  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    const Shape& input = inputs[0];
    const auto summed = static_cast<int>(equation_.summed.size());
    Shape kernel;
    for (int axis = input.rank() - summed; axis < input.rank(); ++axis) kernel.Append(input[axis]);
    const int64_t rows = kernel.num_elements(), columns = Columns();
    for (const int64_t extent : Made()) kernel.Append(extent);
    std::vector<VariableSpec> variables = {
        {.name = "kernel",
         .shape = std::move(kernel),
         .initializer = ResolveFan(config_.kernel_initializer, {rows, columns}),
         .regularizer = config_.kernel_regularizer,
         .constraint = config_.kernel_constraint}};
    if (!bias_axes_.empty()) {
      variables.push_back({.name = "bias",
                           .shape = BiasShape(input, /*broadcast=*/false),
                           .initializer = config_.bias_initializer,
                           .regularizer = config_.bias_regularizer,
                           .constraint = config_.bias_constraint});
    }
    return variables;
  }

  StepUse step_use(absl::Span<const Shape> inputs, absl::Span<const DecodedInput>) const override {
    if (Kept(inputs[0]) < 2) return StepUse::kMixes;
    return BiasHasSteps(inputs[0]) ? StepUse::kDecodes : StepUse::kEach;
  }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const kernels::TensorDesc& input = params.inputs[0];
    const Shape example(input.shape.dims().subspan(1));
    Shape output = {input.shape[0]};
    const Shape of_example = MadeOf(example);
    for (const int64_t extent : of_example.dims()) output.Append(extent);
    const int64_t rows = output.num_elements() / Columns();
    const bool fuses_bias = bias_axes_ == equation_.made, separate_bias = !bias_axes_.empty() && !fuses_bias;
    const bool relu = config_.activation.is_plain_relu() && !separate_bias;
    CAIRN_ASSIGN_OR_RETURN(
        auto dense,
        device.ops().MakeDense({.input = input.WithShape({rows, input.shape.num_elements() / rows}),
                                .units = Columns(),
                                .use_bias = fuses_bias,
                                .relu = relu,
                                .needs_input_gradient = params.needs_input_gradients}));
    kernels::TensorDesc desc = dense->output().WithShape(std::move(output));
    std::unique_ptr<LayerOp> op = std::make_unique<ReshapedOp>(
        desc, std::make_unique<LinearLayerOp>(std::move(dense), fuses_bias, relu));
    if (!separate_bias) return ReluFusedOp(std::move(op), config_.activation, device);
    CAIRN_ASSIGN_OR_RETURN(
        auto bias, BiasOp::Create(desc, BiasShape(example, /*broadcast=*/true),
                                  params.decoding == nullptr ? nullptr : params.decoding->first, device));
    std::vector<ChainOp::Link> links;
    links.push_back({.op = std::move(op)});
    links.push_back({.op = std::move(bias), .variables = 1});
    CAIRN_ASSIGN_OR_RETURN(op, ChainOp::Create(std::move(links), device));
    return ActivatedOp(std::move(op), config_.activation, device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    const Shape input = onnx.ShapeOf(inputs[0]);
    CAIRN_ASSIGN_OR_RETURN(const Shape output, OutputShape({input}));
    const int64_t rows = output.num_elements() / Columns(), width = input.num_elements() / rows;
    const std::string x = onnx.Add("Reshape", {onnx.ChannelsLast(inputs[0]), onnx.Ints("rows", {-1, width})});
    std::string y = onnx.Add("MatMul", {x, onnx.Weights(variables[0], {}, {width, Columns()})});
    std::vector<int64_t> extents = {-1};
    for (const int64_t extent : output.dims()) extents.push_back(extent);
    y = onnx.Add("Reshape", {y, onnx.Ints("shape", std::move(extents))});
    if (!bias_axes_.empty())
      y = onnx.Add("Add", {y, onnx.Weights(variables[1], {}, BiasShape(input, /*broadcast=*/true))});
    return OnnxActivation(config_.activation, onnx.FromChannelsLast(y, output), onnx);
  }

 private:
  // The axes that remain, with the batch.
  int Kept(const Shape& input) const { return input.rank() + 1 - static_cast<int>(equation_.summed.size()); }
  Shape MadeOf(const Shape& input) const {
    Shape output(input.dims().first(static_cast<size_t>(Kept(input)) - 1));
    for (const int64_t extent : Made()) output.Append(extent);
    return output;
  }
  // Whether the first axis after the batch, which remains, is one of the bias.
  bool BiasHasSteps(const Shape& input) const {
    const absl::string_view output = absl::string_view(equation_.text).substr(equation_.text.find("->") + 2);
    const absl::string_view labels = absl::StripPrefix(output, "...");
    const int unnamed = Kept(input) + static_cast<int>(equation_.made.size() - labels.size());
    return unnamed <= 1 && absl::StrContains(bias_axes_, labels[static_cast<size_t>(1 - unnamed)]);
  }
  // The extents of the axes that the kernel makes: the last ones of output_shape.
  absl::Span<const int64_t> Made() const { return absl::MakeConstSpan(extents_).last(equation_.made.size()); }
  int64_t Columns() const {
    int64_t columns = 1;
    for (const int64_t extent : Made()) columns *= extent;
    return columns;
  }
  // The bias' extents, in the order of the output: from its first axis to the last of the output, with 1 for those that
  // it has not. With `broadcast`, also 1 for all axes before, and the batch.
  Shape BiasShape(const Shape& input, bool broadcast) const {
    Shape bias;
    const int kept = Kept(input);
    const absl::string_view output = absl::string_view(equation_.text).substr(equation_.text.find("->") + 2);
    const absl::string_view labels = absl::StripPrefix(output, "...");
    const int unnamed = kept + static_cast<int>(equation_.made.size()) - static_cast<int>(labels.size());
    for (int axis = 0; axis < unnamed && broadcast; ++axis) bias.Append(1);
    for (size_t i = 0; i < labels.size(); ++i) {
      const int axis = unnamed + static_cast<int>(i);
      if (absl::StrContains(bias_axes_, labels[i])) {
        bias.Append(axis < kept ? input[axis - 1] : Made()[static_cast<size_t>(axis - kept)]);
      } else if (broadcast || bias.rank() > 0) {
        bias.Append(1);
      }
    }
    return bias;
  }

  const Equation equation_;
  const std::vector<int64_t> extents_;
  const std::string bias_axes_;
  const LinearConfig config_;
};

// The extents of Keras' output_shape: integers, or null for 0.
std::vector<int64_t> ReadExtents(ConfigReader& config) {
  const nlohmann::json& value = config.Raw("output_shape");
  std::vector<int64_t> extents;
  for (const nlohmann::json& extent : value.is_array() ? value : nlohmann::json::array({value})) {
    if (!extent.is_null() && (!extent.is_number_integer() || extent.get<int64_t>() < 1))
      config.Fail("output_shape", absl::StrCat("expected positive integers or null, got ", extent.dump()));
    extents.push_back(extent.is_number_integer() ? extent.get<int64_t>() : 0);
  }
  return extents;
}

}  // namespace

std::unique_ptr<Layer> MakeEinsumDense(std::string name, ConfigReader& config) {
  auto equation = ReadEquation(config.String("equation", ""));
  if (!equation.ok()) config.Fail("equation", equation.status().message());
  Equation read = equation.value_or(Equation());
  std::vector<int64_t> extents = ReadExtents(config);
  const size_t made = read.made.size();
  bool known = extents.size() >= made;
  for (size_t i = 0; known && i < made; ++i) known = extents[extents.size() - 1 - i] > 0;
  if (!known) {
    config.Fail("output_shape", absl::StrCat("the extents of ", read.made, " are required"));
    extents.assign(made, 1);
  }
  std::string bias_axes = config.String("bias_axes", "");
  const std::string output = equation.ok() ? read.text.substr(read.text.find("->") + 2) : "";
  for (const char axis : bias_axes) {
    if (equation.ok() && (!absl::StrContains(output, axis) || axis == output[0]))
      config.Fail("bias_axes",
                  absl::StrCat("'", std::string(1, axis), "' is not an axis of the output after the batch"));
  }
  LinearConfig linear = {.activation = ReadActivation("activation", config),
                         .kernel_initializer = config.Initializer("kernel_initializer", "glorot_uniform"),
                         .bias_initializer = config.Initializer("bias_initializer", "zeros"),
                         .kernel_regularizer = config.Regularizer("kernel_regularizer"),
                         .bias_regularizer = config.Regularizer("bias_regularizer"),
                         .kernel_constraint = config.ReadConstraint("kernel_constraint"),
                         .bias_constraint = config.ReadConstraint("bias_constraint")};
  config.RefuseUnlessNull({"lora_rank", "lora_alpha", "gptq_unpacked_column_size", "quantization_config"});
  return std::make_unique<EinsumDenseLayer>(std::move(name), std::move(read), std::move(extents),
                                            std::move(bias_axes), std::move(linear));
}

}  // namespace cairn::nn
