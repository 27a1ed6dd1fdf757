// The penalty of a variable's regularizer on a device: kernels::Regularizer for sums over elements, and a composition
// of other ops for the orthogonality of rows or columns. Owned by a Plan, used by its thread.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/core/shape.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "nn/layer/layer.h"

namespace cairn::nn {

class VariablePenalty {
 public:
  // `regularizer` has a penalty and fits the shape: CheckShape() of nn/layer/regularizer.h. `device` must outlive it.
  static absl::StatusOr<std::unique_ptr<VariablePenalty>> Create(const RegularizerSpec& regularizer,
                                                                 const Shape& shape, kernels::Device& device);

  // Adds the penalty's gradient to `gradient`, unless that is null. All memory is the device's; penalty() is valid
  // after the device's next Synchronize().
  absl::Status Run(const float* w, float* gradient);
  double penalty() const { return of_elements_ + of_pairs_; }

 private:
  explicit VariablePenalty(kernels::Device& device) : device_(device) {}
  absl::Status AddOrthogonality(const RegularizerSpec& regularizer, const Shape& shape);
  absl::Status RunOrthogonality(const float* w, float* gradient);

  kernels::Device& device_;
  std::unique_ptr<kernels::Regularizer> elements_;  // null without L1 and L2
  double of_elements_ = 0, of_pairs_ = 0;
  // For orthogonality, in this order; otherwise null.
  std::unique_ptr<kernels::UnaryOp> transpose_;     // null for rows
  std::unique_ptr<kernels::UnaryOp> unit_norm_;     // [vectors, width]
  std::unique_ptr<kernels::UnaryOp> dots_;          // [1, vectors, width] to [1, pairs]
  std::unique_ptr<kernels::Regularizer> absolute_;  // of the dot products
  std::unique_ptr<kernels::NaryOp> add_;
  std::unique_ptr<kernels::DeviceMemory> vectors_, units_, dunits_, dvectors_;  // [vectors, width]
  std::unique_ptr<kernels::DeviceMemory> weights_, dweights_;                   // null for rows
  std::unique_ptr<kernels::DeviceMemory> pairs_, dpairs_, zeros_;               // [pairs]
};

}  // namespace cairn::nn
