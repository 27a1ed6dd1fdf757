#include "worker/nn/replica.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/aligned_buffer.h"
#include "common/core/status.h"
#include "worker/nn/plan.h"

namespace cairn::nn {
namespace {

// A device's copy of data that the host keeps; on the CPU the host's memory itself, and nothing is copied.
class DeviceCopy {
 public:
  explicit DeviceCopy(kernels::Device& device) : device_(device) {}

  // Room for `num_floats`; memory is only replaced by larger memory.
  absl::Status Reserve(int64_t num_floats, absl::string_view what) {
    if (device_.host_memory_is_device_memory() ||
        (memory_ != nullptr && memory_->num_floats() >= num_floats)) {
      return absl::OkStatus();
    }
    CAIRN_ASSIGN_OR_RETURN(memory_, device_.Allocate(num_floats, what));
    return absl::OkStatus();
  }
  // Where the device reads `host` [count].
  absl::StatusOr<const float*> Upload(const float* host, int64_t count) {
    if (memory_ == nullptr) return host;
    CAIRN_RETURN_IF_ERROR(device_.CopyToDevice(host, memory_->data(), count * int64_t{sizeof(float)}));
    return memory_->data();
  }
  // Where the device writes what will be downloaded to `host`.
  float* Target(float* host) { return memory_ == nullptr ? host : memory_->data(); }
  absl::Status Download(int64_t offset, int64_t count, float* host) {
    if (memory_ == nullptr) return absl::OkStatus();
    return device_.CopyToHost(memory_->data() + offset, host + offset, count * int64_t{sizeof(float)});
  }

 private:
  kernels::Device& device_;
  std::unique_ptr<kernels::DeviceMemory> memory_;
};

class DeviceReplica final : public Replica {
 public:
  DeviceReplica(const Model& model, const LossSpec& loss, kernels::Device& device)
      : model_(model),
        loss_(loss),
        device_(device),
        parameters_(device),
        gradients_(device),
        inputs_(device),
        targets_(device),
        weights_(device),
        input_pointers_(model.inputs().size()) {}

  absl::StatusOr<BatchResult> ForwardBackward(absl::Span<const float> parameters, const BatchView& batch,
                                              absl::Span<float> gradients,
                                              absl::FunctionRef<void(int variable)> on_gradient) override {
    CAIRN_RETURN_IF_ERROR(Check(parameters, batch));
    if (static_cast<int64_t>(gradients.size()) != model_.num_parameters()) {
      return absl::InvalidArgumentError(
          absl::StrCat(gradients.size(), " gradients for ", model_.num_parameters(), " parameters"));
    }
    if (batch.examples == 0) return NoExamples(gradients, on_gradient);
    CAIRN_ASSIGN_OR_RETURN(Plan * plan, PlanFor(batch.examples));
    CAIRN_RETURN_IF_ERROR(gradients_.Reserve(model_.num_parameters(), "gradients"));
    CAIRN_ASSIGN_OR_RETURN(const Uploaded uploaded, Upload(parameters, batch));
    BatchResult result;
    const auto announce = [&](int index) -> absl::Status {
      const ModelVariable& variable = model_.variables()[static_cast<size_t>(index)];
      CAIRN_RETURN_IF_ERROR(
          gradients_.Download(variable.offset, variable.shape.num_elements(), gradients.data()));
      CAIRN_RETURN_IF_ERROR(device_.Synchronize());
      on_gradient(index);
      return absl::OkStatus();
    };
    CAIRN_RETURN_IF_ERROR(plan->ForwardBackward(uploaded.parameters, uploaded.batch,
                                                gradients_.Target(gradients.data()), &result.sums, announce));
    CAIRN_ASSIGN_OR_RETURN(result.outputs, DownloadOutputs(*plan, batch.examples));
    CAIRN_RETURN_IF_ERROR(device_.Synchronize());
    result.sums.loss += plan->penalty() * static_cast<double>(batch.examples);
    return result;
  }

  absl::StatusOr<BatchResult> Evaluate(absl::Span<const float> parameters, const BatchView& batch) override {
    CAIRN_RETURN_IF_ERROR(Check(parameters, batch));
    if (batch.examples == 0) return BatchResult{};
    CAIRN_ASSIGN_OR_RETURN(Plan * plan, PlanFor(batch.examples));
    CAIRN_ASSIGN_OR_RETURN(const Uploaded uploaded, Upload(parameters, batch));
    BatchResult result;
    CAIRN_RETURN_IF_ERROR(plan->Evaluate(uploaded.parameters, uploaded.batch, &result.sums));
    CAIRN_ASSIGN_OR_RETURN(result.outputs, DownloadOutputs(*plan, batch.examples));
    CAIRN_RETURN_IF_ERROR(device_.Synchronize());
    result.sums.loss += plan->penalty() * static_cast<double>(batch.examples);
    return result;
  }

 private:
  struct Uploaded {
    const float* parameters;
    Plan::Batch batch;
  };

  absl::Status Check(absl::Span<const float> parameters, const BatchView& batch) const {
    const int64_t values = batch.examples * model_.input_shape().num_elements();
    const int64_t targets =
        MakeLossParams(loss_, model_.output_shape(), batch.examples).targets_per_example();
    if (batch.examples < 0 || static_cast<int64_t>(batch.inputs.size()) != values ||
        static_cast<int64_t>(batch.targets.size()) != batch.examples * targets ||
        (!batch.weights.empty() && static_cast<int64_t>(batch.weights.size()) != batch.examples)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a batch of ", batch.examples, " examples of ", model_.input_shape().ToString(),
                       " with ", targets, " targets each has ", batch.inputs.size(), " values, ",
                       batch.targets.size(), " targets and ", batch.weights.size(), " weights"));
    }
    if (static_cast<int64_t>(parameters.size()) != model_.num_parameters()) {
      return absl::InvalidArgumentError(absl::StrCat(parameters.size(), " values for the model's ",
                                                     model_.num_parameters(), " parameters"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Plan*> PlanFor(int64_t examples) {
    std::unique_ptr<Plan>& plan = plans_[examples];
    if (plan == nullptr) {
      auto made = Plan::Create(model_, loss_, device_, examples);
      if (!made.ok())
        return Annotate(made.status(), absl::StrCat("a batch of ", examples, " on ", device_.name()));
      plan = *std::move(made);
    }
    return plan.get();
  }

  absl::StatusOr<Uploaded> Upload(absl::Span<const float> parameters, const BatchView& batch) {
    const auto values = static_cast<int64_t>(batch.inputs.size());
    CAIRN_RETURN_IF_ERROR(parameters_.Reserve(model_.num_parameters(), "parameters"));
    CAIRN_RETURN_IF_ERROR(inputs_.Reserve(values, "inputs"));
    const auto targets = static_cast<int64_t>(batch.targets.size());
    CAIRN_RETURN_IF_ERROR(targets_.Reserve(targets, "targets"));
    Uploaded uploaded;
    CAIRN_ASSIGN_OR_RETURN(uploaded.parameters,
                           parameters_.Upload(parameters.data(), model_.num_parameters()));
    CAIRN_ASSIGN_OR_RETURN(const float* inputs, inputs_.Upload(Split(batch), values));
    for (size_t i = 0; i < input_pointers_.size(); ++i) {
      input_pointers_[i] = inputs;
      inputs += batch.examples * model_.inputs()[i].shape.num_elements();
    }
    uploaded.batch.inputs = input_pointers_;
    uploaded.batch.seed = batch.seed;
    CAIRN_ASSIGN_OR_RETURN(uploaded.batch.targets, targets_.Upload(batch.targets.data(), targets));
    if (!batch.weights.empty()) {
      CAIRN_RETURN_IF_ERROR(weights_.Reserve(batch.examples, "weights"));
      CAIRN_ASSIGN_OR_RETURN(uploaded.batch.weights, weights_.Upload(batch.weights.data(), batch.examples));
    }
    return uploaded;
  }

  // The rows' parts, input by input, where the model has several.
  const float* Split(const BatchView& batch) {
    if (model_.inputs().size() == 1) return batch.inputs.data();
    if (static_cast<int64_t>(batch.inputs.size()) > split_.size()) {
      split_ = AlignedBuffer(static_cast<int64_t>(batch.inputs.size()));
    }
    const int64_t row = model_.input_shape().num_elements();
    float* to = split_.data();
    int64_t offset = 0;
    for (const ModelInput& input : model_.inputs()) {
      const int64_t elements = input.shape.num_elements();
      for (int64_t example = 0; example < batch.examples; ++example, to += elements) {
        std::copy_n(batch.inputs.data() + example * row + offset, elements, to);
      }
      offset += elements;
    }
    return split_.data();
  }

  // Where the host reads the outputs, from the device's next Synchronize() on.
  absl::StatusOr<absl::Span<const float>> DownloadOutputs(const Plan& plan, int64_t examples) {
    const auto count = static_cast<size_t>(examples * model_.output_shape().num_elements());
    if (device_.host_memory_is_device_memory()) return absl::MakeConstSpan(plan.outputs(), count);
    outputs_.resize(count);
    CAIRN_RETURN_IF_ERROR(
        device_.CopyToHost(plan.outputs(), outputs_.data(), static_cast<int64_t>(count * sizeof(float))));
    return absl::MakeConstSpan(outputs_);
  }

  // A worker without examples takes part in a round all the same.
  BatchResult NoExamples(absl::Span<float> gradients,
                         absl::FunctionRef<void(int variable)> on_gradient) const {
    std::fill(gradients.begin(), gradients.end(), 0.0f);
    for (int variable = static_cast<int>(model_.variables().size()); variable-- > 0;) on_gradient(variable);
    return {};
  }

  const Model& model_;
  const LossSpec loss_;
  kernels::Device& device_;
  DeviceCopy parameters_, gradients_, inputs_, targets_, weights_;
  AlignedBuffer split_;                       // [input][examples][elements], where there are several inputs
  std::vector<const float*> input_pointers_;  // [input]
  std::vector<float> outputs_;                // the last batch's; empty where the host reads the device's
  std::map<int64_t, std::unique_ptr<Plan>> plans_;  // [batch size]
};

}  // namespace

absl::StatusOr<std::unique_ptr<Replica>> Replica::Create(const Model& model, const LossSpec& loss,
                                                         kernels::Device& device) {
  CAIRN_RETURN_IF_ERROR(CheckOutput(loss, model.output_shape()));
  return std::make_unique<DeviceReplica>(model, loss, device);
}

}  // namespace cairn::nn
