// One batch size of one model on one device: the ops, and memory for every activation. Made once, run many
// times; running allocates nothing. Owned by a Replica, used by its thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
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
    uint64_t seed = 0;                      // of what the step draws at random
  };
  // `parameters` and `gradients`: device memory in the model's flat order. `sums` is written by the device's
  // next Synchronize(). `on_gradient(variable)` is called once per variable, in the calling thread, when the
  // work that writes its gradient has been asked of the device.
  absl::Status ForwardBackward(const float* parameters, const Batch& batch, float* gradients,
                               kernels::LossSums* sums,
                               absl::FunctionRef<absl::Status(int variable)> on_gradient);
  absl::Status Evaluate(const float* parameters, const Batch& batch, kernels::LossSums* sums);
  // What the last of either computed: [batch, output_shape], row-major, device memory.
  const float* outputs() const { return values_[static_cast<size_t>(output_)].data; }
  // The regularizers' part of the mean loss, which is not in `sums`. After the next Synchronize().
  double penalty() const { return penalty_; }

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
  // The value in row-major order; adds a step where it is in none yet.
  absl::StatusOr<int> RowMajor(int value);
  absl::Status AddStep(std::string what, std::unique_ptr<LayerOp> op, std::vector<int> inputs,
                       std::vector<int> variables);
  absl::Status AddRegularizers();
  // Gives every gradient memory for the time between its first writer and its reader.
  absl::Status PlanGradients();
  absl::Status Forward(const float* parameters, const Batch& batch, bool training);
  absl::Status Backward(const float* parameters, float* gradients,
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
  int output_ = -1;               // a value
  std::map<int, int> row_major_;  // of a blocked value
  std::unique_ptr<kernels::Loss> loss_;
  std::vector<std::unique_ptr<kernels::Regularizer>> regularizers_;  // [variable] or null
  // Gradients of activations are short-lived: many share a memory, one after another.
  std::vector<std::unique_ptr<kernels::DeviceMemory>> gradient_memory_;
  // Where a value or a variable has several users: what all but the first in backward's order give is added.
  std::unique_ptr<kernels::DeviceMemory> addend_;
  std::map<int64_t, std::unique_ptr<kernels::NaryOp>> adders_;  // [floats]
  double penalty_ = 0;
};

}  // namespace cairn::nn
