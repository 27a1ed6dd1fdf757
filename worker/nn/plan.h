// One batch size of one model on one device: the ops, and memory for every activation. Made once, run many
// times; running allocates nothing. Owned by a Replica, used by its thread.
#pragma once

#include <memory>
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
    const float* inputs = nullptr;   // [batch, input_shape], row-major, device memory
    const float* targets = nullptr;  // [batch, the loss' targets per example], device memory
    const float* weights = nullptr;  // [batch], device memory; null where every example weighs 1
  };
  // `parameters` and `gradients`: device memory in the model's flat order. `sums` is written by the device's
  // next Synchronize(). `on_gradient(variable)` is called in the calling thread when the work that writes the
  // variable's gradient has been asked of the device.
  absl::Status ForwardBackward(const float* parameters, const Batch& batch, float* gradients,
                               kernels::LossSums* sums,
                               absl::FunctionRef<absl::Status(int variable)> on_gradient);
  absl::Status Evaluate(const float* parameters, const Batch& batch, kernels::LossSums* sums);
  // What the last of either computed: [batch, output_shape], row-major, device memory.
  const float* outputs() const { return steps_.back().output_pointer; }

 private:
  // A layer, or a reorder between two layers.
  struct Step {
    std::unique_ptr<LayerOp> op;
    std::vector<int> variables{};                     // of the model; also the order of the next two
    std::vector<const float*> variable_pointers{};    // set for the call
    std::vector<float*> gradient_pointers{};          // set for the call
    std::unique_ptr<kernels::DeviceMemory> output{};  // null for a view
    const float* output_pointer = nullptr;            // set for the call
    bool needs_input_gradient = false;                // a variable stands before it
  };

  explicit Plan(const Model& model) : model_(model) {}
  absl::Status AddSteps(kernels::Device& device, int64_t batch);
  absl::Status AddReorderToRowMajor(kernels::Device& device, const kernels::TensorDesc& from,
                                    bool needs_gradient);
  absl::Status AddStep(Step step, absl::string_view what, kernels::Device& device);
  absl::Status Forward(const float* parameters, const float* inputs, bool training);
  absl::Status Backward(const float* inputs, float* gradients,
                        absl::FunctionRef<absl::Status(int variable)> on_gradient);
  const float* InputOf(size_t step, const float* inputs) const {
    return step == 0 ? inputs : steps_[step - 1].output_pointer;
  }

  const Model& model_;
  std::vector<Step> steps_;
  std::unique_ptr<kernels::Loss> loss_;
  // Gradients of activations are short-lived: a step reads one of these and writes the other.
  std::unique_ptr<kernels::DeviceMemory> activation_gradients_[2];
};

}  // namespace cairn::nn
