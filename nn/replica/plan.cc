#include "nn/replica/plan.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "common/core/status.h"

namespace cairn::nn {
namespace {

// Whether these 32 bits contain an element with the exponent of infinity and NaN.
bool IsNonFinite(uint32_t bits, kernels::ElementType type) {
  const auto all_ones = [bits](uint32_t exponent) { return (bits & exponent) == exponent; };
  switch (type) {
    case kernels::ElementType::kFloat32:
      return all_ones(0x7F800000);
    case kernels::ElementType::kBFloat16:
      return all_ones(0x7F80) || all_ones(0x7F800000);
    case kernels::ElementType::kFloat16:
      return all_ones(0x7C00) || all_ones(0x7C000000);
    default:  // integers
      return false;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Plan>> Plan::Create(const Model& model, const Objective& objective,
                                                   kernels::Device& device, Spec spec) {
  auto plan = std::unique_ptr<Plan>(new Plan(model, device, std::move(spec)));
  const PipelineStage& stage = plan->spec_.stage;
  const StepExamples examples = {
      .batch = plan->spec_.batch, .mean_over = plan->spec_.mean_over, .sync = plan->spec_.sync};
  CAIRN_ASSIGN_OR_RETURN(plan->graph_,
                         BuildStepGraph(model, stage, examples, device, plan->spec_.trace.recorder));
  CAIRN_RETURN_IF_ERROR(plan->AddRegularizers());
  CAIRN_ASSIGN_OR_RETURN(plan->gradients_, GradientBuffers::Create(plan->graph_, model, stage, device));
  CAIRN_RETURN_IF_ERROR(plan->AddLossScaler());
  if (!stage.last) return plan;
  CAIRN_RETURN_IF_ERROR(plan->AddLosses(objective));
  return plan;
}

Plan::Spec Plan::SpecOf(const Model& model, int64_t batch) {
  Spec spec = {.stage = WholeModel(model), .batch = batch};
  spec.penalized = spec.stage.variables;
  return spec;
}

absl::Status Plan::AddLosses(const Objective& objective) {
  for (size_t i = 0; i < objective.losses().size(); ++i) {
    const OutputLoss& part = objective.losses()[i];
    kernels::LossParams params = objective.ParamsOf(i, model_, spec_.batch);
    params.mean_over = spec_.mean_over;
    CAIRN_ASSIGN_OR_RETURN(auto loss, device_.ops().MakeLoss(params));
    losses_.push_back({.loss = std::move(loss),
                       .weight = part.weight,
                       .first_output = model_.outputs()[part.output].begin,
                       .first_target = objective.FirstTarget(i, model_),
                       .first_weight = objective.FirstWeight(i, model_)});
  }
  if (losses_.size() < model_.outputs().size()) {
    CAIRN_ASSIGN_OR_RETURN(no_gradient_,
                           device_.Allocate(output_floats(0), "gradient of outputs without a loss"));
  }
  several_outputs_ = objective.several_outputs();
  return absl::OkStatus();
}

absl::Status Plan::AddRegularizers() {
  penalties_.resize(model_.variables().size());
  for (const int index : spec_.penalized) {
    const auto i = static_cast<size_t>(index);
    const ModelVariable& variable = model_.variables()[i];
    if (!variable.regularizer.any()) continue;
    CAIRN_ASSIGN_OR_RETURN(penalties_[i],
                           VariablePenalty::Create(variable.regularizer, variable.shape, device_));
  }
  return absl::OkStatus();
}

absl::Status Plan::AddLossScaler() {
  if (device_.compute_type() != kernels::ElementType::kFloat16) return absl::OkStatus();
  kernels::LossScalerParams params = {.outputs = value_of_output(0).desc.shape.num_elements(),
                                      .gradients = {}};
  for (const ModelVariable& variable : model_.variables()) {
    if (!variable.trainable()) continue;  // statistics come from the forward pass and are not scaled
    const int64_t begin = variable.offset, end = begin + variable.shape.num_elements();
    if (!params.gradients.empty() && params.gradients.back().end == begin) {
      params.gradients.back().end = end;
    } else {
      params.gradients.push_back({.begin = begin, .end = end});
    }
  }
  CAIRN_ASSIGN_OR_RETURN(scaler_, device_.ops().MakeLossScaler(params));
  for (const int input : gradients_->own_inputs()) {
    InputScaler& added = input_scalers_.emplace_back();
    added.input = input;
    CAIRN_ASSIGN_OR_RETURN(
        added.scaler, device_.ops().MakeLossScaler(
                          {.gradients = {{.begin = 0, .end = input_floats(static_cast<size_t>(input))}}}));
  }
  return absl::OkStatus();
}

absl::Status Plan::SetLossScale(float scale) {
  CAIRN_RETURN_IF_ERROR(scaler_->SetScale(scale));
  for (const InputScaler& input : input_scalers_) CAIRN_RETURN_IF_ERROR(input.scaler->SetScale(scale));
  return absl::OkStatus();
}

absl::Status Plan::Unscale(Gradients gradients) {
  for (InputScaler& input : input_scalers_) {
    CAIRN_RETURN_IF_ERROR(input.scaler->Unscale(gradients_->of(input.input), &input.finite));
  }
  return scaler_->Unscale(gradients.empty() ? nullptr : gradients[0], &finite_);
}

absl::Status Plan::Forward(Values values, absl::Span<const float* const> inputs, bool training,
                           absl::FunctionRef<bool(int variable)> await) {
  // An evaluation is a single slice of the trainer's timeline.
  const DeviceTrace trace = training ? spec_.trace : DeviceTrace();
  const DeviceWork forward(trace, TraceLane::kForward, "forward", device_);
  return RunForward(graph_, {.values = values, .inputs = inputs, .training = training, .trace = trace},
                    device_, await);
}

absl::Status Plan::Backward(Values values, Gradients gradients, OnGradient on_gradient) {
  const DeviceWork backward(spec_.trace, TraceLane::kBackward, "backward", device_);
  for (size_t index = graph_.steps.size(); index-- > 0;) {
    const StepGraph::Step& step = graph_.steps[index];
    if (!graph_.output_of(step).needs_gradient) continue;
    const GradientBuffers::Written& written = gradients_->Bind(index, gradients);
    bool completed = false;
    const auto complete = [&] {
      completed = true;
      return Complete(index, values, gradients, on_gradient);
    };
    if (!step.op->is_view()) {
      // Gradients that must still be added up or unscaled are not final yet.
      const bool final_at_once = scaler_ == nullptr && !absl::c_linear_search(written.adds_to_variable, true);
      CAIRN_RETURN_IF_ERROR(RunBackward(
          step, written,
          final_at_once ? std::optional<absl::FunctionRef<absl::Status()>>(complete) : std::nullopt));
    }
    CAIRN_RETURN_IF_ERROR(gradients_->AddUp(index, gradients));
    if (scaler_ != nullptr) continue;
    if (!completed) CAIRN_RETURN_IF_ERROR(complete());
    CAIRN_RETURN_IF_ERROR(CompleteInputs(index, on_gradient));
  }
  if (scaler_ == nullptr) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(Unscale(gradients));
  for (size_t index = graph_.steps.size(); index-- > 0;) {
    CAIRN_RETURN_IF_ERROR(Complete(index, values, gradients, on_gradient));
    CAIRN_RETURN_IF_ERROR(CompleteInputs(index, on_gradient));
  }
  return absl::OkStatus();
}

absl::Status Plan::RunBackward(const StepGraph::Step& step, const GradientBuffers::Written& written,
                               std::optional<absl::FunctionRef<absl::Status()>> on_gradients) {
  const DeviceWork work(spec_.trace, TraceLane::kBackward, step.name(), device_);
  const absl::Status status = step.op->Backward({.inputs = step.input_pointers,
                                                 .variables = step.variable_pointers,
                                                 .output = graph_.output_of(step).data,
                                                 .output_gradient = gradients_->of(step.output),
                                                 .input_gradients = written.inputs,
                                                 .gradients = written.variables,
                                                 .on_gradients = on_gradients});
  return status.ok() ? status : Annotate(status, step.what);
}

absl::Status Plan::Complete(size_t step, Values values, Gradients gradients, OnGradient on_gradient) {
  const GradientBuffers::Written& written = gradients_->written(step);
  // Before other contributions are added, as in a divided model, so that the bits are the same.
  for (const int variable : written.begins) {
    const auto index = static_cast<size_t>(variable);
    CAIRN_RETURN_IF_ERROR(Regularize(variable, values[index], gradients[index]));
  }
  for (const int variable : written.completes) CAIRN_RETURN_IF_ERROR(on_gradient(variable));
  return absl::OkStatus();
}

absl::Status Plan::CompleteInputs(size_t step, OnGradient on_gradient) {
  for (const int input : gradients_->written(step).completes_inputs) {
    CAIRN_RETURN_IF_ERROR(on_gradient(spec_.stage.inputs[static_cast<size_t>(input)]));
  }
  return absl::OkStatus();
}

absl::Status Plan::Regularize(int variable, const float* value, float* gradient) {
  const auto& penalty = penalties_[static_cast<size_t>(variable)];
  return penalty == nullptr ? absl::OkStatus() : penalty->Run(value, gradient);
}

absl::StatusOr<std::string> Plan::FirstNonFiniteStep() {
  std::vector<uint32_t> copy;
  for (const StepGraph::Step& step : graph_.steps) {
    if (step.op->is_view()) continue;
    const StepGraph::Value& output = graph_.output_of(step);
    // Runs again, because later steps may have written over its output.
    CAIRN_RETURN_IF_ERROR(step.op->Forward({.inputs = step.input_pointers,
                                            .variables = step.variable_pointers,
                                            .output = output.memory,
                                            .training = true}));
    copy.resize(static_cast<size_t>(output.desc.num_floats()));
    CAIRN_RETURN_IF_ERROR(
        device_.CopyToHost(output.data, copy.data(), output.desc.num_floats() * int64_t{sizeof(float)}));
    CAIRN_RETURN_IF_ERROR(device_.Synchronize());
    const auto is_bad = [&](uint32_t bits) { return IsNonFinite(bits, output.desc.type); };
    if (std::any_of(copy.begin(), copy.end(), is_bad)) return step.what;
  }
  return "";
}

absl::Status Plan::Penalties(Values values) {
  for (const int variable : spec_.stage.variables) {
    CAIRN_RETURN_IF_ERROR(Regularize(variable, values[static_cast<size_t>(variable)], nullptr));
  }
  return absl::OkStatus();
}

absl::Status Plan::Loss(const Batch& batch, bool gradient) {
  const DeviceWork work(gradient ? spec_.trace : DeviceTrace(), TraceLane::kBackward, "loss", device_);
  float* const doutputs = gradient ? output_gradient(0) : nullptr;
  if (gradient && no_gradient_ != nullptr)
    CAIRN_RETURN_IF_ERROR(device_.CopyOnDevice(no_gradient_->data(), doutputs, output_floats(0)));
  for (LossOfOutput& part : losses_) {
    const float* const weights = batch.weights == nullptr ? nullptr : batch.weights + part.first_weight;
    CAIRN_RETURN_IF_ERROR(part.loss->Run(output() + part.first_output, batch.targets + part.first_target,
                                         weights, &part.sums,
                                         gradient ? doutputs + part.first_output : nullptr));
  }
  return gradient && scaler_ != nullptr ? scaler_->Scale(doutputs) : absl::OkStatus();
}

double Plan::penalty() const {
  double sum = 0;
  for (const auto& penalty : penalties_) sum += penalty == nullptr ? 0 : penalty->penalty();
  for (const StepGraph::Step& step : graph_.steps) sum += step.op->penalty();
  return sum;
}

LossTotals Plan::sums() const {
  LossTotals totals = {.examples = spec_.batch};
  for (const LossOfOutput& part : losses_) {
    totals.loss += part.weight * part.sums.loss;
    if (several_outputs_) totals.of_outputs.push_back(part.sums.loss);
  }
  return totals;
}

absl::Status Plan::ForwardBackward(Values values, const Batch& batch, Gradients gradients,
                                   OnGradient on_gradient) {
  CAIRN_RETURN_IF_ERROR(Forward(values, batch.inputs, /*training=*/true));
  CAIRN_RETURN_IF_ERROR(Loss(batch, /*gradient=*/true));
  return Backward(values, gradients, on_gradient);
}

absl::Status Plan::Evaluate(Values values, const Batch& batch) {
  CAIRN_RETURN_IF_ERROR(Forward(values, batch.inputs, /*training=*/false));
  CAIRN_RETURN_IF_ERROR(Penalties(values));
  return Loss(batch, /*gradient=*/false);
}

}  // namespace cairn::nn
