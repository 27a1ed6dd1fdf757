// The scores of additive attention (Bahdanau et al., "Neural Machine Translation by Jointly Learning to Align and
// Translate", 2015): the sum of scale * tanh(query + key) over the last axis, for each pair of a query and a key.
// An op of attention takes them as they are (AttentionParams::width).
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/ops.h"

namespace cairn::nn {

class AdditiveScores {
 public:
  // `query` [n, queries, width] and `key` [n, keys, width], row-major, of one type, which the scores have too.
  static absl::StatusOr<std::unique_ptr<AdditiveScores>> Create(const kernels::TensorDesc& query,
                                                                const kernels::TensorDesc& key,
                                                                kernels::Device& device);
  struct Inputs {
    const float* query = nullptr;
    const float* key = nullptr;
    const float* scale = nullptr;  // [width]; null: ones
  };
  absl::Status Forward(const Inputs& inputs);
  // Reads gradient(). `dscale` is null if there is no scale.
  absl::Status Backward(const Inputs& inputs, float* dquery, float* dkey, float* dscale);

  const float* scores() const { return scores_->data(); }  // [n, queries, keys]
  float* gradient() const { return dscores_->data(); }     // of the scores

 private:
  using Memory = std::unique_ptr<kernels::DeviceMemory>;
  explicit AdditiveScores(kernels::Device& device) : device_(device) {}
  absl::Status MakeOps(const kernels::TensorDesc& query, const kernels::TensorDesc& key);

  kernels::Device& device_;
  std::unique_ptr<kernels::NaryOp> add_;
  std::unique_ptr<kernels::UnaryOp> tanh_;
  std::unique_ptr<kernels::LinearOp> weigh_;
  std::unique_ptr<kernels::Reorder> convert_, convert_back_;  // null unless weigh_ writes another type
  Memory ones_, dones_;                                       // the scale that is not given, and its gradient
  Memory sum_, tanhs_, dsum_, dtanhs_;                        // [n, queries, keys, width]
  Memory weighed_, dweighed_;  // scores in the type of weigh_; null if that is theirs
  Memory scores_, dscores_;
};

}  // namespace cairn::nn
