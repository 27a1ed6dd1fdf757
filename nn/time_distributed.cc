// TimeDistributed: a layer that is applied to every time step, here to all steps of all examples at once.
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "nn/layers/inner_layer.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layer_registry.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

class TimeDistributedLayer final : public Layer {
 public:
  TimeDistributedLayer(std::string name, std::unique_ptr<Layer> inner)
      : Layer(std::move(name), "TimeDistributed"), inner_(std::move(inner)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (inputs[0].rank() < 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("input ", inputs[0].ToString(), " has no axis of steps and axes of the inner layer"));
    }
    const Shape step = StepOf(inputs[0]);
    auto output = inner_->OutputShape(absl::MakeConstSpan(&step, 1));
    if (!output.ok()) return Annotate(output.status(), absl::StrCat("'", inner_->name(), "'"));
    return OfSteps({inputs[0][0]}, *output);
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    const Shape step = StepOf(inputs[0]);
    std::vector<VariableSpec> variables = inner_->Variables(absl::MakeConstSpan(&step, 1));
    for (VariableSpec& variable : variables) variable.name = absl::StrCat(inner_->name(), "/", variable.name);
    return variables;
  }
  bool takes_integers() const override { return inner_->takes_integers(); }
  bool differs_in_training() const override { return inner_->differs_in_training(); }
  MaskUse mask_use() const override {
    const MaskUse use = inner_->mask_use();
    return use == MaskUse::kPasses || use == MaskUse::kDrops ? MaskUse::kPasses : MaskUse::kRefuses;
  }

  StepUse step_use(absl::Span<const Shape>, absl::Span<const DecodedInput>) const override {
    return StepUse::kEach;
  }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const Shape& input = params.inputs[0].shape;
    const kernels::TensorDesc steps =
        params.inputs[0].WithShape(OfSteps({input[0] * input[1]}, Shape(input.dims().subspan(2))));
    CAIRN_ASSIGN_OR_RETURN(auto op, inner_->MakeOp({.inputs = absl::MakeConstSpan(&steps, 1),
                                                    .needs_input_gradients = params.needs_input_gradients},
                                                   device));
    const kernels::TensorDesc of_steps = op->output();
    const Shape output = OfSteps({input[0], input[1]}, Shape(of_steps.shape.dims().subspan(1)));
    if (op->is_view()) return std::make_unique<ViewOp>(of_steps.WithShape(output));
    if (of_steps.layout == kernels::Layout::kRowMajor)
      return std::make_unique<ReshapedOp>(of_steps.WithShape(output), std::move(op));
    CAIRN_ASSIGN_OR_RETURN(auto reorder, ReorderOp::Create(of_steps, device));
    const kernels::TensorDesc plain = reorder->output().WithShape(output);
    std::vector<ChainOp::Link> links;
    links.push_back({.op = std::move(op)});
    links.push_back({.op = std::move(reorder)});
    CAIRN_ASSIGN_OR_RETURN(auto chain, ChainOp::Create(std::move(links), device));
    return std::make_unique<ReshapedOp>(plain, std::move(chain));
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    const Shape shape = onnx.ShapeOf(inputs[0]), step = StepOf(shape);
    const OnnxValue steps =
        onnx.FromChannelsLast(Reshape(onnx.ChannelsLast(inputs[0]), OfSteps({-1}, step), "steps", onnx), step,
                              onnx.TypeOf(inputs[0]));
    CAIRN_ASSIGN_OR_RETURN(const OnnxValue output,
                           inner_->ToOnnx(absl::MakeConstSpan(&steps, 1), variables, onnx));
    const Shape of_step = onnx.ShapeOf(output);
    return onnx.FromChannelsLast(
        Reshape(onnx.ChannelsLast(output), OfSteps({-1, shape[0]}, of_step), "examples", onnx),
        OfSteps({shape[0]}, of_step));
  }

 private:
  static Shape StepOf(const Shape& input) { return Shape(input.dims().subspan(1)); }
  static Shape OfSteps(Shape first, const Shape& step) {
    for (const int64_t extent : step.dims()) first.Append(extent);
    return first;
  }
  static std::string Reshape(const std::string& x, const Shape& to, const char* what, OnnxBuilder& onnx) {
    return onnx.Add("Reshape", {x, onnx.Ints(what, {to.dims().begin(), to.dims().end()})});
  }

  const std::unique_ptr<Layer> inner_;
};

}  // namespace

std::unique_ptr<Layer> MakeTimeDistributed(std::string name, ConfigReader& config) {
  std::unique_ptr<Layer> inner = ReadInnerLayer("layer", config, FindLayer);
  if (inner == nullptr) return nullptr;
  if (inner->merges() || inner->row_table() != nullptr || inner->mask_maker() != nullptr ||
      inner->adds_penalty() || inner->num_outputs() > 1 || inner->class_name() == "BatchNormalization") {
    config.Fail("layer", absl::StrCat(inner->class_name(), " is not supported in TimeDistributed"));
  }
  return std::make_unique<TimeDistributedLayer>(std::move(name), std::move(inner));
}

}  // namespace cairn::nn
