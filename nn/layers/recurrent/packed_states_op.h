// A recurrent layer that returns its states: its op writes the output and the states after the last step into one
// vector for each example (Layer::num_outputs).
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ops.h"
#include "nn/layer/layer.h"

namespace cairn::nn {

// A state after the last step [n, units], and its gradient: device memory of the op that computes it.
struct LastState {
  kernels::TensorDesc desc;
  float *value = nullptr, *gradient = nullptr;
};

class PackedStatesOp final : public LayerOp {
 public:
  // `states` belong to `layer`. Its Forward() writes their values, and its Backward() reads their gradients.
  static absl::StatusOr<std::unique_ptr<LayerOp>> Create(std::unique_ptr<LayerOp> layer,
                                                         std::vector<LastState> states,
                                                         kernels::Device& device);

  const kernels::TensorDesc& output() const override { return pack_->output(); }
  absl::Status Forward(const ForwardArgs& args) override;
  absl::Status Backward(const BackwardArgs& args) override;

 private:
  PackedStatesOp(std::unique_ptr<LayerOp> layer, std::vector<LastState> states)
      : layer_(std::move(layer)), states_(std::move(states)) {}

  const std::unique_ptr<LayerOp> layer_;
  const std::vector<LastState> states_;
  std::unique_ptr<kernels::NaryOp> pack_;
  std::unique_ptr<kernels::DeviceMemory> y_, dy_;  // of `layer_`
};

}  // namespace cairn::nn
