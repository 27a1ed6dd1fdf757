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
  CAIRN_RETURN_IF_ERROR(op->MakeStates(config, params, device));
  CAIRN_RETURN_IF_ERROR(op->MakeDropouts(config, params, device));
  return op;
}

absl::Status RecurrentOp::MakeStates(const RecurrentConfig& config, const RecurrentOpParams& params,
                                     kernels::Device& device) {
  state_ = output_.WithShape({params.input.shape[0], config.units});
  const auto allocate = [&](Memory& memory) -> absl::Status {
    CAIRN_ASSIGN_OR_RETURN(memory, device.Allocate(state_.num_floats(), "states of a recurrent layer"));
    return absl::OkStatus();
  };
  const auto states = static_cast<size_t>(config.num_states());
  if (config.return_state) last_.resize(states);
  for (StateMemory& state : last_) {
    CAIRN_RETURN_IF_ERROR(allocate(state.value));
    CAIRN_RETURN_IF_ERROR(allocate(state.gradient));
  }
  if (params.has_first_states) first_.resize(states);
  const kernels::TensorDesc given = params.input.WithShape(state_.shape);
  for (FirstState& state : first_) {
    if (given == state_) continue;
    CAIRN_ASSIGN_OR_RETURN(state.convert, device.ops().MakeReorder(given, state_));
    CAIRN_ASSIGN_OR_RETURN(state.convert_back, device.ops().MakeReorder(state_, given));
    CAIRN_RETURN_IF_ERROR(allocate(state.value));
    CAIRN_RETURN_IF_ERROR(allocate(state.gradient));
  }
  return absl::OkStatus();
}

std::vector<LastState> RecurrentOp::last_states() const {
  std::vector<LastState> states;
  for (const StateMemory& state : last_)
    states.push_back({.desc = state_, .value = state.value->data(), .gradient = state.gradient->data()});
  return states;
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
  const auto first = [&](size_t i) -> const float* {
    if (i >= first_.size()) return nullptr;
    return first_[i].value == nullptr ? inputs[1 + i] : first_[i].value->data();
  };
  const size_t mask = 1 + first_.size();
  return {.kernel = variables[1],
          .bias = has_recurrent_bias_ ? variables[2] + gate_columns_ : nullptr,
          .mask = inputs.size() > mask ? inputs[mask] : nullptr,
          .state_scale = training && state_dropout_ != nullptr ? state_scale_->data() : nullptr,
          .first_h = first(0),
          .first_c = first(1)};
}

float* RecurrentOp::FirstGradient(size_t i, const BackwardArgs& args) const {
  if (i >= first_.size() || args.input_gradients[1 + i] == nullptr) return nullptr;
  return first_[i].gradient == nullptr ? args.input_gradients[1 + i] : first_[i].gradient->data();
}

absl::Status RecurrentOp::ConvertGradients(const BackwardArgs& args) {
  for (size_t i = 0; i < first_.size(); ++i) {
    float* const to = args.input_gradients[1 + i];
    if (to == nullptr || first_[i].convert_back == nullptr) continue;
    CAIRN_RETURN_IF_ERROR(first_[i].convert_back->Run(first_[i].gradient->data(), to));
  }
  return absl::OkStatus();
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
  for (size_t i = 0; i < first_.size(); ++i) {
    if (first_[i].convert == nullptr) continue;
    CAIRN_RETURN_IF_ERROR(first_[i].convert->Run(args.inputs[1 + i], first_[i].value->data()));
  }
  const auto last = [&](size_t i) { return i < last_.size() ? last_[i].value->data() : nullptr; };
  return recurrence_->Forward(InputsOf(args.inputs, args.variables, args.training), z_->data(),
                              {.y = args.output, .last_h = last(0), .last_c = last(1)});
}

absl::Status RecurrentOp::Backward(const BackwardArgs& args) {
  const bool drops = input_dropout_ != nullptr;
  const float* const x = drops ? dropped_->data() : args.inputs[0];
  float* const dx = args.input_gradients[0];
  float* const of_projected = drops && dx != nullptr ? dropped_gradient_->data() : dx;
  const auto last = [&](size_t i) { return i < last_.size() ? last_[i].gradient->data() : nullptr; };
  CAIRN_RETURN_IF_ERROR(
      recurrence_->Backward(InputsOf(args.inputs, args.variables, /*training=*/true), z_->data(),
                            {.y = args.output_gradient, .last_h = last(0), .last_c = last(1)},
                            {.kernel = args.gradients[1],
                             .bias = has_recurrent_bias_ ? args.gradients[2] + gate_columns_ : nullptr,
                             .first_h = FirstGradient(0, args),
                             .first_c = FirstGradient(1, args)}));
  CAIRN_RETURN_IF_ERROR(ConvertGradients(args));
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
