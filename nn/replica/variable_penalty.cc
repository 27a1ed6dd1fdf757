#include "nn/replica/variable_penalty.h"

#include "common/core/status.h"

namespace cairn::nn {

absl::StatusOr<std::unique_ptr<VariablePenalty>> VariablePenalty::Create(const RegularizerSpec& regularizer,
                                                                         const Shape& shape,
                                                                         kernels::Device& device) {
  auto made = std::unique_ptr<VariablePenalty>(new VariablePenalty(device));
  if (regularizer.l1 != 0 || regularizer.l2 != 0) {
    CAIRN_ASSIGN_OR_RETURN(
        made->elements_, device.ops().MakeRegularizer(shape.num_elements(), regularizer.l1, regularizer.l2));
  }
  if (regularizer.orthogonal != 0) CAIRN_RETURN_IF_ERROR(made->AddOrthogonality(regularizer, shape));
  return made;
}

// keras/src/regularizers/regularizers.py, OrthogonalRegularizer: factor times the mean of |dot product| over the pairs.
absl::Status VariablePenalty::AddOrthogonality(const RegularizerSpec& regularizer, const Shape& shape) {
  constexpr float kKerasEpsilon = 1e-7f;
  kernels::OpFactory& ops = device_.ops();
  const auto allocate = [&](int64_t floats) { return device_.Allocate(floats, "orthogonal regularizer"); };
  const bool columns = regularizer.of_columns;
  const int64_t vectors = shape[columns ? 1 : 0], width = shape[columns ? 0 : 1];
  const kernels::TensorDesc matrix = {.shape = {vectors, width}};
  if (columns) {
    CAIRN_ASSIGN_OR_RETURN(transpose_, ops.MakeTranspose({.input = {.shape = shape}, .axes = {1, 0}}));
    CAIRN_ASSIGN_OR_RETURN(weights_, allocate(vectors * width));
    CAIRN_ASSIGN_OR_RETURN(dweights_, allocate(vectors * width));
  }
  CAIRN_ASSIGN_OR_RETURN(vectors_, allocate(vectors * width));
  CAIRN_ASSIGN_OR_RETURN(unit_norm_, ops.MakeUnitNorm({.input = matrix, .epsilon = kKerasEpsilon}));
  CAIRN_ASSIGN_OR_RETURN(dots_, ops.MakePairDots({.input = matrix.WithShape({1, vectors, width})}));
  const int64_t pairs = vectors * (vectors - 1) / 2;
  const double of_pair = double{regularizer.orthogonal} / static_cast<double>(pairs);
  CAIRN_ASSIGN_OR_RETURN(absolute_, ops.MakeRegularizer(pairs, static_cast<float>(of_pair), 0));
  CAIRN_ASSIGN_OR_RETURN(add_, ops.MakeAdd({.shape = {shape.num_elements()}}, 2));
  CAIRN_ASSIGN_OR_RETURN(units_, allocate(vectors * width));
  CAIRN_ASSIGN_OR_RETURN(dunits_, allocate(vectors * width));
  CAIRN_ASSIGN_OR_RETURN(dvectors_, allocate(vectors * width));
  CAIRN_ASSIGN_OR_RETURN(pairs_, allocate(pairs));
  CAIRN_ASSIGN_OR_RETURN(dpairs_, allocate(pairs));
  CAIRN_ASSIGN_OR_RETURN(zeros_, allocate(pairs));
  return absl::OkStatus();
}

absl::Status VariablePenalty::Run(const float* w, float* gradient) {
  if (elements_ != nullptr) CAIRN_RETURN_IF_ERROR(elements_->Run(w, gradient, &of_elements_));
  return absolute_ == nullptr ? absl::OkStatus() : RunOrthogonality(w, gradient);
}

absl::Status VariablePenalty::RunOrthogonality(const float* w, float* gradient) {
  // Variables may begin at any address, which these ops do not take.
  float* const copy = transpose_ == nullptr ? vectors_->data() : weights_->data();
  CAIRN_RETURN_IF_ERROR(device_.CopyOnDevice(w, copy, vectors_->num_floats()));
  if (transpose_ != nullptr) CAIRN_RETURN_IF_ERROR(transpose_->Forward(copy, vectors_->data()));
  const float* const vectors = vectors_->data();
  CAIRN_RETURN_IF_ERROR(unit_norm_->Forward(vectors, units_->data()));
  CAIRN_RETURN_IF_ERROR(dots_->Forward(units_->data(), pairs_->data()));
  if (gradient == nullptr) return absolute_->Run(pairs_->data(), nullptr, &of_pairs_);
  CAIRN_RETURN_IF_ERROR(device_.CopyOnDevice(zeros_->data(), dpairs_->data(), zeros_->num_floats()));
  CAIRN_RETURN_IF_ERROR(absolute_->Run(pairs_->data(), dpairs_->data(), &of_pairs_));
  CAIRN_RETURN_IF_ERROR(dots_->Backward(units_->data(), pairs_->data(), dpairs_->data(), dunits_->data()));
  CAIRN_RETURN_IF_ERROR(unit_norm_->Backward(vectors, units_->data(), dunits_->data(), dvectors_->data()));
  const float* added = dvectors_->data();
  if (transpose_ != nullptr) {
    CAIRN_RETURN_IF_ERROR(transpose_->Backward(copy, vectors, dvectors_->data(), dweights_->data()));
    added = dweights_->data();
  }
  const float* const terms[] = {gradient, added};
  return add_->Forward(terms, gradient);
}

}  // namespace cairn::nn
