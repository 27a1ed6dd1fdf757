#include "worker/nn/plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::nn {
namespace {

using kernels::Layout;
using kernels::TensorDesc;

// From a blocked layout to row-major, and its gradient back.
class ReorderOp final : public LayerOp {
 public:
  static absl::StatusOr<std::unique_ptr<LayerOp>> Create(const TensorDesc& from, kernels::Device& device) {
    TensorDesc to = {.shape = from.shape, .layout = Layout::kRowMajor};
    CAIRN_ASSIGN_OR_RETURN(auto forward, device.ops().MakeReorder(from, to));
    CAIRN_ASSIGN_OR_RETURN(auto backward, device.ops().MakeReorder(to, from));
    return std::make_unique<ReorderOp>(std::move(to), std::move(forward), std::move(backward));
  }
  ReorderOp(TensorDesc output, std::unique_ptr<kernels::Reorder> forward,
            std::unique_ptr<kernels::Reorder> backward)
      : output_(std::move(output)), forward_(std::move(forward)), backward_(std::move(backward)) {}

  const TensorDesc& output() const override { return output_; }
  absl::Status Forward(const ForwardArgs& args) override {
    return forward_->Run(args.inputs[0], args.output);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    if (args.input_gradients[0] == nullptr) return absl::OkStatus();
    return backward_->Run(args.output_gradient, args.input_gradients[0]);
  }

 private:
  const TensorDesc output_;
  const std::unique_ptr<kernels::Reorder> forward_, backward_;
};

Shape WithBatch(int64_t batch, const Shape& shape) {
  Shape with_batch = {batch};
  for (int64_t extent : shape.dims()) with_batch.Append(extent);
  return with_batch;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Plan>> Plan::Create(const Model& model, const LossSpec& loss,
                                                   kernels::Device& device, int64_t batch) {
  auto plan = std::unique_ptr<Plan>(new Plan(model));
  CAIRN_RETURN_IF_ERROR(plan->AddSteps(device, batch));
  CAIRN_ASSIGN_OR_RETURN(plan->loss_,
                         device.ops().MakeLoss(MakeLossParams(loss, model.output_shape(), batch)));
  int64_t largest = 0;
  for (const Step& step : plan->steps_) largest = std::max(largest, step.op->output().num_floats());
  for (auto& buffer : plan->activation_gradients_) {
    CAIRN_ASSIGN_OR_RETURN(buffer, device.Allocate(largest, "gradients of activations"));
  }
  return plan;
}

absl::Status Plan::AddSteps(kernels::Device& device, int64_t batch) {
  TensorDesc desc = {.shape = WithBatch(batch, model_.input_shape())};
  bool needs_gradient = false;
  for (size_t index = 0; index < model_.nodes().size(); ++index) {
    const Node& node = model_.nodes()[index];
    // Model refuses anything but a chain so far.
    CAIRN_CHECK(node.inputs.size() == 1 && node.inputs[0] == static_cast<int>(index) - 1);
    if (desc.layout != Layout::kRowMajor && !node.layer->accepts_blocked()) {
      CAIRN_RETURN_IF_ERROR(AddReorderToRowMajor(device, desc, needs_gradient));
      desc.layout = Layout::kRowMajor;
    }
    const std::string what = absl::StrCat("layer '", node.layer->name(), "'");
    auto op = node.layer->MakeOp({.inputs = {desc}, .needs_input_gradients = needs_gradient}, device);
    if (!op.ok()) return Annotate(op.status(), what);
    desc = (*op)->output();
    CAIRN_RETURN_IF_ERROR(
        AddStep({.op = *std::move(op), .variables = node.variables, .needs_input_gradient = needs_gradient},
                what, device));
    needs_gradient = needs_gradient || !node.variables.empty();
  }
  if (desc.layout != Layout::kRowMajor) return AddReorderToRowMajor(device, desc, needs_gradient);
  return absl::OkStatus();
}

absl::Status Plan::AddReorderToRowMajor(kernels::Device& device, const TensorDesc& from,
                                        bool needs_gradient) {
  CAIRN_ASSIGN_OR_RETURN(auto op, ReorderOp::Create(from, device));
  return AddStep({.op = std::move(op), .needs_input_gradient = needs_gradient}, "reorder", device);
}

absl::Status Plan::AddStep(Step step, absl::string_view what, kernels::Device& device) {
  if (!step.op->is_view()) {
    CAIRN_ASSIGN_OR_RETURN(step.output,
                           device.Allocate(step.op->output().num_floats(), absl::StrCat(what, ": output")));
  }
  step.variable_pointers.resize(step.variables.size());
  step.gradient_pointers.resize(step.variables.size());
  steps_.push_back(std::move(step));
  return absl::OkStatus();
}

absl::Status Plan::Forward(const float* parameters, const float* inputs, bool training) {
  for (size_t index = 0; index < steps_.size(); ++index) {
    Step& step = steps_[index];
    const float* input = InputOf(index, inputs);
    if (step.op->is_view()) {
      step.output_pointer = input;
      continue;
    }
    for (size_t i = 0; i < step.variables.size(); ++i) {
      step.variable_pointers[i] =
          parameters + model_.variables()[static_cast<size_t>(step.variables[i])].offset;
    }
    step.output_pointer = step.output->data();
    CAIRN_RETURN_IF_ERROR(step.op->Forward({.inputs = absl::MakeConstSpan(&input, 1),
                                            .variables = step.variable_pointers,
                                            .output = step.output->data(),
                                            .training = training}));
  }
  return absl::OkStatus();
}

absl::Status Plan::Backward(const float* inputs, float* gradients,
                            absl::FunctionRef<absl::Status(int variable)> on_gradient) {
  float* gradient = activation_gradients_[0]->data();  // of the step's output
  float* spare = activation_gradients_[1]->data();
  for (size_t index = steps_.size(); index-- > 0;) {
    Step& step = steps_[index];
    if (!step.needs_input_gradient && step.variables.empty())
      break;  // nothing to learn from here to the input
    if (step.op->is_view()) continue;
    const float* input = InputOf(index, inputs);
    float* input_gradient = step.needs_input_gradient ? spare : nullptr;
    for (size_t i = 0; i < step.variables.size(); ++i) {
      step.gradient_pointers[i] =
          gradients + model_.variables()[static_cast<size_t>(step.variables[i])].offset;
    }
    CAIRN_RETURN_IF_ERROR(step.op->Backward({.inputs = absl::MakeConstSpan(&input, 1),
                                             .variables = step.variable_pointers,
                                             .output = step.output_pointer,
                                             .output_gradient = gradient,
                                             .input_gradients = absl::MakeConstSpan(&input_gradient, 1),
                                             .gradients = step.gradient_pointers}));
    for (int variable : step.variables) CAIRN_RETURN_IF_ERROR(on_gradient(variable));
    std::swap(gradient, spare);
  }
  return absl::OkStatus();
}

absl::Status Plan::ForwardBackward(const float* parameters, const Batch& batch, float* gradients,
                                   kernels::LossSums* sums,
                                   absl::FunctionRef<absl::Status(int variable)> on_gradient) {
  CAIRN_RETURN_IF_ERROR(Forward(parameters, batch.inputs, /*training=*/true));
  CAIRN_RETURN_IF_ERROR(
      loss_->Run(outputs(), batch.targets, batch.weights, sums, activation_gradients_[0]->data()));
  return Backward(batch.inputs, gradients, on_gradient);
}

absl::Status Plan::Evaluate(const float* parameters, const Batch& batch, kernels::LossSums* sums) {
  CAIRN_RETURN_IF_ERROR(Forward(parameters, batch.inputs, /*training=*/false));
  return loss_->Run(outputs(), batch.targets, batch.weights, sums, nullptr);
}

}  // namespace cairn::nn
