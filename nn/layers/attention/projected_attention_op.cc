#include "nn/layers/attention/projected_attention_op.h"

#include <algorithm>
#include <utility>

#include "common/core/status.h"

namespace cairn::nn {

kernels::AttentionInputs MasksOf(const AttentionCall& call, absl::Span<const float* const> inputs) {
  const auto find = [&](absl::string_view argument) -> const float* {
    const auto input = call.Find(argument);
    return input.has_value() && *input < inputs.size() ? inputs[*input] : nullptr;
  };
  // A mask of the values hides the same pairs as a mask of the keys.
  const float* const key_mask = find("key_mask");
  return {.query_mask = find("query_mask"),
          .key_mask = key_mask != nullptr ? key_mask : find("value_mask"),
          .mask = find("attention_mask")};
}

ProjectedAttentionOp::ProjectedAttentionOp(const Args& args, kernels::Device& device)
    : device_(device), step_masks_(args.step_masks), call_(args.call), use_bias_(args.use_bias) {
  for (const kernels::TensorDesc& input : args.inputs) input_floats_.push_back(input.num_floats());
}

absl::StatusOr<ProjectedAttentionOp::Projection> ProjectedAttentionOp::Project(
    const kernels::TensorDesc& input, size_t index, int64_t units, bool needs_input_gradient) const {
  Projection made = {.variable = index * (use_bias_ ? 2 : 1)};
  const int64_t width = input.shape[input.shape.rank() - 1];
  CAIRN_ASSIGN_OR_RETURN(
      made.op, device_.ops().MakeDense({.input = input.WithShape({input.shape.num_elements() / width, width}),
                                        .units = units,
                                        .use_bias = use_bias_,
                                        .needs_input_gradient = needs_input_gradient}));
  return made;
}

absl::StatusOr<std::unique_ptr<LayerOp>> ProjectedAttentionOp::Create(const Args& args,
                                                                      kernels::Device& device) {
  std::unique_ptr<ProjectedAttentionOp> op(new ProjectedAttentionOp(args, device));
  kernels::AttentionParams params = args.attention;
  const size_t inputs[] = {0, args.key, 1};
  const int64_t units[] = {params.heads * params.width, params.key_heads * params.width,
                           params.key_heads * params.value_width};
  op->more_gradients_.resize(args.inputs.size());
  op->add_.resize(args.inputs.size());
  for (size_t i = 0; i < std::size(inputs); ++i) {
    const kernels::TensorDesc& input = args.inputs[inputs[i]];
    CAIRN_ASSIGN_OR_RETURN(Projection projection,
                           op->Project(input, i, units[i], args.needs_input_gradients));
    const int64_t floats = projection.op->output().num_floats();
    projection.input = inputs[i];
    if (!args.rotary.empty() && i < 2) {  // queries and keys
      const Shape heads = {input.shape[0], input.shape[1], i == 0 ? params.heads : params.key_heads,
                           params.width};
      CAIRN_ASSIGN_OR_RETURN(projection.rotary,
                             device.ops().MakeRotary({.input = projection.op->output().WithShape(heads),
                                                      .frequencies = args.rotary}));
    }
    CAIRN_ASSIGN_OR_RETURN(projection.output, device.Allocate(floats, "projection"));
    CAIRN_ASSIGN_OR_RETURN(projection.gradient, device.Allocate(floats, "gradient of a projection"));
    op->projections_.push_back(std::move(projection));
  }
  for (size_t input = 0; input < args.inputs.size() && args.needs_input_gradients; ++input) {
    const kernels::TensorDesc& desc = args.inputs[input];
    const auto readers = std::count(std::begin(inputs), std::end(inputs), input);
    if (readers == 1) continue;  // its gradient is written in place
    CAIRN_ASSIGN_OR_RETURN(op->more_gradients_[input],
                           device.Allocate(desc.num_floats(), "gradient of an input"));
    if (readers > 1) {
      CAIRN_ASSIGN_OR_RETURN(op->add_[input], device.ops().MakeAdd(desc, 2));
    }
  }
  CAIRN_RETURN_IF_ERROR(op->PrepareMask(args.inputs, params));
  params.type = op->projections_[0].op->output().type;
  CAIRN_ASSIGN_OR_RETURN(op->attention_, device.ops().MakeAttention(params));
  const kernels::TensorDesc attended = {
      .shape = {params.batch, params.queries, params.heads * params.value_width}, .type = params.type};
  CAIRN_ASSIGN_OR_RETURN(op->attended_, device.Allocate(attended.num_floats(), "attention"));
  CAIRN_ASSIGN_OR_RETURN(op->attended_gradient_,
                         device.Allocate(attended.num_floats(), "gradient of attention"));
  CAIRN_ASSIGN_OR_RETURN(op->output_projection_, op->Project(attended, 3, args.output_width, true));
  op->output_ =
      op->output_projection_.op->output().WithShape({params.batch, params.queries, args.output_width});
  return op;
}

absl::Status ProjectedAttentionOp::PrepareMask(absl::Span<const kernels::TensorDesc> inputs,
                                               const kernels::AttentionParams& params) {
  const auto input = call_.Find("attention_mask");
  if (!input.has_value() || *input >= inputs.size()) return absl::OkStatus();
  const kernels::TensorDesc& mask = inputs[*input];
  if (mask.shape.num_elements() == params.batch * params.queries * params.keys) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(
      expand_mask_, device_.ops().MakeUpsample2D({.input = mask.WithShape({params.batch, 1, 1, params.keys}),
                                                  .height = params.queries}));
  CAIRN_ASSIGN_OR_RETURN(expanded_mask_,
                         device_.Allocate(expand_mask_->output().num_floats(), "mask of attention"));
  return absl::OkStatus();
}

absl::Status ProjectedAttentionOp::ExpandMask(absl::Span<const float* const> inputs) {
  if (expand_mask_ == nullptr) return absl::OkStatus();
  return expand_mask_->Forward(inputs[*call_.Find("attention_mask")], expanded_mask_->data());
}

kernels::AttentionInputs ProjectedAttentionOp::AttentionInputsOf(
    absl::Span<const float* const> inputs) const {
  kernels::AttentionInputs of_attention = MasksOf(call_, inputs);
  of_attention.q = projections_[0].output->data();
  of_attention.k = projections_[1].output->data();
  of_attention.v = projections_[2].output->data();
  if (expanded_mask_ != nullptr) of_attention.mask = expanded_mask_->data();
  if (step_masks_.query.has_value()) of_attention.query_mask = inputs[*step_masks_.query];
  if (step_masks_.key.has_value()) of_attention.key_mask = inputs[*step_masks_.key];
  return of_attention;
}

absl::Status ProjectedAttentionOp::Forward(const ForwardArgs& args) {
  for (const Projection& projection : projections_) {
    CAIRN_RETURN_IF_ERROR(
        projection.op->Forward(args.inputs[projection.input], args.variables[projection.variable],
                               BiasOf(args.variables, projection.variable), projection.output->data()));
    if (projection.rotary == nullptr) continue;
    CAIRN_RETURN_IF_ERROR(projection.rotary->Forward(projection.output->data(), projection.output->data()));
  }
  CAIRN_RETURN_IF_ERROR(ExpandMask(args.inputs));
  CAIRN_RETURN_IF_ERROR(
      attention_->Forward(AttentionInputsOf(args.inputs), args.training, attended_->data()));
  return output_projection_.op->Forward(attended_->data(), args.variables[output_projection_.variable],
                                        BiasOf(args.variables, output_projection_.variable), args.output);
}

absl::Status ProjectedAttentionOp::Backward(const BackwardArgs& args) {
  const absl::Span<float* const> gradients = args.gradients;
  CAIRN_RETURN_IF_ERROR(output_projection_.op->Backward(
      attended_->data(), args.variables[output_projection_.variable], args.output, args.output_gradient,
      attended_gradient_->data(), gradients[output_projection_.variable],
      BiasOf(gradients, output_projection_.variable)));
  CAIRN_RETURN_IF_ERROR(attention_->Backward(
      AttentionInputsOf(args.inputs), attended_->data(), attended_gradient_->data(),
      projections_[0].gradient->data(), projections_[1].gradient->data(), projections_[2].gradient->data()));
  CAIRN_RETURN_IF_ERROR(BackwardProjections(args));
  // Masks have no gradient. Their gradient buffers are allocated as zeros and never written.
  for (size_t input = 2; input < input_floats_.size(); ++input) {
    if (add_[input] != nullptr || more_gradients_[input] == nullptr || args.input_gradients[input] == nullptr)
      continue;
    CAIRN_RETURN_IF_ERROR(device_.CopyOnDevice(more_gradients_[input]->data(), args.input_gradients[input],
                                               input_floats_[input]));
  }
  return absl::OkStatus();
}

absl::Status ProjectedAttentionOp::BackwardProjections(const BackwardArgs& args) {
  std::vector<bool> written(args.inputs.size());
  for (const Projection& projection : projections_) {
    const size_t input = projection.input;
    float* const gradient = args.input_gradients[input];
    float* const dx = gradient == nullptr ? nullptr
                      : written[input]    ? more_gradients_[input]->data()
                                          : gradient;
    float* const dy = projection.gradient->data();
    if (projection.rotary != nullptr)
      CAIRN_RETURN_IF_ERROR(projection.rotary->Backward(nullptr, nullptr, dy, dy));
    CAIRN_RETURN_IF_ERROR(projection.op->Backward(
        args.inputs[input], args.variables[projection.variable], projection.output->data(), dy, dx,
        args.gradients[projection.variable], BiasOf(args.gradients, projection.variable)));
    if (gradient != nullptr && written[input])
      CAIRN_RETURN_IF_ERROR(add_[input]->Forward({gradient, more_gradients_[input]->data()}, gradient));
    written[input] = true;
  }
  return absl::OkStatus();
}

}  // namespace cairn::nn
