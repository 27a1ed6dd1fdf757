#include "nn/layers/recurrent/recurrent_layer.h"

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "nn/layer/keras_class.h"
#include "nn/layers/layers.h"
#include "nn/layers/recurrent/recurrent_op.h"

namespace cairn::nn {

absl::StatusOr<Shape> RecurrentLayer::OutputShape(absl::Span<const Shape> inputs) const {
  if (inputs[0].rank() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("input ", inputs[0].ToString(), " is not a sequence [steps, channels]"));
  }
  return config_.return_sequences ? Shape({inputs[0][0], config_.units}) : Shape({config_.units});
}

std::vector<VariableSpec> RecurrentLayer::Variables(absl::Span<const Shape> inputs) const {
  return config_.Variables(inputs[0][1], absl::StrCat(SnakeCase(class_name()), "_cell/"));
}

absl::StatusOr<std::unique_ptr<LayerOp>> RecurrentLayer::MakeOp(const LayerOpParams& params,
                                                                kernels::Device& device) const {
  return RecurrentOp::Create(
      config_,
      {.input = params.inputs[0], .needs_input_gradients = params.needs_input_gradients, .name = name()},
      device);
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
