// Runs a plan: the forward pass, the loss, the backward pass, and the addition of gradients.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "common/core/status.h"
#include "nn/replica/plan.h"

namespace cairn::nn {

using kernels::TensorDesc;

absl::Status Plan::Forward(Values values, absl::Span<const float* const> inputs, bool training,
                           absl::FunctionRef<bool(int variable)> await) {
  // An evaluation is a single slice of the trainer's timeline.
  const DeviceTrace trace = training ? spec_.trace : DeviceTrace();
  const DeviceWork forward(trace, TraceLane::kForward, "forward", device_);
  for (size_t i = 0; i < inputs.size(); ++i) values_[i].data = inputs[i];
  for (Step& step : steps_) {
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      step.input_pointers[i] = values_[static_cast<size_t>(step.inputs[i])].data;
    }
    Value& output = values_[static_cast<size_t>(step.output)];
    if (step.op->is_view()) {
      output.data = step.input_pointers[0];
      continue;
    }
    for (size_t i = 0; i < step.variables.size(); ++i) {
      if (!await(step.variables[i])) return absl::CancelledError("its variables have not arrived");
      step.variable_pointers[i] = values[static_cast<size_t>(step.variables[i])];
    }
    const DeviceWork work(trace, TraceLane::kForward, step.name(), device_);
    const absl::Status status = step.op->Forward({.inputs = step.input_pointers,
                                                  .variables = step.variable_pointers,
                                                  .output = output.memory->data(),
                                                  .training = training});
    if (!status.ok()) return Annotate(status, step.what);
  }
  return absl::OkStatus();
}

absl::Status Plan::Backward(Values values, Gradients gradients, OnGradient on_gradient) {
  const DeviceWork backward(spec_.trace, TraceLane::kBackward, "backward", device_);
  for (size_t index = steps_.size(); index-- > 0;) {
    Step& step = steps_[index];
    if (!values_[static_cast<size_t>(step.output)].needs_gradient) continue;
    float* addend = addend_ == nullptr ? nullptr : addend_->data();
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      const Value& input = values_[static_cast<size_t>(step.inputs[i])];
      step.input_gradient_pointers[i] = step.adds[i] ? addend : GradientOf(step.inputs[i]);
      if (step.adds[i]) addend += PaddedFloats(input.desc.num_floats());
    }
    for (size_t i = 0; i < step.variables.size(); ++i) {
      const ModelVariable& variable = model_.variables()[static_cast<size_t>(step.variables[i])];
      step.gradient_pointers[i] =
          step.adds_to_variable[i] ? addend : gradients[static_cast<size_t>(step.variables[i])];
      if (step.adds_to_variable[i]) addend += PaddedFloats(variable.shape.num_elements());
    }
    float* output_gradient = GradientOf(step.output);
    bool completed = false;
    const auto complete = [&] {
      completed = true;
      return Complete(step, values, gradients, on_gradient);
    };
    // Gradients that must still be added up or unscaled are not final yet.
    const bool final_at_once = scaler_ == nullptr && !absl::c_linear_search(step.adds_to_variable, true);
    if (step.op->is_view()) {
      if (step.adds[0]) step.input_gradient_pointers[0] = output_gradient;
    } else {
      const DeviceWork work(spec_.trace, TraceLane::kBackward, step.name(), device_);
      const absl::Status status = step.op->Backward(
          {.inputs = step.input_pointers,
           .variables = step.variable_pointers,
           .output = values_[static_cast<size_t>(step.output)].data,
           .output_gradient = output_gradient,
           .input_gradients = absl::MakeConstSpan(step.input_gradient_pointers),
           .gradients = absl::MakeConstSpan(step.gradient_pointers),
           .on_gradients =
               final_at_once ? std::optional<absl::FunctionRef<absl::Status()>>(complete) : std::nullopt});
      if (!status.ok()) return Annotate(status, step.what);
    }
    CAIRN_RETURN_IF_ERROR(AddUp(step, gradients));
    if (scaler_ == nullptr && !completed) CAIRN_RETURN_IF_ERROR(complete());
  }
  if (scaler_ == nullptr) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(scaler_->Unscale(gradients.empty() ? nullptr : gradients[0], &finite_));
  for (size_t index = steps_.size(); index-- > 0;) {
    CAIRN_RETURN_IF_ERROR(Complete(steps_[index], values, gradients, on_gradient));
  }
  return absl::OkStatus();
}

absl::Status Plan::Complete(const Step& step, Values values, Gradients gradients, OnGradient on_gradient) {
  for (const int variable : step.completes) {
    const auto index = static_cast<size_t>(variable);
    CAIRN_RETURN_IF_ERROR(Regularize(variable, values[index], gradients[index]));
    CAIRN_RETURN_IF_ERROR(on_gradient(variable));
  }
  return absl::OkStatus();
}

absl::Status Plan::AddUp(const Step& step, Gradients gradients) {
  const auto add = [&](float* sum, const float* addend, kernels::ElementType type, int64_t floats) {
    const float* const terms[] = {sum, addend};
    return adders_.at({type, floats})->Forward(terms, sum);
  };
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    if (!step.adds[i]) continue;
    const TensorDesc& desc = values_[static_cast<size_t>(step.inputs[i])].desc;
    CAIRN_RETURN_IF_ERROR(
        add(GradientOf(step.inputs[i]), step.input_gradient_pointers[i], desc.type, desc.num_floats()));
  }
  for (size_t i = 0; i < step.variables.size(); ++i) {
    if (!step.adds_to_variable[i]) continue;
    const ModelVariable& variable = model_.variables()[static_cast<size_t>(step.variables[i])];
    CAIRN_RETURN_IF_ERROR(add(gradients[static_cast<size_t>(step.variables[i])], step.gradient_pointers[i],
                              kernels::ElementType::kFloat32, variable.shape.num_elements()));
  }
  return absl::OkStatus();
}

absl::Status Plan::Regularize(int variable, const float* value, float* gradient) {
  const auto& regularizer = regularizers_[static_cast<size_t>(variable)];
  if (regularizer == nullptr) return absl::OkStatus();
  return regularizer->Run(value, gradient, &penalties_[static_cast<size_t>(variable)]);
}

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
  }
  return false;
}

}  // namespace

absl::StatusOr<std::string> Plan::FirstNonFiniteStep() {
  std::vector<uint32_t> copy;
  for (const Step& step : steps_) {
    const Value& output = values_[static_cast<size_t>(step.output)];
    if (output.memory == nullptr) continue;  // a view
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

absl::Status Plan::AddToOutputGradient(size_t output, const float* addend) {
  float* const sum = output_gradient(output);
  const float* const terms[] = {sum, addend};
  return adders_.at({kernels::ElementType::kFloat32, output_floats(output)})->Forward(terms, sum);
}

absl::Status Plan::Loss(const Batch& batch, bool gradient) {
  const DeviceWork work(gradient ? spec_.trace : DeviceTrace(), TraceLane::kBackward, "loss", device_);
  float* const doutputs = gradient ? GradientOf(outputs_[0]) : nullptr;
  CAIRN_RETURN_IF_ERROR(loss_->Run(output(), batch.targets, batch.weights, &sums_, doutputs));
  return gradient && scaler_ != nullptr ? scaler_->Scale(doutputs) : absl::OkStatus();
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
