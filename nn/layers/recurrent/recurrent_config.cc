#include "nn/layers/recurrent/recurrent_config.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "kernels/recurrence.h"

namespace cairn::nn {
namespace {

using kernels::RecurrentCell;

// `absent`: Keras' default.
ActivationSpec ReadGate(absl::string_view field, kernels::Activation absent, ConfigReader& config) {
  if (config.Raw(field).is_null()) return {.function = {.kind = absent}};
  const ActivationSpec spec = ReadActivation(field, config);
  if (spec.softmax || !spec.function.has_derivative_of_value()) {
    config.Fail(
        field,
        absl::StrCat(config.Raw(field).dump(),
                     " is not supported in a recurrent layer, only elu, hard_sigmoid, leaky_relu, linear, "
                     "relu, relu6, selu, sigmoid, softplus and tanh"));
  }
  return spec;
}

float ReadRate(absl::string_view field, ConfigReader& config) {
  const double rate = config.Number(field, 0);
  if (!(rate >= 0 && rate < 1)) config.Fail(field, absl::StrCat(rate, " is not in [0, 1)"));
  return static_cast<float>(rate);
}

void RefuseTrue(absl::string_view field, absl::string_view advice, ConfigReader& config) {
  if (config.Bool(field, false)) config.Fail(field, absl::StrCat("true is not supported: ", advice));
}

void RefuseOther(ConfigReader& config) {
  RefuseTrue("stateful",
             "every batch begins with its own states; give the layer whole sequences, or an initial_state",
             config);
  RefuseTrue("time_major", "inputs are [batch, steps, channels]", config);
  // How Keras computes the same numbers. The job's --seed is used.
  config.Ignore({"unroll", "implementation", "use_cudnn", "seed", "input_length", "input_dim"});
}

}  // namespace

RecurrentConfig RecurrentConfig::Read(const std::string& class_name, ConfigReader& config) {
  const bool is_convolution = class_name == "ConvLSTM2D";
  const bool is_lstm = is_convolution || class_name == "LSTM", is_gru = class_name == "GRU";
  RecurrentConfig read = {.cell = is_lstm  ? RecurrentCell::kLstm
                                  : is_gru ? RecurrentCell::kGru
                                           : RecurrentCell::kSimple,
                          .units = config.PositiveInt(is_convolution ? "filters" : "units"),
                          .activation = ReadGate("activation", kernels::Activation::kTanh, config),
                          .use_bias = config.Bool("use_bias", true),
                          .return_sequences = config.Bool("return_sequences", false),
                          .return_state = config.Bool("return_state", false),
                          .go_backwards = config.Bool("go_backwards", false),
                          .zero_output_for_mask = config.Bool("zero_output_for_mask", false),
                          .dropout = ReadRate("dropout", config),
                          .recurrent_dropout = ReadRate("recurrent_dropout", config),
                          .kernel_initializer = config.Initializer("kernel_initializer", "glorot_uniform"),
                          .recurrent_initializer = config.Initializer("recurrent_initializer", "orthogonal"),
                          .bias_initializer = config.Initializer("bias_initializer", "zeros"),
                          .kernel_regularizer = config.Regularizer("kernel_regularizer"),
                          .recurrent_regularizer = config.Regularizer("recurrent_regularizer"),
                          .bias_regularizer = config.Regularizer("bias_regularizer"),
                          .kernel_constraint = config.ReadConstraint("kernel_constraint"),
                          .recurrent_constraint = config.ReadConstraint("recurrent_constraint"),
                          .bias_constraint = config.ReadConstraint("bias_constraint")};
  if (is_lstm || is_gru)
    read.recurrent_activation = ReadGate("recurrent_activation", kernels::Activation::kSigmoid, config);
  if (is_gru) read.reset_after = config.Bool("reset_after", true);
  if (is_lstm && config.Bool("unit_forget_bias", true)) {
    read.bias_initializer.ones_begin = read.units;
    read.bias_initializer.ones_end = 2 * read.units;
  }
  RefuseOther(config);
  return read;
}

int64_t RecurrentConfig::gates() const {
  kernels::RecurrenceParams params;
  params.cell = cell;
  return params.gates();
}

absl::Status RecurrentConfig::CheckStates(absl::Span<const Shape> states) const {
  for (const Shape& state : states) {
    if (state == Shape({units})) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("initial_state: a state is ", state.ToString(), ", expected [", units, "]"));
  }
  return absl::OkStatus();
}

std::vector<VariableSpec> RecurrentConfig::Variables(int64_t width, const std::string& prefix) const {
  const int64_t columns = gates() * units;
  std::vector<VariableSpec> variables = {{.name = absl::StrCat(prefix, "kernel"),
                                          .shape = {width, columns},
                                          .initializer = kernel_initializer,
                                          .regularizer = kernel_regularizer,
                                          .constraint = kernel_constraint},
                                         {.name = absl::StrCat(prefix, "recurrent_kernel"),
                                          .shape = {units, columns},
                                          .initializer = recurrent_initializer,
                                          .regularizer = recurrent_regularizer,
                                          .constraint = recurrent_constraint}};
  if (use_bias) {
    variables.push_back({.name = absl::StrCat(prefix, "bias"),
                         .shape = reset_after ? Shape({2, columns}) : Shape({columns}),
                         .initializer = bias_initializer,
                         .regularizer = bias_regularizer,
                         .constraint = bias_constraint});
  }
  return variables;
}

}  // namespace cairn::nn
