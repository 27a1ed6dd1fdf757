#include "nn/layers/attention/cached_attention_op.h"

#include <utility>

#include "common/core/status.h"

namespace cairn::nn {
namespace {

// The variable of projection `index`: a kernel, and perhaps a bias after it.
size_t KernelOf(size_t index, bool use_bias) {
  return index * (use_bias ? 2 : 1);
}

}  // namespace

absl::StatusOr<std::unique_ptr<kernels::LinearOp>> CachedAttentionOp::Project(
    const kernels::TensorDesc& input, int64_t units) const {
  const int64_t width = input.shape[input.shape.rank() - 1];
  return device_.ops().MakeDense({.input = input.WithShape({input.shape.num_elements() / width, width}),
                                  .units = units,
                                  .use_bias = use_bias_,
                                  .needs_input_gradient = false});
}

absl::StatusOr<std::unique_ptr<LayerOp>> CachedAttentionOp::Create(const ProjectedAttentionOp::Args& args,
                                                                   const Decoding& decoding,
                                                                   kernels::Device& device) {
  std::unique_ptr<CachedAttentionOp> op(new CachedAttentionOp(args, decoding, device));
  kernels::AttentionParams params = args.attention;
  const bool of_steps = decoding.inputs[1] == DecodedInput::kSteps;
  if (of_steps) params.keys = decoding.length;
  const auto rotary = [&](const kernels::TensorDesc& projected, int64_t heads,
                          bool steps) -> absl::StatusOr<std::unique_ptr<kernels::UnaryOp>> {
    if (args.rotary.empty()) return nullptr;
    const Shape shape = {params.batch, projected.shape[0] / params.batch, heads, params.width};
    kernels::RotaryParams rotated = {.input = projected.WithShape(shape), .frequencies = args.rotary};
    if (steps) rotated.first = decoding.first, rotated.steps = decoding.length;
    return device.ops().MakeRotary(rotated);
  };
  CAIRN_ASSIGN_OR_RETURN(op->query_, op->Project(args.inputs[0], params.heads * params.width));
  const kernels::TensorDesc queries = op->query_->output();
  CAIRN_ASSIGN_OR_RETURN(op->query_rotary_, rotary(queries, params.heads, /*steps=*/true));
  CAIRN_ASSIGN_OR_RETURN(op->queries_, device.Allocate(queries.num_floats(), "projection"));
  const auto make = [&](size_t index, size_t input, int64_t width) -> absl::StatusOr<Projection> {
    Projection made = {.input = input, .variable = KernelOf(index, args.use_bias)};
    const int64_t units = params.key_heads * width;
    CAIRN_ASSIGN_OR_RETURN(made.op, op->Project(args.inputs[input], units));
    made.kept = index - 1;
    CAIRN_RETURN_IF_ERROR(decoding.cache->Reserve(made.kept, params.keys * units, "keys and values"));
    if (!of_steps) return made;
    made.copy = {.batch = params.batch, .count = params.queries, .length = params.keys, .floats = units};
    CAIRN_ASSIGN_OR_RETURN(made.of_steps, device.Allocate(made.op->output().num_floats(), "projection"));
    return made;
  };
  CAIRN_ASSIGN_OR_RETURN(op->key_, make(1, args.key, params.width));
  CAIRN_ASSIGN_OR_RETURN(op->key_.rotary, rotary(op->key_.op->output(), params.key_heads, of_steps));
  CAIRN_ASSIGN_OR_RETURN(op->value_, make(2, 1, params.value_width));
  CAIRN_ASSIGN_OR_RETURN(op->attention_, device.ops().MakeAttention(params));
  const kernels::TensorDesc attended = {
      .shape = {params.batch, params.queries, params.heads * params.value_width}};
  CAIRN_ASSIGN_OR_RETURN(op->attended_, device.Allocate(attended.num_floats(), "attention"));
  CAIRN_ASSIGN_OR_RETURN(op->output_projection_, op->Project(attended, args.output_width));
  op->output_ = op->output_projection_->output().WithShape({params.batch, params.queries, args.output_width});
  return op;
}

absl::Status CachedAttentionOp::Run(kernels::LinearOp& op, size_t variable, const float* x,
                                    const ForwardArgs& args, float* y) const {
  return op.Forward(x, args.variables[variable], use_bias_ ? args.variables[variable + 1] : nullptr, y);
}

absl::Status CachedAttentionOp::Update(const Projection& projection, const ForwardArgs& args) const {
  const bool whole = projection.of_steps == nullptr;
  if (whole && *first_ > 0) return absl::OkStatus();
  float* const projected = whole ? cache_.at(projection.kept) : projection.of_steps->data();
  CAIRN_RETURN_IF_ERROR(
      Run(*projection.op, projection.variable, args.inputs[projection.input], args, projected));
  if (projection.rotary != nullptr) CAIRN_RETURN_IF_ERROR(projection.rotary->Forward(projected, projected));
  if (whole) return absl::OkStatus();
  return CopySteps(projection.copy, projected, *first_, cache_.at(projection.kept), device_);
}

absl::Status CachedAttentionOp::Forward(const ForwardArgs& args) {
  float* const queries = queries_->data();
  CAIRN_RETURN_IF_ERROR(Run(*query_, 0, args.inputs[0], args, queries));
  if (query_rotary_ != nullptr) CAIRN_RETURN_IF_ERROR(query_rotary_->Forward(queries, queries));
  CAIRN_RETURN_IF_ERROR(Update(key_, args));
  CAIRN_RETURN_IF_ERROR(Update(value_, args));
  kernels::AttentionInputs inputs = MasksOf(call_, args.inputs);
  if (step_masks_.query.has_value()) inputs.query_mask = args.inputs[*step_masks_.query];
  if (step_masks_.key.has_value()) inputs.key_mask = args.inputs[*step_masks_.key];
  inputs.q = queries;
  inputs.k = cache_.at(key_.kept);
  inputs.v = cache_.at(value_.kept);
  inputs.first_query = *first_;
  CAIRN_RETURN_IF_ERROR(attention_->Forward(inputs, /*training=*/false, attended_->data()));
  return Run(*output_projection_, KernelOf(3, use_bias_), attended_->data(), args, args.output);
}

}  // namespace cairn::nn
