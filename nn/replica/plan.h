// A model, or one of its pipeline stages, for one batch size on one device, as passes that can be run: forward,
// loss and backward over the ops of a StepGraph, with the penalties of regularizers and loss scaling. It is
// created once and run many times; a run allocates nothing. Owned by a Replica, used by its thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "nn/model.h"
#include "nn/objective.h"
#include "nn/replica/device_trace.h"
#include "nn/replica/gradient_buffers.h"
#include "nn/replica/pipeline_stage.h"
#include "nn/replica/step_graph.h"
#include "nn/replica/variable_penalty.h"

namespace cairn::nn {

class Plan {
 public:
  struct Spec {
    PipelineStage stage;
    int64_t batch = 0;  // >= 1
    // For a micro-batch: the number of examples of the whole batch, because gradients are those of the mean
    // loss over the whole batch. 0 means `batch`.
    int64_t mean_over = 0;
    // Variables whose regularizers' gradients this plan adds. Only one of a batch's micro-batches adds them.
    std::vector<int> penalized{};
    DeviceTrace trace{};
    BatchSync* sync = nullptr;  // as in LayerOpParams
  };
  // `model` and `device` must outlive the plan.
  static absl::StatusOr<std::unique_ptr<Plan>> Create(const Model& model, const Objective& objective,
                                                      kernels::Device& device, Spec spec);
  // The spec of a plan of the whole model.
  static Spec SpecOf(const Model& model, int64_t batch);

  struct Batch {
    absl::Span<const float* const> inputs;  // [input of the stage] [batch, shape], row-major, device memory
    const float* targets = nullptr;         // [batch, the loss' targets per example], device memory
    // [batch, the objective's weights per example], device memory; null if every example weighs 1
    const float* weights = nullptr;
  };
  // Addresses of the model's variables in device memory, [variable of the model]; null for variables that the
  // stage lacks. In float16, gradients are contiguous in the model's flat order.
  using Values = absl::Span<const float* const>;
  using Gradients = GradientBuffers::Gradients;
  // Called once per variable, and with Node::OfModelInput(i) once for each input i of the model that needs a gradient:
  // in the calling thread, when the work that writes the gradient has been enqueued on the device.
  using OnGradient = absl::FunctionRef<absl::Status(int gradient)>;

  // Sets where Loss() and Backward() write the gradient of an input of the stage that is an input of the model and
  // needs a gradient: [batch, shape], row-major float32 in device memory. Must be called before the first Loss().
  void SetInputGradient(size_t input, float* to) { gradients_->SetInput(input, to); }

  // ForwardBackward() runs all passes of a training step, Evaluate() the forward pass, the penalties and the
  // loss. The plan's stage must contain the model's end. `batch.inputs` must stay valid until the next run.
  absl::Status ForwardBackward(Values values, const Batch& batch, Gradients gradients,
                               OnGradient on_gradient);
  absl::Status Evaluate(Values values, const Batch& batch);

  // The steps of ForwardBackward() one by one, for pipeline stages. Loss() is for the last stage; with
  // `gradient` it writes the gradient from which Backward() starts. Penalties() is for evaluation, because
  // Backward() includes the penalties. `await` is called before a variable is read; if it returns false,
  // Forward() returns CANCELLED.
  absl::Status Forward(
      Values values, absl::Span<const float* const> inputs, bool training,
      absl::FunctionRef<bool(int variable)> await = [](int) { return true; });
  absl::Status Loss(const Batch& batch, bool gradient);
  absl::Status Backward(Values values, Gradients gradients, OnGradient on_gradient);
  absl::Status Penalties(Values values);
  // The tensors at the stage's borders are row-major float32 in device memory. output() is valid after
  // Forward().
  const float* output(size_t output = 0) const { return value_of_output(output).data; }
  int64_t output_floats(size_t output) const { return value_of_output(output).desc.num_floats(); }
  // Where Backward() reads an output's gradient; null if none is needed.
  float* output_gradient(size_t output) { return gradients_->of(graph_.outputs[output]); }
  // Adds `addend` to output_gradient().
  absl::Status AddToOutputGradient(size_t output, const float* addend) {
    return gradients_->AddToOutput(graph_.outputs[output], addend);
  }
  // An input gradient of the last Backward(); null if none is needed.
  const float* input_gradient(size_t input) { return gradients_->of(static_cast<int>(input)); }
  int64_t input_floats(size_t input) const { return graph_.values[input].desc.num_floats(); }

  // For devices that compute in float16: the scale of gradients during the backward pass, and whether all
  // gradients of a ForwardBackward() are finite (valid after the next Synchronize()).
  bool scales_loss() const { return scaler_ != nullptr; }
  absl::Status SetLossScale(float scale);
  bool gradients_finite() const {
    return finite_ && std::all_of(input_scalers_.begin(), input_scalers_.end(),
                                  [](const InputScaler& input) { return input.finite; });
  }
  // "layer 'dense'": the first step whose output is not finite in the last Forward(), which was a training step; empty
  // if all outputs are finite. Runs that pass again, so its values and inputs must still exist, and the device must
  // draw the same random numbers. Copies outputs in device memory to the host.
  absl::StatusOr<std::string> FirstNonFiniteStep();
  // Valid after the device's next Synchronize(). `sums` does not include the penalties' share of the mean loss: those
  // of variables and of layers.
  LossTotals sums() const;
  double penalty() const;

 private:
  struct LossOfOutput {
    std::unique_ptr<kernels::Loss> loss;
    double weight = 1;
    int64_t first_output = 0, first_target = 0, first_weight = 0;  // in those of an example
    kernels::LossSums sums{};                                      // without the weight
  };
  // Divides the gradient of an input of the stage by the loss scale.
  struct InputScaler {
    int input = 0;
    std::unique_ptr<kernels::LossScaler> scaler;
    bool finite = true;  // whether the last gradient was finite
  };

  Plan(const Model& model, kernels::Device& device, Spec spec)
      : model_(model), device_(device), spec_(std::move(spec)) {}
  absl::Status AddLosses(const Objective& objective);
  absl::Status AddRegularizers();
  absl::Status AddLossScaler();
  // Runs the backward pass of the op of a step that is no view. `on_gradients`: see LayerOp::BackwardArgs.
  absl::Status RunBackward(const StepGraph::Step& step, const GradientBuffers::Written& written,
                           std::optional<absl::FunctionRef<absl::Status()>> on_gradients);
  absl::Status Unscale(Gradients gradients);
  // Adds the penalties of variables whose gradients begin with this step, and announces those that it completes.
  absl::Status Complete(size_t step, Values values, Gradients gradients, OnGradient on_gradient);
  absl::Status CompleteInputs(size_t step, OnGradient on_gradient);
  // `gradient` may be null: only the penalty is computed.
  absl::Status Regularize(int variable, const float* value, float* gradient);
  const StepGraph::Value& value_of_output(size_t output) const {
    return graph_.values[static_cast<size_t>(graph_.outputs[output])];
  }

  const Model& model_;
  kernels::Device& device_;
  const Spec spec_;
  StepGraph graph_;
  std::unique_ptr<GradientBuffers> gradients_;
  std::vector<LossOfOutput> losses_;  // empty except in the last stage
  std::unique_ptr<kernels::DeviceMemory>
      no_gradient_;  // zeros of the outputs; null if each output has a loss
  bool several_outputs_ = false;
  std::unique_ptr<kernels::LossScaler> scaler_;  // null unless the device computes in float16
  bool finite_ = true;
  std::vector<InputScaler> input_scalers_;                   // empty unless the device computes in float16
  std::vector<std::unique_ptr<VariablePenalty>> penalties_;  // [variable] or null
};

}  // namespace cairn::nn
