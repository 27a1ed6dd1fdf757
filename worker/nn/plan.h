// One batch size of one model, or of a part of it, on one device: the ops, and memory for every activation.
// Made once, run many times; running allocates nothing. Owned by a Replica, used by its thread.
//
// plan.cc makes it, plan_run.cc runs it.
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
#include "worker/nn/device_trace.h"
#include "worker/nn/layer.h"
#include "worker/nn/loss.h"
#include "worker/nn/model.h"
#include "worker/nn/model_part.h"

namespace cairn::nn {

// Floats up to the next place that every device likes to read from.
constexpr int64_t PaddedFloats(int64_t floats) {
  constexpr int64_t kAlignment = 64;
  return (floats + kAlignment - 1) / kAlignment * kAlignment;
}

class Plan {
 public:
  struct Spec {
    ModelPart part;
    int64_t batch = 0;  // >= 1
    // Of a piece of a batch: the examples of all of it, which gradients are the mean over. 0: the batch.
    int64_t mean_over = 0;
    // Variables whose regularizers' gradients this plan adds: of the pieces of a batch one does.
    std::vector<int> penalized{};
    DeviceTrace trace{};
  };
  // `model` and `device` must outlive the plan.
  static absl::StatusOr<std::unique_ptr<Plan>> Create(const Model& model, const LossSpec& loss,
                                                      kernels::Device& device, Spec spec);
  // Of the whole model.
  static absl::StatusOr<std::unique_ptr<Plan>> Create(const Model& model, const LossSpec& loss,
                                                      kernels::Device& device, int64_t batch,
                                                      DeviceTrace trace = {});

  struct Batch {
    absl::Span<const float* const> inputs;  // [input of the part] [batch, shape], row-major, device memory
    const float* targets = nullptr;         // [batch, the loss' targets per example], device memory
    const float* weights = nullptr;         // [batch], device memory; null where every example weighs 1
  };
  // Where the model's variables lie: device memory, [variable of the model], null for those that the part
  // lacks. In float16 gradients lie in the model's flat order.
  using Values = absl::Span<const float* const>;
  using Gradients = absl::Span<float* const>;
  // Told once per variable, in the calling thread, when the work that writes its gradient has been asked of
  // the device.
  using OnGradient = absl::FunctionRef<absl::Status(int variable)>;

  // A part with the model's end. `batch.inputs` must stay until the next run.
  absl::Status ForwardBackward(Values values, const Batch& batch, Gradients gradients,
                               OnGradient on_gradient);
  absl::Status Evaluate(Values values, const Batch& batch);

  // The same one by one, as parts need it. Loss(): of the last part; with `gradient` it writes the gradient
  // that Backward() begins with. Penalties(): of an evaluation; Backward() does it by itself.
  // `await` is asked before a variable is read: CANCELLED when it says no.
  absl::Status Forward(
      Values values, absl::Span<const float* const> inputs, bool training,
      absl::FunctionRef<bool(int variable)> await = [](int) { return true; });
  absl::Status Loss(const Batch& batch, bool gradient);
  absl::Status Backward(Values values, Gradients gradients, OnGradient on_gradient);
  absl::Status Penalties(Values values);
  // At the part's borders, row-major float32, device memory. What the last Forward() computed:
  const float* output(size_t output = 0) const { return values_[static_cast<size_t>(outputs_[output])].data; }
  int64_t output_floats(size_t output) const {
    return values_[static_cast<size_t>(outputs_[output])].desc.num_floats();
  }
  // Where Backward() finds an output's gradient; null where none is needed.
  float* output_gradient(size_t output) { return GradientOf(outputs_[output]); }
  // Adds `addend` to it.
  absl::Status AddToOutputGradient(size_t output, const float* addend);
  // What the last Backward() computed; null where none is needed. Inputs come first among the values.
  const float* input_gradient(size_t input) { return GradientOf(static_cast<int>(input)); }
  int64_t input_floats(size_t input) const { return values_[input].desc.num_floats(); }

  // Where the device computes in float16: the factor of gradients on their way; and, after the Synchronize()
  // that follows a ForwardBackward(), whether all came out finite.
  bool scales_loss() const { return scaler_ != nullptr; }
  absl::Status SetLossScale(float scale) { return scaler_->SetScale(scale); }
  bool gradients_finite() const { return finite_; }
  // "layer 'dense'": the first step whose output is not finite after the last Forward(); empty if all outputs
  // are finite. Copies outputs in device memory to the host.
  absl::StatusOr<std::string> FirstNonFiniteStep();
  // After the device's next Synchronize(). The regularizers' part of the mean loss is not in the sums.
  const kernels::LossSums& sums() const { return sums_; }
  double penalty() const { return std::accumulate(penalties_.begin(), penalties_.end(), 0.0); }

 private:
  // An activation, or an input. Views share their input's value.
  struct Value {
    kernels::TensorDesc desc;
    std::unique_ptr<kernels::DeviceMemory> memory{};  // null for an input
    const float* data = nullptr;                      // an input's is set for the call
    bool needs_gradient = false;                      // a variable stands before it
    int gradient = -1;                                // of gradient_memory_; -1: none
  };
  // A layer, or a reorder between two layers.
  struct Step {
    std::string what;            // "layer 'conv2d'", for messages
    const char* kept = nullptr;  // likewise, by the recorder of a timeline, if there is one
    const char* name() const { return kept == nullptr ? what.c_str() : kept; }
    std::unique_ptr<LayerOp> op{};
    std::vector<int> inputs{};  // values
    int output = -1;
    std::vector<int> variables{};  // of the model
    // [input] True where the value's gradient exists when this step's backward runs: this one is added to it.
    std::vector<bool> adds{};
    // [variable] True where a later step has given a gradient of the variable: this one is added to it.
    std::vector<bool> adds_to_variable{};
    // Variables whose gradient is whole after this step's backward.
    std::vector<int> completes{};
    // Set for the call.
    std::vector<const float*> input_pointers{}, variable_pointers{};
    std::vector<float*> input_gradient_pointers{}, gradient_pointers{};
  };

  Plan(const Model& model, kernels::Device& device, Spec spec)
      : model_(model), device_(device), spec_(std::move(spec)) {}
  absl::Status AddSteps();
  // Counts the users of the part's nodes, and numbers its inputs.
  void IndexGraph();
  // The value that is `input`, as Node::inputs calls it.
  int ValueOf(int input) const;
  // Whether the node after this one is its only user, in the same part, and has no other input and no
  // variables.
  bool IsOnlyUsedByNext(size_t node) const;
  // The value in row-major float32; adds a step where it is not yet.
  absl::StatusOr<int> Plain(int value);
  absl::Status AddStep(std::string what, std::unique_ptr<LayerOp> op, std::vector<int> inputs,
                       std::vector<int> variables);
  absl::Status AddRegularizers();
  absl::Status AddLossScaler();
  // Gives every gradient memory for the time between its first writer and its reader.
  absl::Status PlanGradients();
  // For sums of two such runs of memory.
  absl::Status AddAdder(kernels::ElementType type, int64_t floats);
  // What is left to do for the variables whose gradients are whole after this step.
  absl::Status Complete(const Step& step, Values values, Gradients gradients, OnGradient on_gradient);
  // Adds what this step's backward wrote beside the gradients that were there.
  absl::Status AddUp(const Step& step, Gradients gradients);
  // `gradient` may be null: the penalty alone.
  absl::Status Regularize(int variable, const float* value, float* gradient);
  float* GradientOf(int value) {
    const int memory = values_[static_cast<size_t>(value)].gradient;
    return memory < 0 ? nullptr : gradient_memory_[static_cast<size_t>(memory)]->data();
  }

  const Model& model_;
  kernels::Device& device_;
  const Spec spec_;
  std::vector<Value> values_;  // those of the part's inputs first
  std::vector<Step> steps_;
  std::vector<int> value_of_;                    // [node of the part]
  std::vector<int> users_;                       // [node of the model] how often it is an input
  std::map<int, int> value_of_input_;            // by what Node::inputs calls an input of the part
  std::vector<int> outputs_;                     // [output of the part] a value
  std::map<int, int> plain_;                     // of a value that is not
  std::unique_ptr<kernels::Loss> loss_;          // null but in the last part
  std::unique_ptr<kernels::LossScaler> scaler_;  // null but in float16
  bool finite_ = true;
  std::vector<std::unique_ptr<kernels::Regularizer>> regularizers_;  // [variable] or null
  // Gradients of activations are short-lived: many share a memory, one after another.
  std::vector<std::unique_ptr<kernels::DeviceMemory>> gradient_memory_;
  // Where a value or a variable has several users: what all but the first in backward's order give is added.
  std::unique_ptr<kernels::DeviceMemory> addend_;
  std::map<std::pair<kernels::ElementType, int64_t>, std::unique_ptr<kernels::NaryOp>> adders_;  // [floats]
  kernels::LossSums sums_;
  std::vector<double> penalties_;  // [variable]
};

}  // namespace cairn::nn
