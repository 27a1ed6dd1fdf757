// A model, or one of its pipeline stages, for one batch size on one device: the ops, and memory for every
// activation. It is created once and run many times; a run allocates nothing. Owned by a Replica, used by its
// thread.
//
// plan.cc creates it, plan_run.cc runs it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "nn/layer/layer.h"
#include "nn/loss.h"
#include "nn/model.h"
#include "nn/replica/device_trace.h"
#include "nn/replica/pipeline_stage.h"

namespace cairn::nn {

// Rounds up to an alignment that suits every device.
constexpr int64_t PaddedFloats(int64_t floats) {
  constexpr int64_t kAlignment = 64;
  return (floats + kAlignment - 1) / kAlignment * kAlignment;
}

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
  };
  // `model` and `device` must outlive the plan.
  static absl::StatusOr<std::unique_ptr<Plan>> Create(const Model& model, const LossSpec& loss,
                                                      kernels::Device& device, Spec spec);
  // A plan of the whole model.
  static absl::StatusOr<std::unique_ptr<Plan>> Create(const Model& model, const LossSpec& loss,
                                                      kernels::Device& device, int64_t batch,
                                                      DeviceTrace trace = {});

  struct Batch {
    absl::Span<const float* const> inputs;  // [input of the stage] [batch, shape], row-major, device memory
    const float* targets = nullptr;         // [batch, the loss' targets per example], device memory
    const float* weights = nullptr;         // [batch], device memory; null if every example weighs 1
  };
  // Addresses of the model's variables in device memory, [variable of the model]; null for variables that the
  // stage lacks. In float16, gradients are contiguous in the model's flat order.
  using Values = absl::Span<const float* const>;
  using Gradients = absl::Span<float* const>;
  // Called once per variable, in the calling thread, when the work that writes its gradient has been enqueued
  // on the device.
  using OnGradient = absl::FunctionRef<absl::Status(int variable)>;

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
  const float* output(size_t output = 0) const { return values_[static_cast<size_t>(outputs_[output])].data; }
  int64_t output_floats(size_t output) const {
    return values_[static_cast<size_t>(outputs_[output])].desc.num_floats();
  }
  // Where Backward() reads an output's gradient; null if none is needed.
  float* output_gradient(size_t output) { return GradientOf(outputs_[output]); }
  // Adds `addend` to output_gradient().
  absl::Status AddToOutputGradient(size_t output, const float* addend);
  // An input gradient of the last Backward(); null if none is needed. The stage's inputs are the first
  // elements of values_.
  const float* input_gradient(size_t input) { return GradientOf(static_cast<int>(input)); }
  int64_t input_floats(size_t input) const { return values_[input].desc.num_floats(); }

  // For devices that compute in float16: the scale of gradients during the backward pass, and whether all
  // gradients of a ForwardBackward() are finite (valid after the next Synchronize()).
  bool scales_loss() const { return scaler_ != nullptr; }
  absl::Status SetLossScale(float scale) { return scaler_->SetScale(scale); }
  bool gradients_finite() const { return finite_; }
  // "layer 'dense'": the first step whose output is not finite after the last Forward(); empty if all outputs
  // are finite. Copies outputs in device memory to the host.
  absl::StatusOr<std::string> FirstNonFiniteStep();
  // Valid after the device's next Synchronize(). `sums` does not include the regularizers' share of the mean
  // loss.
  const kernels::LossSums& sums() const { return sums_; }
  double penalty() const { return std::accumulate(penalties_.begin(), penalties_.end(), 0.0); }

 private:
  // An activation, or an input. Views share the value of their input.
  struct Value {
    kernels::TensorDesc desc;
    std::unique_ptr<kernels::DeviceMemory> memory{};  // null for an input
    const float* data = nullptr;                      // for an input, set at each call
    bool needs_gradient = false;                      // true if it depends on a variable
    int gradient = -1;                                // index into gradient_memory_; -1: none
  };
  // A layer, or a reorder between two layers.
  struct Step {
    std::string what;  // "layer 'conv2d'", for messages
    // The same text, owned by the timeline's recorder; null without a recorder.
    const char* kept = nullptr;
    const char* name() const { return kept == nullptr ? what.c_str() : kept; }
    std::unique_ptr<LayerOp> op{};
    std::vector<int> inputs{};  // indices of values
    int output = -1;
    std::vector<int> variables{};  // indices in the model
    // [input] True if the value's gradient already exists when this step's backward pass runs, so this step
    // adds to it.
    std::vector<bool> adds{};
    // [variable] True if a later step has written a gradient of the variable, so this step adds to it.
    std::vector<bool> adds_to_variable{};
    // Variables whose gradients are complete after this step's backward pass.
    std::vector<int> completes{};
    // Set at each call.
    std::vector<const float*> input_pointers{}, variable_pointers{};
    std::vector<float*> input_gradient_pointers{}, gradient_pointers{};
  };

  Plan(const Model& model, kernels::Device& device, Spec spec)
      : model_(model), device_(device), spec_(std::move(spec)) {}
  absl::Status AddSteps();
  // Counts the users of the stage's nodes, and numbers its inputs.
  void IndexGraph();
  // Returns the index of the value for `input`, which is in the numbering of Node::inputs.
  int ValueOf(int input) const;
  // Whether the next node is the only user of this node, is in the same stage, and has no other input and no
  // variables.
  bool IsOnlyUsedByNext(size_t node) const;
  // Returns the index of `value` in row-major float32. Adds a reorder step if `value` has another layout.
  absl::StatusOr<int> Plain(int value);
  absl::Status AddStep(std::string what, std::unique_ptr<LayerOp> op, std::vector<int> inputs,
                       std::vector<int> variables);
  absl::Status AddRegularizers();
  absl::Status AddLossScaler();
  // Assigns memory to every gradient for the time between its first writer and its reader.
  absl::Status PlanGradients();
  // Creates the op that adds two arrays of this type and size.
  absl::Status AddAdder(kernels::ElementType type, int64_t floats);
  // Finishes the variables whose gradients are complete after this step.
  absl::Status Complete(const Step& step, Values values, Gradients gradients, OnGradient on_gradient);
  // Adds what this step's backward pass wrote to the gradients that existed before.
  absl::Status AddUp(const Step& step, Gradients gradients);
  // `gradient` may be null: only the penalty is computed.
  absl::Status Regularize(int variable, const float* value, float* gradient);
  float* GradientOf(int value) {
    const int memory = values_[static_cast<size_t>(value)].gradient;
    return memory < 0 ? nullptr : gradient_memory_[static_cast<size_t>(memory)]->data();
  }

  const Model& model_;
  kernels::Device& device_;
  const Spec spec_;
  std::vector<Value> values_;  // the stage's inputs come first
  std::vector<Step> steps_;
  std::vector<int> value_of_;          // [node of the stage]
  std::vector<int> users_;             // [node of the model] how often the node is an input
  std::map<int, int> value_of_input_;  // key: an input of the stage, in the numbering of Node::inputs
  std::vector<int> outputs_;           // [output of the stage] index of the value
  std::map<int, int> plain_;           // key: a value in another layout; value: its row-major float32 version
  std::unique_ptr<kernels::Loss> loss_;          // null except in the last stage
  std::unique_ptr<kernels::LossScaler> scaler_;  // null unless the device computes in float16
  bool finite_ = true;
  std::vector<std::unique_ptr<kernels::Regularizer>> regularizers_;  // [variable] or null
  // Gradients of activations are short-lived, so each buffer serves several of them, one after another.
  std::vector<std::unique_ptr<kernels::DeviceMemory>> gradient_memory_;
  // If a value or a variable has several users, the first of them in the order of the backward pass writes
  // the gradient. The others write their gradients here, and each is then added.
  std::unique_ptr<kernels::DeviceMemory> addend_;
  // [element type, floats] The op that adds two arrays.
  std::map<std::pair<kernels::ElementType, int64_t>, std::unique_ptr<kernels::NaryOp>> adders_;
  kernels::LossSums sums_;
  std::vector<double> penalties_;  // [variable]
};

}  // namespace cairn::nn
