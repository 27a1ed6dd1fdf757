#include "nn/layers/layer_ops.h"

#include "common/core/status.h"

namespace cairn::nn {

absl::StatusOr<std::unique_ptr<LayerOp>> ReorderOp::Create(const kernels::TensorDesc& from,
                                                           kernels::Device& device) {
  kernels::TensorDesc to = {.shape = from.shape};
  CAIRN_ASSIGN_OR_RETURN(auto forward, device.ops().MakeReorder(from, to));
  std::unique_ptr<kernels::Reorder> backward;  // null: integers have no gradient
  if (!IsInteger(from.type)) {
    CAIRN_ASSIGN_OR_RETURN(backward, device.ops().MakeReorder(to, from));
  }
  return std::make_unique<ReorderOp>(std::move(to), std::move(forward), std::move(backward));
}

absl::Status LinearLayerOp::Backward(const BackwardArgs& args) {
  float* const dx = args.input_gradients[0];
  const bool splits = args.on_gradients.has_value() && dx != nullptr && op_->splits_backward();
  CAIRN_RETURN_IF_ERROR(op_->Backward(args.inputs[0], args.variables[0], args.output, args.output_gradient,
                                      splits ? nullptr : dx, args.gradients[0],
                                      use_bias_ ? args.gradients[1] : nullptr));
  if (!splits) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR((*args.on_gradients)());
  return op_->BackwardInput(args.variables[0], args.output_gradient, dx);
}

absl::StatusOr<std::unique_ptr<LayerOp>> ChainOp::Create(std::vector<Link> links, kernels::Device& device) {
  for (size_t i = 0; i + 1 < links.size(); ++i) {
    const int64_t floats = links[i].op->output().num_floats();
    CAIRN_ASSIGN_OR_RETURN(links[i].output, device.Allocate(floats, "output within a layer"));
    CAIRN_ASSIGN_OR_RETURN(links[i].gradient, device.Allocate(floats, "gradient within a layer"));
  }
  return std::unique_ptr<LayerOp>(new ChainOp(std::move(links)));
}

absl::Status ChainOp::Forward(const ForwardArgs& args) {
  const float* input = args.inputs[0];
  for (size_t i = 0; i < links_.size(); ++i) {
    const bool last = i + 1 == links_.size();
    ForwardArgs link_args = args;
    link_args.inputs = absl::MakeConstSpan(&input, 1);
    link_args.variables = Of(i, args.variables);
    link_args.output = last ? args.output : links_[i].output->data();
    CAIRN_RETURN_IF_ERROR(links_[i].op->Forward(link_args));
    input = link_args.output;
  }
  return absl::OkStatus();
}

absl::Status ChainOp::Backward(const BackwardArgs& args) {
  for (size_t i = links_.size(); i-- > 0;) {
    const bool first = i == 0, last = i + 1 == links_.size();
    const float* input = first ? args.inputs[0] : links_[i - 1].output->data();
    float* input_gradient = first ? args.input_gradients[0] : links_[i - 1].gradient->data();
    CAIRN_RETURN_IF_ERROR(
        links_[i].op->Backward({.inputs = absl::MakeConstSpan(&input, 1),
                                .variables = Of(i, args.variables),
                                .output = last ? args.output : links_[i].output->data(),
                                .output_gradient = last ? args.output_gradient : links_[i].gradient->data(),
                                .input_gradients = absl::MakeConstSpan(&input_gradient, 1),
                                .gradients = Of(i, args.gradients),
                                .on_gradients = first ? args.on_gradients : std::nullopt}));
  }
  return absl::OkStatus();
}

}  // namespace cairn::nn
