#include "nn/pipeline/pipeline_device.h"

#include <algorithm>

#include "common/core/status.h"

namespace cairn::nn {
namespace {

int64_t BytesOf(const ModelVariable& variable) {
  return variable.shape.num_elements() * int64_t{sizeof(float)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<PipelineDevice>> PipelineDevice::Create(const Model& model,
                                                                       kernels::Device& device,
                                                                       std::vector<int> variables) {
  auto made = std::unique_ptr<PipelineDevice>(new PipelineDevice(model, device, std::move(variables)));
  CAIRN_RETURN_IF_ERROR(made->AllocateVariables());
  return made;
}

absl::Status PipelineDevice::AllocateVariables() {
  values_.resize(model_.variables().size());
  sums_.resize(model_.variables().size());
  addends_.resize(model_.variables().size());
  int64_t floats = 0, most_weighted = 0;
  for (const int variable : variables_) {
    const int64_t elements = VariableOf(variable).shape.num_elements();
    floats += PaddedFloats(elements);
    if (!VariableOf(variable).trainable()) most_weighted = std::max(most_weighted, elements);
    std::unique_ptr<kernels::NaryOp>& adder = adders_[elements];
    if (adder != nullptr) continue;
    CAIRN_ASSIGN_OR_RETURN(adder, device_.ops().MakeAdd({.shape = {elements}}, 2));
  }
  CAIRN_ASSIGN_OR_RETURN(addends_memory_, device_.Allocate(floats, "gradients of micro-batches"));
  if (most_weighted > 0) {
    CAIRN_ASSIGN_OR_RETURN(weighted_memory_, device_.Allocate(most_weighted, "statistics of micro-batches"));
  }
  if (!near()) {
    CAIRN_ASSIGN_OR_RETURN(values_memory_, device_.Allocate(floats, "parameters"));
    CAIRN_ASSIGN_OR_RETURN(sums_memory_, device_.Allocate(floats, "gradients"));
  }
  int64_t offset = 0;
  for (const int variable : variables_) {
    const auto index = static_cast<size_t>(variable);
    addends_[index] = addends_memory_->data() + offset;
    if (!near()) values_[index] = values_memory_->data() + offset;
    if (!near()) sums_[index] = sums_memory_->data() + offset;
    offset += PaddedFloats(VariableOf(variable).shape.num_elements());
  }
  return absl::OkStatus();
}

absl::Status PipelineDevice::Begin(absl::Span<const float> parameters, absl::Span<float> gradients) {
  gradients_ = gradients;
  final_.clear();
  for (const int variable : variables_) {
    const ModelVariable& held = VariableOf(variable);
    const auto index = static_cast<size_t>(variable);
    if (near()) {
      values_[index] = parameters.data() + held.offset;
      sums_[index] = gradients.empty() ? nullptr : gradients.data() + held.offset;
      continue;
    }
    float* const to = values_memory_->data() + (addends_[index] - addends_memory_->data());
    CAIRN_RETURN_IF_ERROR(device_.CopyToDevice(parameters.data() + held.offset, to, BytesOf(held)));
  }
  return absl::OkStatus();
}

float* PipelineDevice::TargetOf(int variable, const Contribution& contribution) {
  const auto index = static_cast<size_t>(variable);
  return contribution.first && !is_weighted(variable, contribution) ? sums_[index] : addends_[index];
}

absl::Status PipelineDevice::Weigh(int variable, float share, float* to) {
  const int64_t elements = VariableOf(variable).shape.num_elements();
  std::unique_ptr<kernels::UnaryOp>& weigher = weighers_[{elements, share}];
  if (weigher == nullptr) {
    CAIRN_ASSIGN_OR_RETURN(
        weigher,
        device_.ops().MakeAffine({.input = {.shape = {1, elements}}, .scale = {share}, .offset = {0}}));
  }
  return weigher->Forward(addends_[static_cast<size_t>(variable)], to);
}

absl::Status PipelineDevice::Add(int variable, const Contribution& contribution) {
  const auto index = static_cast<size_t>(variable);
  const float* addend = addends_[index];
  if (is_weighted(variable, contribution)) {
    float* const to = contribution.first ? sums_[index] : weighted_memory_->data();
    CAIRN_RETURN_IF_ERROR(Weigh(variable, contribution.share, to));
    addend = to;
  }
  if (!contribution.first) {
    const float* const terms[] = {sums_[index], addend};
    const int64_t elements = VariableOf(variable).shape.num_elements();
    CAIRN_RETURN_IF_ERROR(adders_.at(elements)->Forward(terms, sums_[index]));
  }
  if (!contribution.last) return absl::OkStatus();
  final_.push_back(variable);
  if (near()) return absl::OkStatus();
  const ModelVariable& held = VariableOf(variable);
  return device_.CopyToHost(sums_[index], gradients_.data() + held.offset, BytesOf(held));
}

absl::Status PipelineDevice::Announce(absl::FunctionRef<void(int gradient)> on_gradient) {
  if (final_.empty()) return absl::OkStatus();
  // If the device has its own memory, the gradients are still being copied to the host.
  CAIRN_RETURN_IF_ERROR(device_.Synchronize());
  for (const int gradient : final_) on_gradient(gradient);
  final_.clear();
  return absl::OkStatus();
}

}  // namespace cairn::nn
