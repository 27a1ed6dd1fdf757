#include "nn/layers/recurrent/recurrent_layer.h"

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "nn/layer/keras_class.h"
#include "nn/layers/layers.h"
#include "nn/layers/recurrent/packed_states_op.h"
#include "nn/layers/recurrent/recurrent_op.h"
#include "nn/layers/select_output.h"

namespace cairn::nn {

Shape RecurrentLayer::SequenceShape(const Shape& input) const {
  return config_.return_sequences ? Shape({input[0], config_.units}) : Shape({config_.units});
}

std::vector<Shape> RecurrentLayer::OutputShapes(absl::Span<const Shape> inputs) const {
  if (!config_.return_state) return {};
  std::vector<Shape> shapes(static_cast<size_t>(num_outputs()), Shape({config_.units}));
  shapes[0] = SequenceShape(inputs[0]);
  return shapes;
}

absl::StatusOr<Shape> RecurrentLayer::OutputShape(absl::Span<const Shape> inputs) const {
  if (inputs[0].rank() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("input ", inputs[0].ToString(), " is not a sequence [steps, channels]"));
  }
  CAIRN_RETURN_IF_ERROR(config_.CheckStates(inputs.subspan(1)));
  return config_.return_state ? PackedShape(OutputShapes(inputs)) : SequenceShape(inputs[0]);
}

std::vector<VariableSpec> RecurrentLayer::Variables(absl::Span<const Shape> inputs) const {
  return config_.Variables(inputs[0][1], absl::StrCat(SnakeCase(class_name()), "_cell/"));
}

absl::StatusOr<std::unique_ptr<LayerOp>> RecurrentLayer::MakeOp(const LayerOpParams& params,
                                                                kernels::Device& device) const {
  CAIRN_ASSIGN_OR_RETURN(
      auto op, RecurrentOp::Create(config_,
                                   {.input = params.inputs[0],
                                    .has_first_states = params.inputs.size() - params.masked.size() > 1,
                                    .needs_input_gradients = params.needs_input_gradients,
                                    .name = name()},
                                   device));
  if (!config_.return_state) return op;
  std::vector<LastState> states = op->last_states();
  return PackedStatesOp::Create(std::move(op), std::move(states), device);
}

std::unique_ptr<Layer> MakeGru(std::string name, ConfigReader& config) {
  return std::make_unique<RecurrentLayer>(std::move(name), "GRU", RecurrentConfig::Read("GRU", config));
}

std::unique_ptr<Layer> MakeLstm(std::string name, ConfigReader& config) {
  return std::make_unique<RecurrentLayer>(std::move(name), "LSTM", RecurrentConfig::Read("LSTM", config));
}

std::unique_ptr<Layer> MakeSimpleRnn(std::string name, ConfigReader& config) {
  return std::make_unique<RecurrentLayer>(std::move(name), "SimpleRNN",
                                          RecurrentConfig::Read("SimpleRNN", config));
}

}  // namespace cairn::nn
