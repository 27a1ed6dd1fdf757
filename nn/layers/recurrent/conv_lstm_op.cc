#include "nn/layers/recurrent/conv_lstm_op.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "kernels/window.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

kernels::TensorDesc Plain(Shape shape) {
  return {.shape = std::move(shape)};
}

}  // namespace

ConvConfig ConvLstmConfig::OfStates() const {
  ConvConfig conv;
  conv.use_bias = false;
  conv.filters = input.filters;
  conv.kernel_size = input.kernel_size;
  conv.padding = kernels::Padding::kSame;
  return conv;
}

absl::StatusOr<Shape> ConvLstmConfig::StateShape(const Shape& image) const {
  CAIRN_ASSIGN_OR_RETURN(const Shape z, ImageOutputShape(image, [this](kernels::TensorDesc desc) {
                           return input.Params(std::move(desc));
                         }));
  return Shape({z[0], z[1], recurrent.units});
}

absl::StatusOr<std::unique_ptr<ConvLstmOp>> ConvLstmOp::Create(const std::string& name,
                                                               const ConvLstmConfig& config,
                                                               const LayerOpParams& params,
                                                               kernels::Device& device) {
  const Shape& shape = params.inputs[0].shape;
  std::unique_ptr<ConvLstmOp> op(new ConvLstmOp(config, device));
  CAIRN_ASSIGN_OR_RETURN(const Shape state, config.StateShape(Shape(shape.dims().subspan(2))));
  const int64_t batch = shape[0];
  op->steps_ = shape[1];
  op->state_floats_ = batch * state.num_elements();
  op->gate_floats_ = 4 * op->state_floats_;
  op->output_ = Plain({batch, state[0], state[1], state[2]});
  if (config.recurrent.return_sequences) {
    op->output_ = Plain({batch, op->steps_, state[0], state[1], state[2]});
    CAIRN_ASSIGN_OR_RETURN(op->by_examples_, device.ops().MakeTranspose(
                                                 {.input = Plain({op->steps_, batch, state.num_elements()}),
                                                  .axes = {1, 0, 2}}));
    CAIRN_RETURN_IF_ERROR(op->Allocate(op->steps_ * op->state_floats_, op->by_index_gradient_));
  }
  CAIRN_RETURN_IF_ERROR(op->MakeInput(config, params));
  CAIRN_RETURN_IF_ERROR(op->MakeSteps(config, Shape({batch, state[0], state[1], state[2]})));
  CAIRN_RETURN_IF_ERROR(op->MakeStates(params));
  CAIRN_RETURN_IF_ERROR(op->MakeDropouts(name, params, state));
  return op;
}

absl::Status ConvLstmOp::Allocate(int64_t floats, Memory& memory) {
  CAIRN_ASSIGN_OR_RETURN(memory, device_.Allocate(floats, "states and gates of a ConvLSTM2D"));
  return absl::OkStatus();
}

absl::Status ConvLstmOp::MakeInput(const ConvLstmConfig& config, const LayerOpParams& params) {
  const kernels::TensorDesc& input = params.inputs[0];
  const Shape& shape = input.shape;
  CAIRN_ASSIGN_OR_RETURN(by_steps_,
                         device_.ops().MakeTranspose(
                             {.input = input.WithShape({shape[0], shape[1], shape[2] * shape[3] * shape[4]}),
                              .axes = {1, 0, 2}}));
  const kernels::TensorDesc images = input.WithShape({shape[0] * shape[1], shape[2], shape[3], shape[4]});
  kernels::Conv2DParams conv = config.input.Params(images);
  conv.needs_input_gradient = params.needs_input_gradients;
  CAIRN_ASSIGN_OR_RETURN(input_conv_, device_.ops().MakeConv2D(conv));
  CAIRN_ASSIGN_OR_RETURN(input_copy_, PlainCopy::Create(input_conv_->output(), device_));
  CAIRN_RETURN_IF_ERROR(Allocate(images.num_floats(), x_));
  if (params.needs_input_gradients) CAIRN_RETURN_IF_ERROR(Allocate(images.num_floats(), dx_));
  CAIRN_RETURN_IF_ERROR(Allocate(input_conv_->output().num_floats(), projected_));
  return Allocate(steps_ * gate_floats_, z_);
}

// `state` [n, h, w, units]
absl::Status ConvLstmOp::MakeSteps(const ConvLstmConfig& config, const Shape& state) {
  const int64_t units = recurrent_.units;
  const kernels::Conv2DParams conv = config.OfStates().Params(Plain(state));
  for (int64_t index = 0; index < steps_; ++index) {
    Step& step = made_steps_.emplace_back();
    CAIRN_ASSIGN_OR_RETURN(step.conv, device_.ops().MakeConv2D(conv));
    CAIRN_ASSIGN_OR_RETURN(
        step.gates,
        device_.ops().MakeRecurrence({.cell = kernels::RecurrentCell::kLstm,
                                      .batch = state_floats_ / units,
                                      .steps = 1,
                                      .units = units,
                                      .activation = recurrent_.activation.function,
                                      .recurrent_activation = recurrent_.recurrent_activation.function}));
  }
  const kernels::TensorDesc product = made_steps_[0].conv->output();
  CAIRN_ASSIGN_OR_RETURN(state_copy_, PlainCopy::Create(product, device_));
  CAIRN_RETURN_IF_ERROR(Allocate(product.num_floats(), product_));
  CAIRN_RETURN_IF_ERROR(Allocate(gate_floats_, plain_product_));
  const int64_t kernel_floats =
      config.input.kernel_size[0] * config.input.kernel_size[1] * units * config.input.filters;
  CAIRN_RETURN_IF_ERROR(Allocate(kernel_floats, kernel_gradient_));
  CAIRN_ASSIGN_OR_RETURN(add_gates_, device_.ops().MakeAdd(Plain({gate_floats_}), 2));
  CAIRN_ASSIGN_OR_RETURN(add_states_, device_.ops().MakeAdd(Plain({state_floats_}), 2));
  CAIRN_ASSIGN_OR_RETURN(add_kernels_, device_.ops().MakeAdd(Plain({kernel_floats}), 2));
  return absl::OkStatus();
}

absl::Status ConvLstmOp::MakeStates(const LayerOpParams& params) {
  const int64_t kernel_of_gates = 4 * recurrent_.units * recurrent_.units;
  for (Memory* memory : {&h_, &c_}) CAIRN_RETURN_IF_ERROR(Allocate(steps_ * state_floats_, *memory));
  for (Memory* memory : {&dh_, &dc_, &other_dc_}) CAIRN_RETURN_IF_ERROR(Allocate(state_floats_, *memory));
  CAIRN_RETURN_IF_ERROR(Allocate(std::max(state_floats_, kernel_of_gates), zeros_));
  CAIRN_RETURN_IF_ERROR(Allocate(kernel_of_gates, kernel_of_gates_));
  if (recurrent_.return_state) {
    for (Memory* memory : {&last_h_gradient_, &last_c_gradient_})
      CAIRN_RETURN_IF_ERROR(Allocate(state_floats_, *memory));
  }
  for (size_t i = 1; i < params.inputs.size(); ++i) {
    FirstState& state = first_.emplace_back();
    CAIRN_ASSIGN_OR_RETURN(state.copy, PlainCopy::Create(params.inputs[i], device_));
    CAIRN_RETURN_IF_ERROR(Allocate(state_floats_, state.value));
  }
  return absl::OkStatus();
}

absl::Status ConvLstmOp::MakeDropouts(const std::string& name, const LayerOpParams& params,
                                      const Shape& state) {
  if (recurrent_.dropout > 0) {
    const nlohmann::json json = {{"rate", recurrent_.dropout},
                                 {"noise_shape", {nullptr, 1, nullptr, nullptr, nullptr}}};
    ConfigReader reader(json);
    const auto layer = MakeDropout(name, reader);
    CAIRN_RETURN_IF_ERROR(reader.Finish());
    const kernels::TensorDesc& input = params.inputs[0];
    CAIRN_ASSIGN_OR_RETURN(input_dropout_,
                           layer->MakeOp({.inputs = params.inputs.first(1),
                                          .needs_input_gradients = params.needs_input_gradients},
                                         device_));
    for (Memory* memory : {&dropped_, &dropped_gradient_})
      CAIRN_RETURN_IF_ERROR(Allocate(input.num_floats(), *memory));
  }
  if (recurrent_.recurrent_dropout == 0) return absl::OkStatus();
  const kernels::TensorDesc states = Plain({state_floats_ / state.num_elements(), state.num_elements()});
  CAIRN_ASSIGN_OR_RETURN(state_dropout_, device_.ops().MakeDropout(
                                             {.input = states,
                                              .rate = recurrent_.recurrent_dropout,
                                              .stream = StreamOf(absl::StrCat("recurrent_dropout/", name))}));
  CAIRN_ASSIGN_OR_RETURN(multiply_states_, device_.ops().MakeMultiply(Plain({state_floats_}), 2));
  CAIRN_RETURN_IF_ERROR(Allocate(steps_ * state_floats_, scaled_));
  for (Memory* memory : {&ones_, &state_scale_, &scaled_gradient_})
    CAIRN_RETURN_IF_ERROR(Allocate(state_floats_, *memory));
  const std::vector<float> ones(static_cast<size_t>(state_floats_), 1.0f);
  CAIRN_RETURN_IF_ERROR(
      device_.CopyToDevice(ones.data(), ones_->data(), state_floats_ * int64_t{sizeof(float)}));
  return device_.Synchronize();
}

std::vector<LastState> ConvLstmOp::last_states() const {
  const int64_t batch = output_.shape[0];
  const kernels::TensorDesc desc = Plain({batch, state_floats_ / batch});
  return {{.desc = desc, .value = h(steps_ - 1), .gradient = last_h_gradient_->data()},
          {.desc = desc, .value = c(steps_ - 1), .gradient = last_c_gradient_->data()}};
}

const float* ConvLstmOp::Before(int64_t index, size_t state) const {
  if (index > 0) return state == 0 ? h(index - 1) : c(index - 1);
  return first_.empty() ? zeros_->data() : first_[state].value->data();
}

const float* ConvLstmOp::Convolved(int64_t index, bool training) const {
  const bool drops = training && state_dropout_ != nullptr;
  return drops ? scaled_->data() + index * state_floats_ : Before(index, 0);
}

absl::Status ConvLstmOp::ForwardStep(int64_t index, const ForwardArgs& args) {
  const Step& step = made_steps_[static_cast<size_t>(index)];
  if (args.training && state_dropout_ != nullptr) {
    const float* const factors[] = {Before(index, 0), state_scale_->data()};
    CAIRN_RETURN_IF_ERROR(multiply_states_->Forward(factors, scaled_->data() + index * state_floats_));
  }
  CAIRN_RETURN_IF_ERROR(
      step.conv->Forward(Convolved(index, args.training), args.variables[1], nullptr, product_->data()));
  CAIRN_RETURN_IF_ERROR(state_copy_->ToPlain(product_->data(), plain_product_->data()));
  const float* const sum[] = {z(index), plain_product_->data()};
  CAIRN_RETURN_IF_ERROR(add_gates_->Forward(sum, z(index)));
  return step.gates->Forward({.kernel = zeros_->data(), .first_c = Before(index, 1)}, z(index),
                             {.y = h(index), .last_c = c(index)});
}

absl::Status ConvLstmOp::Forward(const ForwardArgs& args) {
  for (size_t i = 0; i < first_.size(); ++i)
    CAIRN_RETURN_IF_ERROR(first_[i].copy->ToPlain(args.inputs[1 + i], first_[i].value->data()));
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
  CAIRN_RETURN_IF_ERROR(by_steps_->Forward(x, x_->data()));
  CAIRN_RETURN_IF_ERROR(input_conv_->Forward(x_->data(), args.variables[0],
                                             use_bias_ ? args.variables[2] : nullptr, projected_->data()));
  CAIRN_RETURN_IF_ERROR(input_copy_->ToPlain(projected_->data(), z_->data()));
  for (int64_t index = 0; index < steps_; ++index) CAIRN_RETURN_IF_ERROR(ForwardStep(index, args));
  if (by_examples_ != nullptr) return by_examples_->Forward(h_->data(), args.output);
  return device_.CopyOnDevice(h(steps_ - 1), args.output, state_floats_);
}

absl::Status ConvLstmOp::BackwardStep(int64_t index, const float* dh, const BackwardArgs& args) {
  const Step& step = made_steps_[static_cast<size_t>(index)];
  const bool is_last = index + 1 == steps_;
  const auto of_last = [&](const Memory& memory) { return memory == nullptr ? nullptr : memory->data(); };
  CAIRN_RETURN_IF_ERROR(
      step.gates->Backward({.kernel = zeros_->data(), .first_c = Before(index, 1)}, z(index),
                           {.y = dh,
                            .last_h = is_last ? of_last(last_h_gradient_) : nullptr,
                            .last_c = is_last ? of_last(last_c_gradient_) : dc_->data()},
                           {.kernel = kernel_of_gates_->data(), .first_c = other_dc_->data()}));
  std::swap(dc_, other_dc_);
  CAIRN_RETURN_IF_ERROR(state_copy_->FromPlain(z(index), product_->data()));
  float* const sum = args.gradients[1];
  const bool drops = state_dropout_ != nullptr;
  float* before = drops ? scaled_gradient_->data() : dh_->data();
  if (index == 0 && first_.empty()) before = nullptr;
  CAIRN_RETURN_IF_ERROR(step.conv->Backward(Convolved(index, /*training=*/true), args.variables[1],
                                            product_->data(), product_->data(), before,
                                            is_last ? sum : kernel_gradient_->data(), nullptr));
  if (drops && before != nullptr) {
    const float* const factors[] = {before, state_scale_->data()};
    CAIRN_RETURN_IF_ERROR(multiply_states_->Forward(factors, dh_->data()));
  }
  if (is_last) return absl::OkStatus();
  const float* const kernels[] = {sum, kernel_gradient_->data()};
  return add_kernels_->Forward(kernels, sum);
}

absl::Status ConvLstmOp::BackwardInput(const BackwardArgs& args) {
  CAIRN_RETURN_IF_ERROR(input_copy_->FromPlain(z_->data(), projected_->data()));
  float* const dx = args.input_gradients[0];
  CAIRN_RETURN_IF_ERROR(input_conv_->Backward(x_->data(), args.variables[0], projected_->data(),
                                              projected_->data(), dx == nullptr ? nullptr : dx_->data(),
                                              args.gradients[0], use_bias_ ? args.gradients[2] : nullptr));
  if (dx == nullptr) return absl::OkStatus();
  if (input_dropout_ == nullptr) return by_steps_->Backward(nullptr, nullptr, dx_->data(), dx);
  CAIRN_RETURN_IF_ERROR(by_steps_->Backward(nullptr, nullptr, dx_->data(), dropped_gradient_->data()));
  return input_dropout_->Backward({.inputs = args.inputs.first(1),
                                   .variables = {},
                                   .output = dropped_->data(),
                                   .output_gradient = dropped_gradient_->data(),
                                   .input_gradients = args.input_gradients.first(1),
                                   .gradients = {}});
}

absl::Status ConvLstmOp::Backward(const BackwardArgs& args) {
  float* const by_index = by_index_gradient_ == nullptr ? nullptr : by_index_gradient_->data();
  if (by_index != nullptr)
    CAIRN_RETURN_IF_ERROR(by_examples_->Backward(nullptr, nullptr, args.output_gradient, by_index));
  for (int64_t index = steps_ - 1; index >= 0; --index) {
    const float* dh = dh_->data();
    if (index + 1 == steps_) {
      dh = by_index == nullptr ? args.output_gradient : by_index + index * state_floats_;
    } else if (by_index != nullptr) {
      const float* const sum[] = {dh, by_index + index * state_floats_};
      CAIRN_RETURN_IF_ERROR(add_states_->Forward(sum, dh_->data()));
    }
    CAIRN_RETURN_IF_ERROR(BackwardStep(index, dh, args));
  }
  for (size_t i = 0; i < first_.size(); ++i) {
    float* const to = args.input_gradients[1 + i];
    if (to != nullptr)
      CAIRN_RETURN_IF_ERROR(first_[i].copy->FromPlain(i == 0 ? dh_->data() : dc_->data(), to));
  }
  return BackwardInput(args);
}

}  // namespace cairn::nn
