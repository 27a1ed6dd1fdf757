// Bidirectional: two recurrent layers over the same sequence, one from each end.
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/inner_layer.h"
#include "nn/layers/layers.h"
#include "nn/layers/recurrent/packed_states_op.h"
#include "nn/layers/recurrent/recurrent_layer.h"
#include "nn/layers/recurrent/recurrent_op.h"
#include "nn/layers/select_output.h"

namespace cairn::nn {
namespace {

// How the outputs are merged: side by side without a kind.
struct MergeMode {
  std::optional<kernels::MergeKind> kind{};
  const char* onnx_op = "Concat";
  bool halves = false;    // an average, in ONNX
  bool separate = false;  // not at all: the layer has two outputs

  // Whether both directions write columns of the same rows.
  bool joins_columns() const { return !kind.has_value() && !separate; }
};

class BidirectionalOp final : public LayerOp {
 public:
  // Both directions read `input`. Without a merge they write columns of the same rows. If they are separate, output()
  // is that of the forward direction.
  static absl::StatusOr<std::unique_ptr<BidirectionalOp>> Create(std::unique_ptr<RecurrentOp> forward,
                                                                 std::unique_ptr<RecurrentOp> backward,
                                                                 const MergeMode& mode,
                                                                 const kernels::TensorDesc& input,
                                                                 kernels::Device& device) {
    std::unique_ptr<BidirectionalOp> op(new BidirectionalOp(forward->output()));
    op->states_ = forward->num_first_states();
    CAIRN_ASSIGN_OR_RETURN(op->add_, device.ops().MakeAdd(input, 2));
    op->directions_[0].op = std::move(forward);
    op->directions_[1].op = std::move(backward);
    if (mode.kind.has_value()) {
      CAIRN_ASSIGN_OR_RETURN(op->merge_, device.ops().MakeBroadcastMerge(
                                             {.kind = *mode.kind, .inputs = {op->output_, op->output_}}));
    }
    for (Direction& direction : op->directions_) {
      CAIRN_ASSIGN_OR_RETURN(direction.input_gradient,
                             device.Allocate(input.num_floats(), "gradient of a direction"));
      const bool is_backward = &direction == &op->directions_[1];
      if (op->merge_ == nullptr && !(mode.separate && is_backward)) continue;
      const int64_t floats = direction.op->output().num_floats();
      CAIRN_ASSIGN_OR_RETURN(direction.output, device.Allocate(floats, "output of a direction"));
      CAIRN_ASSIGN_OR_RETURN(direction.output_gradient, device.Allocate(floats, "gradient of a direction"));
    }
    return op;
  }

  const kernels::TensorDesc& output() const override { return output_; }
  // The other output of separate directions, and its gradient.
  LastState backward_output() const {
    const Direction& backward = directions_[1];
    const kernels::TensorDesc& y = backward.op->output();
    const int64_t batch = y.shape[0];
    return {y.WithShape({batch, y.shape.num_elements() / batch}), backward.output->data(),
            backward.output_gradient->data()};
  }

  absl::Status Forward(const ForwardArgs& args) override {
    for (size_t i = 0; i < 2; ++i) {
      ForwardArgs direction = args;
      const std::vector<const float*> inputs = InputsOf(i, args.inputs);
      direction.inputs = inputs;
      direction.variables = PartOf(i, args.variables);
      if (directions_[i].output != nullptr) direction.output = directions_[i].output->data();
      CAIRN_RETURN_IF_ERROR(directions_[i].op->Forward(direction));
    }
    if (merge_ == nullptr) return absl::OkStatus();
    return merge_->Forward({directions_[0].output->data(), directions_[1].output->data()}, args.output);
  }

  absl::Status Backward(const BackwardArgs& args) override {
    if (merge_ != nullptr) {
      CAIRN_RETURN_IF_ERROR(merge_->Backward(
          {directions_[0].output->data(), directions_[1].output->data()}, args.output_gradient,
          {directions_[0].output_gradient->data(), directions_[1].output_gradient->data()}));
    }
    float* const dx = args.input_gradients[0];
    for (size_t i = 0; i < 2; ++i) {
      const std::vector<const float*> inputs = InputsOf(i, args.inputs);
      std::vector<float*> input_gradients = InputsOf(i, args.input_gradients);
      if (dx != nullptr) input_gradients[0] = directions_[i].input_gradient->data();
      const bool has_own = directions_[i].output != nullptr;
      CAIRN_RETURN_IF_ERROR(directions_[i].op->Backward(
          {.inputs = inputs,
           .variables = PartOf(i, args.variables),
           .output = has_own ? directions_[i].output->data() : args.output,
           .output_gradient = has_own ? directions_[i].output_gradient->data() : args.output_gradient,
           .input_gradients = input_gradients,
           .gradients = PartOf(i, args.gradients)}));
    }
    if (dx == nullptr) return absl::OkStatus();
    return add_->Forward({directions_[0].input_gradient->data(), directions_[1].input_gradient->data()}, dx);
  }

 private:
  struct Direction {
    std::unique_ptr<RecurrentOp> op;
    std::unique_ptr<kernels::DeviceMemory> output, output_gradient;  // null if in the layer's output
    std::unique_ptr<kernels::DeviceMemory> input_gradient;
  };

  explicit BidirectionalOp(kernels::TensorDesc output) : output_(std::move(output)) {}
  // The inputs of a direction: the sequence, its first states, and the mask if there is one.
  template <typename Pointer>
  std::vector<Pointer> InputsOf(size_t direction, absl::Span<Pointer const> all) const {
    std::vector<Pointer> inputs = {all[0]};
    const auto of_direction = all.subspan(1 + direction * states_, states_),
               masks = all.subspan(1 + 2 * states_);
    inputs.insert(inputs.end(), of_direction.begin(), of_direction.end());
    inputs.insert(inputs.end(), masks.begin(), masks.end());
    return inputs;
  }
  // The variables of a direction: each has half of them.
  template <typename Pointer>
  static absl::Span<Pointer> PartOf(size_t direction, absl::Span<Pointer> all) {
    return all.subspan(direction * all.size() / 2, all.size() / 2);
  }

  const kernels::TensorDesc output_;
  size_t states_ = 0;        // first states of each direction
  Direction directions_[2];  // forward, backward
  std::unique_ptr<kernels::NaryOp> merge_, add_;
};

class BidirectionalLayer final : public Layer {
 public:
  BidirectionalLayer(std::string name, std::unique_ptr<RecurrentLayer> forward,
                     std::unique_ptr<RecurrentLayer> backward, MergeMode mode)
      : Layer(std::move(name), "Bidirectional"),
        forward_(std::move(forward)),
        backward_(std::move(backward)),
        mode_(mode) {}

  // Layers with other states than each other take none.
  int num_states() const override {
    const int states = forward_->num_states();
    return states == backward_->num_states() ? 2 * states : 0;
  }
  int num_outputs() const override {
    return (mode_.separate ? 2 : 1) + (forward_->config().return_state ? num_states() : 0);
  }
  std::vector<Shape> OutputShapes(absl::Span<const Shape> inputs) const override {
    if (num_outputs() == 1) return {};
    std::vector<Shape> shapes = {MergedShape(inputs[0])};
    if (mode_.separate) shapes.push_back(backward_->SequenceShape(inputs[0]));
    if (!forward_->config().return_state) return shapes;
    for (const RecurrentLayer* const layer : {forward_.get(), backward_.get()})
      shapes.insert(shapes.end(), static_cast<size_t>(layer->num_states()), Shape({layer->config().units}));
    return shapes;
  }
  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_RETURN_IF_ERROR(forward_->OutputShape(inputs.first(1)).status());
    if (inputs.size() > 1) {
      const auto states = static_cast<size_t>(forward_->num_states());
      CAIRN_RETURN_IF_ERROR(forward_->config().CheckStates(inputs.subspan(1, states)));
      CAIRN_RETURN_IF_ERROR(backward_->config().CheckStates(inputs.subspan(1 + states)));
    }
    return num_outputs() == 1 ? MergedShape(inputs[0]) : PackedShape(OutputShapes(inputs));
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    std::vector<VariableSpec> variables;
    for (const RecurrentLayer* const layer : {forward_.get(), backward_.get()}) {
      for (VariableSpec& variable : layer->Variables(inputs)) {
        variable.name = absl::StrCat(layer->name(), "/", variable.name);
        variables.push_back(std::move(variable));
      }
    }
    return variables;
  }
  bool differs_in_training() const override {
    return forward_->differs_in_training() || backward_->differs_in_training();
  }
  // Both of two outputs would have the mask, which only a first output can have (MakeSelectOutput).
  MaskUse mask_use() const override { return mode_.separate ? MaskUse::kRefuses : forward_->mask_use(); }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    CAIRN_ASSIGN_OR_RETURN(auto forward, MakeDirection(*forward_, 0, params, device));
    CAIRN_ASSIGN_OR_RETURN(auto backward,
                           MakeDirection(*backward_, forward_->config().units, params, device));
    std::vector<LastState> states = forward->last_states();
    for (const LastState& state : backward->last_states()) states.push_back(state);
    CAIRN_ASSIGN_OR_RETURN(auto op, BidirectionalOp::Create(std::move(forward), std::move(backward), mode_,
                                                            params.inputs[0], device));
    if (num_outputs() == 1) return op;
    if (mode_.separate) states.insert(states.begin(), op->backward_output());
    return PackedStatesOp::Create(std::move(op), std::move(states), device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    if (!onnx.masked().empty())
      return absl::UnimplementedError("ONNX's recurrent operators take no mask of time steps");
    const size_t half = variables.size() / 2, states = (inputs.size() - 1) / 2;
    CAIRN_ASSIGN_OR_RETURN(
        RecurrentLayer::OnnxOutputs outputs,
        forward_->OutputsInOnnx(inputs[0], inputs.subspan(1, states), variables.first(half),
                                /*in_order=*/false, onnx));
    CAIRN_ASSIGN_OR_RETURN(const RecurrentLayer::OnnxOutputs backward,
                           backward_->OutputsInOnnx(inputs[0], inputs.subspan(1 + states),
                                                    variables.subspan(half), /*in_order=*/false, onnx));
    std::vector<OnnxAttribute> attributes;
    if (mode_.joins_columns()) attributes = {{"axis", int64_t{-1}}};
    if (mode_.separate) {
      outputs.states.insert(outputs.states.begin(), onnx.Add("Flatten", {backward.y}));
    } else {
      outputs.y = onnx.Add(mode_.onnx_op, {outputs.y, backward.y}, std::move(attributes));
    }
    if (mode_.halves) outputs.y = onnx.Add("Mul", {outputs.y, onnx.Scalar("half", 0.5f)});
    outputs.states.insert(outputs.states.end(), backward.states.begin(), backward.states.end());
    std::vector<Shape> shapes;
    for (const OnnxValue input : inputs) shapes.push_back(onnx.ShapeOf(input));
    CAIRN_ASSIGN_OR_RETURN(const Shape output, OutputShape(shapes));
    return PackInOnnx(outputs, output, onnx);
  }

 private:
  int64_t width() const {
    const int64_t units = forward_->config().units;
    return mode_.joins_columns() ? units + backward_->config().units : units;
  }

  // The shape of the merged output for an input of this shape.
  Shape MergedShape(const Shape& input) const {
    const Shape output = forward_->SequenceShape(input);
    Shape merged(output.dims().first(output.dims().size() - 1));
    merged.Append(width());
    return merged;
  }

  // `column`: where its output begins in the rows of both.
  absl::StatusOr<std::unique_ptr<RecurrentOp>> MakeDirection(const RecurrentLayer& layer, int64_t column,
                                                             const LayerOpParams& params,
                                                             kernels::Device& device) const {
    RecurrentConfig config = layer.config();
    config.zero_output_for_mask = config.return_sequences;  // as Keras' Bidirectional sets it
    RecurrentOpParams of_direction = {.input = params.inputs[0],
                                      .has_first_states = params.inputs.size() - params.masked.size() > 1,
                                      .needs_input_gradients = params.needs_input_gradients,
                                      .in_order = false,
                                      .name = absl::StrCat(name(), "/", layer.name())};
    if (mode_.joins_columns()) {
      of_direction.y_width = width();
      of_direction.y_column = column;
    }
    return RecurrentOp::Create(config, of_direction, device);
  }

  const std::unique_ptr<RecurrentLayer> forward_, backward_;
  const MergeMode mode_;
};

MergeMode ReadMergeMode(ConfigReader& config) {
  if (config.Has("merge_mode") && config.Raw("merge_mode").is_null()) return {.separate = true};
  const std::string mode = config.Choice("merge_mode", {"concat", "sum", "mul", "ave"}, "concat");
  if (mode == "sum") return {kernels::MergeKind::kAdd, "Add"};
  if (mode == "mul") return {kernels::MergeKind::kMultiply, "Mul"};
  if (mode == "ave") return {kernels::MergeKind::kAverage, "Add", /*halves=*/true};
  return {};
}

InnerLayerMaker FindRecurrent(absl::string_view class_name) {
  if (class_name == "LSTM") return MakeLstm;
  if (class_name == "GRU") return MakeGru;
  return class_name == "SimpleRNN" ? MakeSimpleRnn : nullptr;
}

// Null after a failure of `config`.
std::unique_ptr<RecurrentLayer> ReadRecurrent(absl::string_view field, ConfigReader& config) {
  return std::unique_ptr<RecurrentLayer>(
      static_cast<RecurrentLayer*>(ReadInnerLayer(field, config, FindRecurrent).release()));
}

// The backward layer of a file without one, as Keras makes it from the forward layer.
std::unique_ptr<RecurrentLayer> ReversedCopy(const RecurrentLayer& forward) {
  RecurrentConfig config = forward.config();
  config.go_backwards = !config.go_backwards;
  const absl::string_view base = absl::StripPrefix(forward.name(), "forward_");
  return std::make_unique<RecurrentLayer>(absl::StrCat("backward_", base), forward.class_name(),
                                          std::move(config));
}

void CheckPair(const RecurrentConfig& forward, const RecurrentConfig& backward, bool merged,
               ConfigReader& config) {
  if (forward.go_backwards || !backward.go_backwards)
    config.Fail("layer", "go_backwards must be false in `layer` and true in `backward_layer`");
  if (forward.return_sequences != backward.return_sequences)
    config.Fail("backward_layer", "return_sequences differs from that of `layer`");
  if (forward.return_state != backward.return_state)
    config.Fail("backward_layer", "return_state differs from that of `layer`");
  if (forward.num_states() != backward.num_states() && forward.return_state)
    config.Fail("backward_layer", "has other states than `layer`, which return_state does not support");
  if (merged && forward.units != backward.units) {
    config.Fail("merge_mode", absl::StrCat("the layers have ", forward.units, " and ", backward.units,
                                           " units, which only concat can merge"));
  }
  if (forward.use_bias != backward.use_bias)
    config.Fail("backward_layer", "use_bias differs from that of `layer`, which is not supported");
}

}  // namespace

std::unique_ptr<Layer> MakeBidirectional(std::string name, ConfigReader& config) {
  const MergeMode mode = ReadMergeMode(config);
  auto forward = ReadRecurrent("layer", config);
  if (forward == nullptr) return nullptr;
  auto backward = config.Raw("backward_layer").is_null() ? ReversedCopy(*forward)
                                                         : ReadRecurrent("backward_layer", config);
  if (backward == nullptr) return nullptr;
  CheckPair(forward->config(), backward->config(), mode.kind.has_value(), config);
  if (backward->name() == forward->name())
    config.Fail("backward_layer", absl::StrCat("both layers are named '", forward->name(), "'"));
  return std::make_unique<BidirectionalLayer>(std::move(name), std::move(forward), std::move(backward), mode);
}

}  // namespace cairn::nn
