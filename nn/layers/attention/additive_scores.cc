#include "nn/layers/attention/additive_scores.h"

#include <vector>

#include "common/core/status.h"

namespace cairn::nn {
absl::StatusOr<std::unique_ptr<AdditiveScores>> AdditiveScores::Create(const kernels::TensorDesc& query,
                                                                       const kernels::TensorDesc& key,
                                                                       kernels::Device& device) {
  auto made = std::unique_ptr<AdditiveScores>(new AdditiveScores(device));
  CAIRN_RETURN_IF_ERROR(made->MakeOps(query, key));
  return made;
}

absl::Status AdditiveScores::MakeOps(const kernels::TensorDesc& query, const kernels::TensorDesc& key) {
  const int64_t examples = query.shape[0], queries = query.shape[1], keys = key.shape[1],
                width = query.shape[2];
  const kernels::TensorDesc queries_of_pairs = query.WithShape({examples, queries, 1, width});
  const kernels::TensorDesc keys_of_pairs = key.WithShape({examples, 1, keys, width});
  CAIRN_ASSIGN_OR_RETURN(
      add_, device_.ops().MakeBroadcastMerge(
                {.kind = kernels::MergeKind::kAdd, .inputs = {queries_of_pairs, keys_of_pairs}}));
  const kernels::TensorDesc rows = add_->output().WithShape({examples * queries * keys, width});
  CAIRN_ASSIGN_OR_RETURN(tanh_, device_.ops().MakeActivation(rows, {.kind = kernels::Activation::kTanh}));
  CAIRN_ASSIGN_OR_RETURN(weigh_, device_.ops().MakeDense({.input = rows, .units = 1, .use_bias = false}));
  for (Memory* memory : {&sum_, &tanhs_, &dsum_, &dtanhs_}) {
    CAIRN_ASSIGN_OR_RETURN(*memory, device_.Allocate(rows.num_floats(), "additive scores: pairs"));
  }
  for (Memory* memory : {&ones_, &dones_}) {
    CAIRN_ASSIGN_OR_RETURN(*memory, device_.Allocate(width, "additive scores: scale"));
  }
  const std::vector<float> ones(static_cast<size_t>(width), 1.0f);
  CAIRN_RETURN_IF_ERROR(
      device_.CopyToDevice(ones.data(), ones_->data(), width * static_cast<int64_t>(sizeof(float))));
  CAIRN_RETURN_IF_ERROR(device_.Synchronize());
  const kernels::TensorDesc& weighed = weigh_->output();
  const kernels::TensorDesc scores = query.WithShape(weighed.shape);
  for (Memory* memory : {&scores_, &dscores_}) {
    CAIRN_ASSIGN_OR_RETURN(*memory, device_.Allocate(scores.num_floats(), "additive scores"));
  }
  if (weighed == scores) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(convert_, device_.ops().MakeReorder(weighed, scores));
  CAIRN_ASSIGN_OR_RETURN(convert_back_, device_.ops().MakeReorder(scores, weighed));
  for (Memory* memory : {&weighed_, &dweighed_}) {
    CAIRN_ASSIGN_OR_RETURN(*memory, device_.Allocate(weighed.num_floats(), "additive scores"));
  }
  return absl::OkStatus();
}

absl::Status AdditiveScores::Forward(const Inputs& inputs) {
  CAIRN_RETURN_IF_ERROR(add_->Forward({inputs.query, inputs.key}, sum_->data()));
  CAIRN_RETURN_IF_ERROR(tanh_->Forward(sum_->data(), tanhs_->data()));
  float* const to = weighed_ == nullptr ? scores_->data() : weighed_->data();
  const float* const scale = inputs.scale == nullptr ? ones_->data() : inputs.scale;
  CAIRN_RETURN_IF_ERROR(weigh_->Forward(tanhs_->data(), scale, nullptr, to));
  return convert_ == nullptr ? absl::OkStatus() : convert_->Run(to, scores_->data());
}

absl::Status AdditiveScores::Backward(const Inputs& inputs, float* dquery, float* dkey, float* dscale) {
  float* dweighed = dscores_->data();
  if (convert_back_ != nullptr) {
    CAIRN_RETURN_IF_ERROR(convert_back_->Run(dscores_->data(), dweighed_->data()));
    dweighed = dweighed_->data();
  }
  const float* const weighed = weighed_ == nullptr ? scores_->data() : weighed_->data();
  const float* const scale = inputs.scale == nullptr ? ones_->data() : inputs.scale;
  CAIRN_RETURN_IF_ERROR(weigh_->Backward(tanhs_->data(), scale, weighed, dweighed, dtanhs_->data(),
                                         dscale == nullptr ? dones_->data() : dscale, nullptr));
  CAIRN_RETURN_IF_ERROR(tanh_->Backward(sum_->data(), tanhs_->data(), dtanhs_->data(), dsum_->data()));
  return add_->Backward({inputs.query, inputs.key}, dsum_->data(), {dquery, dkey});
}

}  // namespace cairn::nn
