// One device of a divided model: its variables, and what its parts compute. Owned by the pipeline; used by
// the device's thread, but for what a Cell passes on.
//
// A device with memory of its own holds the variables of its parts alone. Gradients of micro-batches are
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
#include "worker/nn/device_copy.h"
#include "worker/nn/passage.h"
#include "worker/nn/plan.h"

namespace cairn::nn {

// One part for one micro-batch: its ops, its activations, and its borders, as far as something passes them.
struct Cell {
  std::unique_ptr<Plan> plan{};
  std::vector<std::optional<DeviceCopy>> inputs{};        // [input] from the host or another device
  std::vector<const float*> input_pointers{};             // [input] set for the call
  std::vector<std::optional<Passage>> outputs{};          // [output] to another device
  std::vector<std::optional<Passage>> input_gradients{};  // [input] to another device
  std::vector<std::optional<DeviceCopy>>
      output_addends{};                            // [output] of a second reader, on its way to the first's
  std::optional<DeviceCopy> targets{}, weights{};  // of the last part
};

class PipelineLane {
 public:
  // `micro_batches` > 1 or variables in several parts: their gradients are sums. `model` and `device` must
  // outlive the lane.
  static absl::StatusOr<std::unique_ptr<PipelineLane>> Create(const Model& model, kernels::Device& device,
                                                              std::vector<int> variables);

  kernels::Device& device() const { return device_; }

  // Begins a call. `parameters` and `gradients` (empty in an evaluation) in the model's flat order; until
  // End().
  absl::Status Begin(absl::Span<const float> parameters, absl::Span<float> gradients);
  Plan::Values values() const { return values_; }

  // How a cell's gradient of a variable becomes a part of the batch's.
  struct Contribution {
    bool first = true, last = true;  // of all cells with the variable
    float share = 1;                 // of the batch's examples
  };
  // Where the cell's backward writes it.
  float* TargetOf(int variable, const Contribution& contribution);
  // After that: adds it to the sum. Of the last one the sum goes to `gradients`.
  absl::Status Add(int variable, const Contribution& contribution);
  // Tells of the variables whose sums are there since the last time.
  absl::Status Announce(absl::FunctionRef<void(int variable)> on_gradient);

 private:
  PipelineLane(const Model& model, kernels::Device& device, std::vector<int> variables)
      : model_(model), device_(device), variables_(std::move(variables)) {}
  absl::Status AllocateVariables();
  bool near() const { return device_.host_memory_is_device_memory(); }
  const ModelVariable& VariableOf(int variable) const {
    return model_.variables()[static_cast<size_t>(variable)];
  }
  // A statistic is a mean, weighted by examples, of what micro-batches give; gradients are of the whole
  // batch's mean already, and are added.
  bool is_weighted(int variable, const Contribution& contribution) const {
    return !VariableOf(variable).trainable() && contribution.share != 1;
  }
  absl::Status Weigh(int variable, float share, float* to);

  const Model& model_;
  kernels::Device& device_;
  const std::vector<int> variables_;  // rising
  // Of the variables that it has, one after another: their values and the sums of their gradients (null where
  // they are the host's), what a cell writes before it is added, and the same after it is weighted.
  std::unique_ptr<kernels::DeviceMemory> values_memory_, sums_memory_, addends_memory_, weighted_memory_;
  std::vector<const float*> values_;                            // [variable of the model]
  std::vector<float*> sums_, addends_;                          // [variable of the model]
  std::map<int64_t, std::unique_ptr<kernels::NaryOp>> adders_;  // [elements]
  std::map<std::pair<int64_t, float>, std::unique_ptr<kernels::UnaryOp>> weighers_;  // [elements, share]
  absl::Span<float> gradients_;
  std::vector<int> final_;  // since the last Announce()
};

}  // namespace cairn::nn
