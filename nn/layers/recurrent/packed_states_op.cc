#include "nn/layers/recurrent/packed_states_op.h"

#include <utility>

#include "common/core/status.h"

namespace cairn::nn {

absl::StatusOr<std::unique_ptr<LayerOp>> PackedStatesOp::Create(std::unique_ptr<LayerOp> layer,
                                                                std::vector<LastState> states,
                                                                kernels::Device& device) {
  const kernels::TensorDesc y = layer->output();
  const int64_t batch = y.shape[0];
  std::vector<kernels::TensorDesc> parts = {y.WithShape({batch, y.shape.num_elements() / batch})};
  for (const LastState& state : states) parts.push_back(state.desc);
  std::unique_ptr<PackedStatesOp> op(new PackedStatesOp(std::move(layer), std::move(states)));
  CAIRN_ASSIGN_OR_RETURN(op->pack_, device.ops().MakeConcatenate(parts, /*axis=*/1));
  CAIRN_ASSIGN_OR_RETURN(op->y_, device.Allocate(y.num_floats(), "output of a recurrent layer"));
  CAIRN_ASSIGN_OR_RETURN(op->dy_, device.Allocate(y.num_floats(), "gradient of a recurrent layer"));
  return op;
}

absl::Status PackedStatesOp::Forward(const ForwardArgs& args) {
  ForwardArgs of_layer = args;
  of_layer.output = y_->data();
  CAIRN_RETURN_IF_ERROR(layer_->Forward(of_layer));
  std::vector<const float*> parts = {y_->data()};
  for (const LastState& state : states_) parts.push_back(state.value);
  return pack_->Forward(parts, args.output);
}

absl::Status PackedStatesOp::Backward(const BackwardArgs& args) {
  std::vector<const float*> parts = {y_->data()};
  std::vector<float*> gradients = {dy_->data()};
  for (const LastState& state : states_) {
    parts.push_back(state.value);
    gradients.push_back(state.gradient);
  }
  CAIRN_RETURN_IF_ERROR(pack_->Backward(parts, args.output_gradient, gradients));
  BackwardArgs of_layer = args;
  of_layer.output = y_->data();
  of_layer.output_gradient = dy_->data();
  return layer_->Backward(of_layer);
}

}  // namespace cairn::nn
