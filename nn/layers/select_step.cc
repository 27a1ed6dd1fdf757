// SelectStep, `x[:, 3]` of a sequence: one of its steps. Keras writes a function GetItem.
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

class SelectStepLayer final : public Layer {
 public:
  // `step` as in Python: negative from the end.
  SelectStepLayer(std::string name, int64_t step) : Layer(std::move(name), "SelectStep"), step_(step) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    const Shape& input = inputs[0];
    if (input.rank() < 2 || step_ >= input[0] || step_ < -input[0]) {
      return absl::InvalidArgumentError(
          absl::StrCat("input ", input.ToString(), " has no vector at step ", step_));
    }
    return Shape(input.dims().subspan(1));
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const kernels::TensorDesc& input = params.inputs[0];
    const int64_t batch = input.shape[0], steps = input.shape[1], before = StepOf(steps);
    Shape output = {batch};
    for (const int64_t extent : input.shape.dims().subspan(2)) output.Append(extent);
    const kernels::TensorDesc step = input.WithShape({batch, 1, 1, output.num_elements() / batch});
    CAIRN_ASSIGN_OR_RETURN(auto padding, device.ops().MakeZeroPad2D(
                                             {.input = step, .top = before, .bottom = steps - before - 1}));
    return std::make_unique<CropOp>(input.WithShape(std::move(output)), std::move(padding));
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    const Shape input = onnx.ShapeOf(inputs[0]);
    const std::string step = onnx.Ints("step", {StepOf(input[0])});
    const std::string selected =
        onnx.Add("Gather", {onnx.ChannelsLast(inputs[0]), step}, {{"axis", int64_t{1}}});
    return onnx.FromChannelsLast(onnx.Add("Squeeze", {selected, onnx.Ints("axis", {1})}),
                                 Shape(input.dims().subspan(1)));
  }

 private:
  int64_t StepOf(int64_t steps) const { return step_ < 0 ? step_ + steps : step_; }

  const int64_t step_;
};

}  // namespace

std::unique_ptr<Layer> MakeSelectStep(std::string name, ConfigReader& config) {
  const std::vector<int64_t> step = config.Ints("step");
  if (step.size() != 1) config.Fail("step", "expected an integer");
  return std::make_unique<SelectStepLayer>(std::move(name), step.empty() ? 0 : step[0]);
}

}  // namespace cairn::nn
