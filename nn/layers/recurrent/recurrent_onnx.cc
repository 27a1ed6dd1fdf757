// LSTM, GRU and SimpleRNN as ONNX's operators LSTM, GRU and RNN. Their weights have one row per output and gates in
// another order, and their sequences are [steps, batch, channels].
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "nn/layers/recurrent/recurrent_layer.h"

namespace cairn::nn {
namespace {

using kernels::RecurrentCell;

// ONNX's gates by their position in Keras.
std::vector<int64_t> GateOrder(RecurrentCell cell) {
  switch (cell) {
    case RecurrentCell::kLstm:
      return {0, 3, 1, 2};  // i o f c of Keras' i f c o
    case RecurrentCell::kGru:
      return {0, 1, 2};
    case RecurrentCell::kSimple:
      break;
  }
  return {0};
}

// UNIMPLEMENTED for functions that ONNX's operators lack.
absl::StatusOr<std::string> FunctionInOnnx(const ActivationSpec& activation) {
  const kernels::ActivationParams& f = activation.function;
  switch (f.kind) {
    case kernels::Activation::kTanh:
      return "Tanh";
    case kernels::Activation::kSigmoid:
      return "Sigmoid";
    case kernels::Activation::kSoftplus:
      return "Softplus";
    case kernels::Activation::kElu:
      if (f.slope == 1) return "Elu";
      break;
    case kernels::Activation::kRelu:
      if (f.is_plain_relu()) return "Relu";
      break;
    default:
      break;
  }
  return absl::UnimplementedError("ONNX's recurrent operators lack the activation of this layer");
}

// Rows of a kernel [depth, gates * units], transposed and in ONNX's order: [1, gates * units, depth].
std::string KernelInOnnx(const OnnxVariable& kernel, const RecurrentConfig& config, const char* what,
                         OnnxBuilder& onnx) {
  const int64_t depth = kernel.shape[0], columns = kernel.shape[1];
  std::vector<float> values;
  values.reserve(kernel.values.size());
  for (const int64_t gate : GateOrder(config.cell)) {
    for (int64_t unit = 0; unit < config.units; ++unit) {
      for (int64_t k = 0; k < depth; ++k)
        values.push_back(kernel.values[static_cast<size_t>(k * columns + gate * config.units + unit)]);
    }
  }
  return onnx.Floats(what, {1, columns, depth}, std::move(values));
}

// The biases of inputs and states, [1, 2 * gates * units]. Those of the states are 0 without reset_after.
std::string BiasInOnnx(const OnnxVariable& bias, const RecurrentConfig& config, OnnxBuilder& onnx) {
  const int64_t columns = config.gates() * config.units;
  std::vector<float> values;
  for (int64_t row = 0; row < 2; ++row) {
    for (const int64_t gate : GateOrder(config.cell)) {
      for (int64_t unit = 0; unit < config.units; ++unit) {
        const int64_t at = row * columns + gate * config.units + unit;
        values.push_back(row == 1 && !config.reset_after ? 0.0f : bias.values[static_cast<size_t>(at)]);
      }
    }
  }
  return onnx.Floats("bias", {1, 2 * columns}, std::move(values));
}

}  // namespace

absl::StatusOr<RecurrentLayer::OnnxOutputs> RecurrentLayer::OutputsInOnnx(
    OnnxValue input, absl::Span<const OnnxValue> states, absl::Span<const OnnxVariable> variables,
    bool in_order, OnnxBuilder& onnx) const {
  const RecurrentConfig& config = config_;
  const int64_t steps = onnx.ShapeOf(input)[0];
  const bool is_lstm = config.cell == RecurrentCell::kLstm, is_gru = config.cell == RecurrentCell::kGru;
  CAIRN_ASSIGN_OR_RETURN(const std::string function, FunctionInOnnx(config.activation));
  std::string gate;
  if (is_lstm || is_gru) {
    CAIRN_ASSIGN_OR_RETURN(gate, FunctionInOnnx(config.recurrent_activation));
  }
  std::vector<std::string> functions = {function};
  if (is_lstm) functions = {gate, function, function};
  if (is_gru) functions = {gate, function};
  std::vector<OnnxAttribute> attributes = {
      {"activations", functions},
      {"direction", std::string(config.go_backwards ? "reverse" : "forward")},
      {"hidden_size", config.units}};
  if (is_gru) attributes.push_back({"linear_before_reset", int64_t{config.reset_after ? 1 : 0}});
  std::vector<std::string> names = {
      onnx.Add("Transpose", {onnx.ChannelsLast(input)}, {{"perm", std::vector<int64_t>{1, 0, 2}}}),
      KernelInOnnx(variables[0], config, "kernel", onnx),
      KernelInOnnx(variables[1], config, "recurrent_kernel", onnx)};
  if (config.use_bias) names.push_back(BiasInOnnx(variables[2], config, onnx));
  if (!states.empty()) {
    names.resize(5);  // no bias, if there is none, and no lengths of sequences
    for (const OnnxValue state : states)
      names.push_back(onnx.Add("Unsqueeze", {onnx.ChannelsLast(state), onnx.Ints("direction", {0})}));
  }
  // [steps, 1, batch, units], in the order of the steps; then the last states, [1, batch, units]
  const std::vector<std::string> all = onnx.AddWithOutputs(config.return_state ? 1 + config.num_states() : 1,
                                                           is_lstm  ? "LSTM"
                                                           : is_gru ? "GRU"
                                                                    : "RNN",
                                                           std::move(names), std::move(attributes));
  OnnxOutputs outputs;
  for (size_t i = 1; i < all.size(); ++i)
    outputs.states.push_back(onnx.Add("Squeeze", {all[i], onnx.Ints("direction", {0})}));
  const std::string sequence = onnx.Add("Squeeze", {all[0], onnx.Ints("direction", {1})});
  if (!config.return_sequences) {
    const std::string last =
        onnx.Add("Gather", {sequence, onnx.Ints("last", {config.go_backwards ? 0 : steps - 1})},
                 {{"axis", int64_t{0}}});
    outputs.y = onnx.Add("Squeeze", {last, onnx.Ints("steps", {0})});
    return outputs;
  }
  outputs.y = onnx.Add("Transpose", {sequence}, {{"perm", std::vector<int64_t>{1, 0, 2}}});
  if (!config.go_backwards || !in_order) return outputs;
  std::vector<int64_t> backwards(static_cast<size_t>(steps));
  std::iota(backwards.rbegin(), backwards.rend(), 0);
  outputs.y =
      onnx.Add("Gather", {outputs.y, onnx.Ints("backwards", std::move(backwards))}, {{"axis", int64_t{1}}});
  return outputs;
}

OnnxValue PackInOnnx(const RecurrentLayer::OnnxOutputs& outputs, const Shape& shape, OnnxBuilder& onnx) {
  if (outputs.states.empty()) return onnx.FromChannelsLast(outputs.y, shape);
  std::vector<std::string> parts = {onnx.Add("Flatten", {outputs.y})};
  parts.insert(parts.end(), outputs.states.begin(), outputs.states.end());
  return onnx.FromChannelsLast(onnx.Add("Concat", std::move(parts), {{"axis", int64_t{1}}}), shape);
}

absl::StatusOr<OnnxValue> RecurrentLayer::ToOnnx(absl::Span<const OnnxValue> inputs,
                                                 absl::Span<const OnnxVariable> variables,
                                                 OnnxBuilder& onnx) const {
  if (!onnx.masked().empty())
    return absl::UnimplementedError("ONNX's recurrent operators take no mask of time steps");
  CAIRN_ASSIGN_OR_RETURN(const OnnxOutputs outputs,
                         OutputsInOnnx(inputs[0], inputs.subspan(1), variables, /*in_order=*/true, onnx));
  std::vector<Shape> shapes;
  for (const OnnxValue input : inputs) shapes.push_back(onnx.ShapeOf(input));
  CAIRN_ASSIGN_OR_RETURN(const Shape shape, OutputShape(shapes));
  return PackInOnnx(outputs, shape, onnx);
}

}  // namespace cairn::nn
