#include "nn/layers/recurrent/recurrent_op.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {

absl::StatusOr<std::unique_ptr<RecurrentOp>> RecurrentOp::Create(const RecurrentConfig& config,
                                                                 const RecurrentOpParams& params,
                                                                 kernels::Device& device) {
  const Shape& shape = params.input.shape;
  const int64_t batch = shape[0], steps = shape[1], columns = config.gates() * config.units;
  CAIRN_ASSIGN_OR_RETURN(auto dense,
                         device.ops().MakeDense({.input = params.input.WithShape({batch * steps, shape[2]}),
                                                 .units = columns,
                                                 .use_bias = config.use_bias,
                                                 .needs_input_gradient = params.needs_input_gradients}));
  const kernels::TensorDesc z = dense->output();
  const int64_t width = params.y_width > 0 ? params.y_width : config.units;
  const Shape output = config.return_sequences ? Shape({batch, steps, width}) : Shape({batch, width});
  std::unique_ptr<RecurrentOp> op(new RecurrentOp(z.WithShape(output), config));
  op->has_recurrent_bias_ = config.has_recurrent_bias();
  op->projection_ = std::make_unique<LinearLayerOp>(std::move(dense), config.use_bias);
  CAIRN_ASSIGN_OR_RETURN(op->z_, device.Allocate(z.num_floats(), "gates of a recurrent layer"));
  CAIRN_ASSIGN_OR_RETURN(op->recurrence_, device.ops().MakeRecurrence(
                                              {.cell = config.cell,
                                               .batch = batch,
                                               .steps = steps,
                                               .units = config.units,
                                               .type = z.type,
                                               .activation = config.activation.function,
                                               .recurrent_activation = config.recurrent_activation.function,
                                               .reset_after = config.reset_after,
                                               .use_bias = config.has_recurrent_bias(),
                                               .backwards = config.go_backwards,
                                               .sequences = config.return_sequences,
                                               .in_order = params.in_order,
                                               .y_width = params.y_width,
                                               .y_column = params.y_column,
                                               .zeros_masked = config.zero_output_for_mask}));
  CAIRN_RETURN_IF_ERROR(op->MakeDropouts(config, params, device));
  return op;
}

absl::Status RecurrentOp::MakeDropouts(const RecurrentConfig& config, const RecurrentOpParams& params,
                                       kernels::Device& device) {
  if (config.dropout > 0) {  // of whole channels: the same elements in all steps
    const nlohmann::json json = {{"rate", config.dropout}, {"noise_shape", {nullptr, 1, nullptr}}};
    ConfigReader reader(json);
    const auto layer = MakeDropout(params.name, reader);
    CAIRN_RETURN_IF_ERROR(reader.Finish());
    const kernels::TensorDesc inputs[] = {params.input};
    CAIRN_ASSIGN_OR_RETURN(
        input_dropout_,
        layer->MakeOp({.inputs = inputs, .needs_input_gradients = params.needs_input_gradients}, device));
    CAIRN_ASSIGN_OR_RETURN(dropped_,
                           device.Allocate(params.input.num_floats(), "dropout of a recurrent layer"));
    CAIRN_ASSIGN_OR_RETURN(dropped_gradient_,
                           device.Allocate(params.input.num_floats(), "dropout of a recurrent layer"));
  }
  if (config.recurrent_dropout == 0) return absl::OkStatus();
  const kernels::TensorDesc states = {.shape = {params.input.shape[0], config.units}};
  CAIRN_ASSIGN_OR_RETURN(
      state_dropout_,
      device.ops().MakeDropout({.input = states,
                                .rate = config.recurrent_dropout,
                                .stream = StreamOf(absl::StrCat("recurrent_dropout/", params.name))}));
  CAIRN_ASSIGN_OR_RETURN(ones_, device.Allocate(states.num_floats(), "dropout of a recurrent layer"));
  CAIRN_ASSIGN_OR_RETURN(state_scale_, device.Allocate(states.num_floats(), "dropout of a recurrent layer"));
  const std::vector<float> ones(static_cast<size_t>(states.num_floats()), 1.0f);
  CAIRN_RETURN_IF_ERROR(
      device.CopyToDevice(ones.data(), ones_->data(), states.num_floats() * int64_t{sizeof(float)}));
  return device.Synchronize();
}

kernels::Recurrence::Inputs RecurrentOp::InputsOf(absl::Span<const float* const> inputs,
                                                  absl::Span<const float* const> variables,
                                                  bool training) const {
  return {.kernel = variables[1],
          .bias = has_recurrent_bias_ ? variables[2] + gate_columns_ : nullptr,
          .mask = inputs.size() > 1 ? inputs[1] : nullptr,
          .state_scale = training && state_dropout_ != nullptr ? state_scale_->data() : nullptr};
}

absl::Status RecurrentOp::Forward(const ForwardArgs& args) {
  const float* x = args.inputs[0];
  if (args.training && input_dropout_ != nullptr) {
    ForwardArgs dropout = args;
    dropout.inputs = args.inputs.first(1);
    dropout.output = dropped_->data();
    CAIRN_RETURN_IF_ERROR(input_dropout_->Forward(dropout));
    x = dropped_->data();
  }
  if (args.training && state_dropout_ != nullptr)
    CAIRN_RETURN_IF_ERROR(state_dropout_->Forward(ones_->data(), state_scale_->data()));
  const float* const variables[] = {args.variables[0], has_bias_ ? args.variables[2] : nullptr};
  ForwardArgs projection = args;
  projection.inputs = absl::MakeConstSpan(&x, 1);
  projection.variables = absl::MakeConstSpan(variables).first(has_bias_ ? 2 : 1);
  projection.output = z_->data();
  CAIRN_RETURN_IF_ERROR(projection_->Forward(projection));
  return recurrence_->Forward(InputsOf(args.inputs, args.variables, args.training), z_->data(), args.output);
}

absl::Status RecurrentOp::Backward(const BackwardArgs& args) {
  const bool drops = input_dropout_ != nullptr;
  const float* const x = drops ? dropped_->data() : args.inputs[0];
  float* const dx = args.input_gradients[0];
  float* const of_projected = drops && dx != nullptr ? dropped_gradient_->data() : dx;
  CAIRN_RETURN_IF_ERROR(recurrence_->Backward(
      InputsOf(args.inputs, args.variables, /*training=*/true), z_->data(), args.output_gradient,
      args.gradients[1], has_recurrent_bias_ ? args.gradients[2] + gate_columns_ : nullptr));
  const float* const variables[] = {args.variables[0], has_bias_ ? args.variables[2] : nullptr};
  float* const gradients[] = {args.gradients[0], has_bias_ ? args.gradients[2] : nullptr};
  const size_t count = has_bias_ ? 2 : 1;
  CAIRN_RETURN_IF_ERROR(projection_->Backward({.inputs = absl::MakeConstSpan(&x, 1),
                                               .variables = absl::MakeConstSpan(variables).first(count),
                                               .output = z_->data(),
                                               .output_gradient = z_->data(),
                                               .input_gradients = absl::MakeConstSpan(&of_projected, 1),
                                               .gradients = absl::MakeConstSpan(gradients).first(count),
                                               .on_gradients = args.on_gradients}));
  if (!drops || dx == nullptr) return absl::OkStatus();
  return input_dropout_->Backward({.inputs = args.inputs.first(1),
                                   .variables = {},
                                   .output = dropped_->data(),
                                   .output_gradient = of_projected,
                                   .input_gradients = args.input_gradients.first(1),
                                   .gradients = {}});
}

}  // namespace cairn::nn
