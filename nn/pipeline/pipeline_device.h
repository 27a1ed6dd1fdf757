// A pipeline device of a divided model: one device, its variables, and the work of its stages. Owned by the
// pipeline, used by the device's thread, except for the tensors that a StageInstance passes on.
//
// A device with its own memory holds only the variables of its stages. Gradients of micro-batches are
// added up where the device computes, in the order of the micro-batches.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "nn/replica/device_copy.h"
#include "nn/replica/host_staging.h"
#include "nn/replica/plan.h"

namespace cairn::nn {

// A stage instance: one stage for one micro-batch, with its ops, its activations, and the tensors that cross
// its borders.
struct StageInstance {
  std::unique_ptr<Plan> plan{};
  std::vector<std::optional<DeviceCopy>> inputs{};    // [input] received from the host or another device
  std::vector<const float*> input_pointers{};         // [input] set for the call
  std::vector<std::optional<HostStaging>> outputs{};  // [output] sent to another device
  std::vector<std::optional<HostStaging>> input_gradients{};  // [input] sent to another device
  // [input] Present for inputs of the model that need a gradient: where the plan writes it.
  std::vector<std::optional<DeviceCopy>> model_input_gradients{};
  // [output] Present if several stages read the output: the gradient that a further reader returns, before it
  // is added to the first reader's gradient.
  std::vector<std::optional<DeviceCopy>> output_addends{};
  std::optional<DeviceCopy> targets{}, weights{};  // used by the last stage
};

class PipelineDevice {
 public:
  // `model` and `device` must outlive it.
  static absl::StatusOr<std::unique_ptr<PipelineDevice>> Create(const Model& model, kernels::Device& device,
                                                                std::vector<int> variables);

  kernels::Device& device() const { return device_; }

  // Begins a call. `parameters` and `gradients` (empty in an evaluation) are in the model's flat order and
  // must stay valid until the end of the call.
  absl::Status Begin(absl::Span<const float> parameters, absl::Span<float> gradients);
  Plan::Values values() const { return values_; }

  // How an instance's gradient of a variable contributes to the batch's gradient.
  struct Contribution {
    // Whether this is the first or the last contribution to the variable.
    bool first = true, last = true;
    float share = 1;  // the micro-batch's fraction of the batch's examples
  };
  // Where the instance's backward pass writes its gradient.
  float* TargetOf(int variable, const Contribution& contribution);
  // Call after the backward pass: adds the instance's gradient to the sum. The last contribution also copies
  // the sum to `gradients`.
  absl::Status Add(int variable, const Contribution& contribution);
  // Call when the work that writes the last part of an input's gradient to host memory has been requested. `gradient`
  // is Node::OfModelInput() of the input.
  void AddInput(int gradient) { final_.push_back(gradient); }
  // Calls `on_gradient` for the variables and inputs whose gradients became final since the last call.
  absl::Status Announce(absl::FunctionRef<void(int gradient)> on_gradient);

 private:
  PipelineDevice(const Model& model, kernels::Device& device, std::vector<int> variables)
      : model_(model), device_(device), variables_(std::move(variables)) {}
  absl::Status AllocateVariables();
  bool near() const { return device_.host_memory_is_device_memory(); }
  const ModelVariable& VariableOf(int variable) const {
    return model_.variables()[static_cast<size_t>(variable)];
  }
  // A statistic is the mean of the micro-batches' values, weighted by examples. Gradients need no weights:
  // each micro-batch computes the gradient of its part of the whole batch's mean loss.
  bool is_weighted(int variable, const Contribution& contribution) const {
    return !VariableOf(variable).trainable() && contribution.share != 1;
  }
  absl::Status Weigh(int variable, float share, float* to);

  const Model& model_;
  kernels::Device& device_;
  const std::vector<int> variables_;  // ascending
  // Arrays for the variables of this device, one variable after another: the values, the sums of the
  // gradients (both null if they are in host memory), and an instance's gradients before they are added.
  // weighted_memory_ has room for one weighted statistic.
  std::unique_ptr<kernels::DeviceMemory> values_memory_, sums_memory_, addends_memory_, weighted_memory_;
  std::vector<const float*> values_;                            // [variable of the model]
  std::vector<float*> sums_, addends_;                          // [variable of the model]
  std::map<int64_t, std::unique_ptr<kernels::NaryOp>> adders_;  // [elements]
  std::map<std::pair<int64_t, float>, std::unique_ptr<kernels::UnaryOp>> weighers_;  // [elements, share]
  absl::Span<float> gradients_;
  std::vector<int> final_;  // variables and inputs whose gradients became final since the last Announce()
};

}  // namespace cairn::nn
