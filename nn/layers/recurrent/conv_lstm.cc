// ConvLSTM2D: an LSTM over sequences of images, whose products with its kernels are convolutions. Shi et al.,
// "Convolutional LSTM Network", 2015, without the products of cells and gates, as in Keras.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "nn/layers/activation.h"
#include "nn/layers/layers.h"
#include "nn/layers/recurrent/conv_lstm_op.h"
#include "nn/layers/recurrent/packed_states_op.h"
#include "nn/layers/select_output.h"

namespace cairn::nn {
namespace {

class ConvLstmLayer final : public Layer {
 public:
  ConvLstmLayer(std::string name, ConvLstmConfig config)
      : Layer(std::move(name), "ConvLSTM2D"), config_(std::move(config)) {}

  int num_states() const override { return 2; }
  int num_outputs() const override { return recurrent().return_state ? 3 : 1; }
  std::vector<Shape> OutputShapes(absl::Span<const Shape> inputs) const override {
    if (!recurrent().return_state) return {};
    const Shape state = *StateShape(inputs[0]);
    return {SequenceShape(inputs[0], state), state, state};
  }
  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (inputs[0].rank() != 4) {
      return absl::InvalidArgumentError(absl::StrCat(
          "input ", inputs[0].ToString(), " is not a sequence of images [steps, height, width, channels]"));
    }
    CAIRN_ASSIGN_OR_RETURN(const Shape state, StateShape(inputs[0]));
    CAIRN_RETURN_IF_ERROR(Shape::FromUntrusted({inputs[0][0], state[0], state[1], state[2]}).status());
    for (const Shape& given : inputs.subspan(1)) {
      if (given == state) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("initial_state: a state is ", given.ToString(), ", expected ", state.ToString()));
    }
    return recurrent().return_state ? PackedShape(OutputShapes(inputs)) : SequenceShape(inputs[0], state);
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    const int64_t channels = inputs[0][3], units = recurrent().units;
    const auto& [height, width] = config_.input.kernel_size;
    std::vector<VariableSpec> variables = recurrent().Variables(channels, "conv_lstm_cell/");
    variables[0].shape = {height, width, channels, 4 * units};
    variables[1].shape = {height, width, units, 4 * units};
    return variables;
  }
  bool differs_in_training() const override {
    return recurrent().dropout > 0 || recurrent().recurrent_dropout > 0;
  }
  MaskUse mask_use() const override { return MaskUse::kRefuses; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    CAIRN_ASSIGN_OR_RETURN(auto op, ConvLstmOp::Create(name(), config_, params, device));
    if (!recurrent().return_state) return op;
    std::vector<LastState> states = op->last_states();
    return PackedStatesOp::Create(std::move(op), std::move(states), device);
  }

  // ONNX has no such operator: each step has operations of its own.
  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    const Shape input = onnx.ShapeOf(inputs[0]);
    CAIRN_ASSIGN_OR_RETURN(const Shape state, StateShape(input));
    const std::string images = onnx.Add(
        "Reshape", {onnx.ChannelsLast(inputs[0]), onnx.Ints("images", {-1, input[1], input[2], input[3]})});
    std::vector<OnnxVariable> of_inputs = {variables[0]};
    if (variables.size() > 2) of_inputs.push_back(variables[2]);
    const OnnxValue projected = AddOnnxConv(
        config_.input, of_inputs, onnx.FromChannelsLast(images, Shape(input.dims().subspan(1))), onnx);
    const std::string gates =
        onnx.Add("Reshape", {onnx.ChannelsFirst(projected),
                             onnx.Ints("steps", {-1, input[0], 4 * state[2], state[0], state[1]})});
    States states;
    if (inputs.size() > 1) states = {onnx.ChannelsFirst(inputs[1]), onnx.ChannelsFirst(inputs[2])};
    std::vector<std::string> sequence;
    for (int64_t index = 0; index < input[0]; ++index) {
      const int64_t step = recurrent().go_backwards ? input[0] - 1 - index : index;
      const std::string z =
          onnx.Add("Squeeze", {onnx.Add("Gather", {gates, onnx.Ints("step", {step})}, {{"axis", int64_t{1}}}),
                               onnx.Ints("axis", {1})});
      states = StepInOnnx(z, states, state, variables[1], onnx);
      sequence.push_back(states.h);
    }
    return OutputsInOnnx(sequence, states, input, state, onnx);
  }

 private:
  struct States {
    std::string h, c;  // channels first; empty: 0
  };

  const RecurrentConfig& recurrent() const { return config_.recurrent; }
  // For an input that OutputShape() accepts up to its images.
  absl::StatusOr<Shape> StateShape(const Shape& input) const {
    return config_.StateShape(Shape(input.dims().subspan(1)));
  }
  Shape SequenceShape(const Shape& input, const Shape& state) const {
    return recurrent().return_sequences ? Shape({input[0], state[0], state[1], state[2]}) : state;
  }

  static std::string Activated(const ActivationSpec& activation, const std::string& x, const Shape& shape,
                               OnnxBuilder& onnx) {
    return onnx.ChannelsFirst(OnnxActivation(activation, onnx.FromChannelsFirst(x, shape), onnx));
  }

  States StepInOnnx(std::string z, const States& before, const Shape& state, const OnnxVariable& kernel,
                    OnnxBuilder& onnx) const {
    if (!before.h.empty()) {
      const OnnxValue product =
          AddOnnxConv(config_.OfStates(), {&kernel, 1}, onnx.FromChannelsFirst(before.h, state), onnx);
      z = onnx.Add("Add", {z, onnx.ChannelsFirst(product)});
    }
    const std::vector<std::string> gates = onnx.AddWithOutputs(4, "Split", {z}, {{"axis", int64_t{1}}});
    const auto gate = [&](size_t i) {
      return Activated(recurrent().recurrent_activation, gates[i], state, onnx);
    };
    States after;
    after.c = onnx.Add("Mul", {gate(0), Activated(recurrent().activation, gates[2], state, onnx)});
    if (!before.c.empty()) after.c = onnx.Add("Add", {onnx.Add("Mul", {gate(1), before.c}), after.c});
    after.h = onnx.Add("Mul", {gate(3), Activated(recurrent().activation, after.c, state, onnx)});
    return after;
  }

  OnnxValue OutputsInOnnx(const std::vector<std::string>& sequence, const States& last, const Shape& input,
                          const Shape& state, OnnxBuilder& onnx) const {
    const auto channels_last = [&](const std::string& x) {
      return onnx.ChannelsLast(onnx.FromChannelsFirst(x, state));
    };
    if (!recurrent().return_sequences && !recurrent().return_state)
      return onnx.FromChannelsFirst(last.h, state);
    std::string y = channels_last(last.h);
    if (recurrent().return_sequences) {
      std::vector<std::string> steps;
      for (const std::string& h : sequence)
        steps.push_back(onnx.Add("Unsqueeze", {channels_last(h), onnx.Ints("axis", {1})}));
      y = onnx.Add("Concat", std::move(steps), {{"axis", int64_t{1}}});
    }
    if (!recurrent().return_state) return onnx.FromChannelsLast(y, SequenceShape(input, state));
    std::vector<std::string> parts;
    for (const std::string& part : {y, channels_last(last.h), channels_last(last.c)})
      parts.push_back(onnx.Add("Flatten", {part}));
    return onnx.FromChannelsLast(onnx.Add("Concat", std::move(parts), {{"axis", int64_t{1}}}),
                                 PackedShape({SequenceShape(input, state), state, state}));
  }

  const ConvLstmConfig config_;
};

}  // namespace

std::unique_ptr<Layer> MakeConvLstm2D(std::string name, ConfigReader& config) {
  ConvLstmConfig read = {.input = ReadConvConfig(config),
                         .recurrent = RecurrentConfig::Read("ConvLSTM2D", config)};
  read.input.activation = {};
  read.input.filters = 4 * read.recurrent.units;
  return std::make_unique<ConvLstmLayer>(std::move(name), std::move(read));
}

}  // namespace cairn::nn
