// One batch size of one model on one device: the ops, and memory for every activation. Made once, run many
// times; running allocates nothing. Owned by a Replica, used by its thread.
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
#include "worker/nn/layer.h"
#include "worker/nn/loss.h"
#include "worker/nn/model.h"

namespace cairn::nn {

class Plan {
 public:
  // `batch` >= 1. `model` and `device` must outlive the plan.
  static absl::StatusOr<std::unique_ptr<Plan>> Create(const Model& model, const LossSpec& loss,
                                                      kernels::Device& device, int64_t batch);

  struct Batch {
    absl::Span<const float* const> inputs;  // [model input] [batch, shape], row-major, device memory
    const float* targets = nullptr;         // [batch, the loss' targets per example], device memory
    const float* weights = nullptr;         // [batch], device memory; null where every example weighs 1
  };
  // `parameters` and `gradients`: device memory in the model's flat order. `on_gradient(variable)` is called
  // once per variable, in the calling thread, when the work that writes its gradient has been asked of the
  // device.
  absl::Status ForwardBackward(const float* parameters, const Batch& batch, float* gradients,
                               absl::FunctionRef<absl::Status(int variable)> on_gradient);
  absl::Status Evaluate(const float* parameters, const Batch& batch);
  // What the last of either computed: [batch, output_shape], row-major, device memory.
  const float* outputs() const { return values_[static_cast<size_t>(output_)].data; }
  // Where the device computes in float16: the factor of gradients on their way; and, after the Synchronize()
  // that follows a ForwardBackward(), whether all came out finite.
  bool scales_loss() const { return scaler_ != nullptr; }
  absl::Status SetLossScale(float scale) { return scaler_->SetScale(scale); }
  bool gradients_finite() const { return finite_; }
  // After the device's next Synchronize(). The regularizers' part of the mean loss is not in the sums.
  const kernels::LossSums& sums() const { return sums_; }
  double penalty() const { return std::accumulate(penalties_.begin(), penalties_.end(), 0.0); }

 private:
  // An activation, or an input of the model. Views share their input's value.
  struct Value {
    kernels::TensorDesc desc;
    std::unique_ptr<kernels::DeviceMemory> memory{};  // null for an input
    const float* data = nullptr;                      // an input's is set for the call
    bool needs_gradient = false;                      // a variable stands before it
    int gradient = -1;                                // of gradient_memory_; -1: none
  };
  // A layer, or a reorder between two layers.
  struct Step {
    std::string what;  // "layer 'conv2d'", for messages
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

  Plan(const Model& model, kernels::Device& device) : model_(model), device_(device) {}
  absl::Status AddSteps(int64_t batch);
  // Whether the node after this one is its only user, and has no other input and no variables.
  bool IsOnlyUsedByNext(size_t node) const;
  // The value in row-major float32; adds a step where it is not yet.
  absl::StatusOr<int> Plain(int value);
  absl::Status AddStep(std::string what, std::unique_ptr<LayerOp> op, std::vector<int> inputs,
                       std::vector<int> variables);
  absl::Status AddRegularizers();
  absl::Status AddLossScaler();
  // Gives every gradient memory for the time between its first writer and its reader.
  absl::Status PlanGradients();
  absl::Status Forward(const float* parameters, const Batch& batch, bool training);
  absl::Status Backward(const float* parameters, float* gradients,
                        absl::FunctionRef<absl::Status(int variable)> on_gradient);
  // What is left to do for a variable whose gradient is whole.
  absl::Status Complete(int variable, const float* parameters, float* gradients,
                        absl::FunctionRef<absl::Status(int variable)> on_gradient);
  // Adds what this step's backward wrote beside the gradients that were there.
  absl::Status AddUp(const Step& step, float* gradients);
  // `gradients` may be null: the penalty alone.
  absl::Status Regularize(int variable, const float* parameters, float* gradients);
  float* GradientOf(int value) {
    const int memory = values_[static_cast<size_t>(value)].gradient;
    return memory < 0 ? nullptr : gradient_memory_[static_cast<size_t>(memory)]->data();
  }

  const Model& model_;
  kernels::Device& device_;
  std::vector<Value> values_;
  std::vector<Step> steps_;
  int output_ = -1;           // a value
  std::map<int, int> plain_;  // of a value that is not
  std::unique_ptr<kernels::Loss> loss_;
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
