// MultiHeadAttention, GroupQueryAttention, and those of keras_hub: query, key and value are projected to heads, and the
// outputs of all heads are projected to one vector.
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/attention/attention_call.h"
#include "nn/layers/attention/attention_onnx.h"
#include "nn/layers/attention/cached_attention_op.h"
#include "nn/layers/attention/projected_attention_op.h"
#include "nn/layers/attention/rotary.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

// The masks of time steps of the inputs that hide pairs of a query and a key.
enum class StepMaskUse { kNone, kKeys, kQueriesAndKeys };

struct MultiHeadConfig {
  int64_t heads, key_heads, width, value_width;
  int64_t output_width;  // 0: that of the query
  bool use_bias;
  float dropout;
  InitializerSpec kernel_initializer, bias_initializer;
  RegularizerSpec kernel_regularizer, bias_regularizer;
  std::optional<Constraint> kernel_constraint, bias_constraint;
  StepMaskUse step_masks;
  std::vector<double> rotary;  // the frequencies by which queries and keys are rotated; empty: they are not
};

class MultiHeadAttentionLayer final : public Layer {
 public:
  MultiHeadAttentionLayer(std::string name, std::string class_name, MultiHeadConfig config,
                          AttentionCall call)
      : Layer(std::move(name), std::move(class_name)), config_(std::move(config)), call_(std::move(call)) {}

  bool merges() const override { return true; }

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_RETURN_IF_ERROR(call_.CheckShapes(inputs));
    return Shape{inputs[0][0], OutputWidth(inputs)};
  }

  // The kernel and bias of each projection, in Keras' order: query, key, value, attention_output.
  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    const MultiHeadConfig& c = config_;
    std::vector<VariableSpec> variables;
    const auto add = [&](const std::string& projection, int64_t fan_in, const Shape& kernel,
                         const Shape& bias) {
      variables.push_back({.name = projection + "/kernel",
                           .shape = kernel,
                           .initializer = ResolveFan(c.kernel_initializer, {fan_in, bias.num_elements()}),
                           .regularizer = c.kernel_regularizer,
                           .constraint = c.kernel_constraint});
      if (!c.use_bias) return;
      variables.push_back({.name = projection + "/bias",
                           .shape = bias,
                           .initializer = c.bias_initializer,
                           .regularizer = c.bias_regularizer,
                           .constraint = c.bias_constraint});
    };
    const auto add_heads = [&](const std::string& projection, size_t input, int64_t heads, int64_t width) {
      const int64_t from = inputs[input][1];
      add(projection, from, {from, heads, width}, {heads, width});
    };
    const int64_t output = OutputWidth(inputs);
    add_heads("query", 0, c.heads, c.width);
    add_heads("key", KeyInput(inputs.size()), c.key_heads, c.width);
    add_heads("value", 1, c.key_heads, c.value_width);
    add("attention_output", c.heads * c.value_width, {c.heads, c.value_width, output}, {output});
    return variables;
  }

  bool differs_in_training() const override { return config_.dropout > 0; }
  MaskUse mask_use() const override { return MaskUse::kTakesAndPassesFirst; }
  StepUse step_use(absl::Span<const Shape>, absl::Span<const DecodedInput> kinds) const override {
    return call_.IsDecoded(kinds) ? StepUse::kDecodes : StepUse::kMixes;
  }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const auto own = params.inputs.first(params.inputs.size() - params.masked.size());
    std::vector<Shape> shapes;
    for (const kernels::TensorDesc& input : own) shapes.emplace_back(input.shape.dims().subspan(1));
    CAIRN_ASSIGN_OR_RETURN(const StepMaskInputs masks, MasksOfInputs(own.size(), params.masked));
    const ProjectedAttentionOp::Args args = {.inputs = own,
                                             .key = KeyInput(own.size()),
                                             .step_masks = masks,
                                             .call = call_,
                                             .attention = AttentionOf(params.inputs[0].shape[0], shapes),
                                             .rotary = config_.rotary,
                                             .output_width = OutputWidth(shapes),
                                             .use_bias = config_.use_bias,
                                             .needs_input_gradients = params.needs_input_gradients};
    if (params.decoding != nullptr) return CachedAttentionOp::Create(args, *params.decoding, device);
    return ProjectedAttentionOp::Create(args, device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    const auto own = inputs.first(inputs.size() - onnx.masked().size());
    std::vector<Shape> shapes;
    for (const OnnxValue input : own) shapes.push_back(onnx.ShapeOf(input));
    const kernels::AttentionParams attention = AttentionOf(0, shapes);
    size_t next = 0;
    // x [batch, length, width] times the next kernel as a matrix, plus the next bias.
    const auto project = [&](const std::string& x, int64_t from, int64_t to) {
      std::string y = onnx.Add("MatMul", {x, onnx.Weights(variables[next++], {}, {from, to})});
      if (config_.use_bias) y = onnx.Add("Add", {y, onnx.Weights(variables[next++], {}, {to})});
      return y;
    };
    const auto project_input = [&](size_t input, int64_t to) {
      return project(onnx.ChannelsLast(inputs[input]), shapes[input][1], to);
    };
    const auto rotate = [&](std::string x, int64_t steps, int64_t heads) {
      return config_.rotary.empty() ? x : RotaryInOnnx(x, steps, heads, config_.rotary, onnx);
    };
    const std::string q =
        rotate(project_input(0, config_.heads * config_.width), attention.queries, config_.heads);
    const std::string k = rotate(project_input(KeyInput(own.size()), config_.key_heads * config_.width),
                                 attention.keys, config_.key_heads);
    const std::string v = project_input(1, config_.key_heads * config_.value_width);
    std::vector<std::string> masks = MasksInOnnx(call_, own, onnx);
    CAIRN_ASSIGN_OR_RETURN(const StepMaskInputs of_steps, MasksOfInputs(own.size(), onnx.masked()));
    if (of_steps.query.has_value()) masks.push_back(QueryMaskInOnnx(inputs[*of_steps.query], onnx));
    if (of_steps.key.has_value()) masks.push_back(KeyMaskInOnnx(inputs[*of_steps.key], onnx));
    const std::string attended = AttentionInOnnx(attention, {q, k, v}, std::move(masks), onnx);
    const Shape output = {shapes[0][0], OutputWidth(shapes)};
    return onnx.FromChannelsLast(project(attended, config_.heads * config_.value_width, output[1]), output);
  }

 private:
  // The masks of time steps, which follow `own` inputs. INVALID_ARGUMENT if two masks hide keys, or queries.
  absl::StatusOr<StepMaskInputs> MasksOfInputs(size_t own, absl::Span<const int> masked) const {
    StepMaskInputs inputs;
    for (size_t i = 0; i < masked.size() && config_.step_masks != StepMaskUse::kNone; ++i) {
      const auto input = static_cast<size_t>(masked[i]);
      if (input == 0 && config_.step_masks == StepMaskUse::kQueriesAndKeys && !call_.Find("query_mask"))
        inputs.query = own + i;
      if (input == 0 || (input > 1 && input != KeyInput(own))) continue;
      if (config_.step_masks == StepMaskUse::kKeys && call_.Find("key_mask")) continue;  // which replaces it
      if (inputs.key.has_value() || call_.Find("value_mask") || call_.Find("key_mask")) {
        return absl::InvalidArgumentError(
            "its keys have a mask of time steps (of mask_zero or Masking) and another mask, and only one is "
            "supported: multiply them");
      }
      inputs.key = own + i;
    }
    return inputs;
  }
  int64_t OutputWidth(absl::Span<const Shape> inputs) const {
    return config_.output_width > 0 ? config_.output_width : inputs[0][1];
  }
  size_t KeyInput(size_t inputs) const { return call_.key() < inputs ? call_.key() : 1; }
  kernels::AttentionParams AttentionOf(int64_t batch, absl::Span<const Shape> inputs) const {
    return {.batch = batch,
            .queries = inputs[0][0],
            .keys = inputs[1][0],
            .heads = config_.heads,
            .key_heads = config_.key_heads,
            .width = config_.width,
            .value_width = config_.value_width,
            .scale = 1.0f / std::sqrt(static_cast<float>(config_.width)),
            .causal = call_.causal,
            .dropout = config_.dropout,
            .stream = StreamOf(absl::StrCat("dropout/", name()))};
  }

  const MultiHeadConfig config_;
  const AttentionCall call_;
};

// Reads what both layers have.
void ReadCommon(ConfigReader& config, MultiHeadConfig& read) {
  read.use_bias = config.Bool("use_bias", true);
  read.dropout = static_cast<float>(config.Number("dropout", 0));
  if (!(read.dropout >= 0 && read.dropout < 1))
    config.Fail("dropout", absl::StrCat(read.dropout, " is not in [0, 1)"));
  read.kernel_initializer = config.Initializer("kernel_initializer", "glorot_uniform");
  read.bias_initializer = config.Initializer("bias_initializer", "zeros");
  read.kernel_regularizer = config.Regularizer("kernel_regularizer");
  read.bias_regularizer = config.Regularizer("bias_regularizer");
  config.Refuse("use_gate", false);
  read.kernel_constraint = config.ReadConstraint("kernel_constraint");
  read.bias_constraint = config.ReadConstraint("bias_constraint");
  config.RefuseUnlessNull({"activity_regularizer", "sliding_window"});
  // All attention is computed as flash attention.
  config.Ignore({"flash_attention", "seed"});
}

}  // namespace

namespace {

std::unique_ptr<Layer> MakeMultiHead(std::string name, std::string class_name, StepMaskUse step_masks,
                                     ConfigReader& config) {
  MultiHeadConfig read = {.step_masks = step_masks};
  read.heads = read.key_heads = config.PositiveInt("num_heads");
  read.width = config.PositiveInt("key_dim");
  read.value_width = config.PositiveInt("value_dim", read.width);
  const std::vector<int64_t> output = config.Ints("output_shape", std::vector<int64_t>());
  if (output.size() > 1) config.Fail("output_shape", "several axes are not supported, only one");
  read.output_width = output.empty() ? 0 : output[0];
  if (read.output_width < 0) config.Fail("output_shape", absl::StrCat(read.output_width, " is negative"));
  if (config.Ints("attention_axes", {{1}}) != std::vector<int64_t>{1})
    config.Fail("attention_axes", "only the axis after the batch is supported, [1]");
  ReadCommon(config, read);
  AttentionCall call = AttentionCall::Read(config);
  if (call.Find("query_mask").has_value())
    config.Fail("query_mask", "Keras ignores it here, so it is not supported: leave it out");
  return std::make_unique<MultiHeadAttentionLayer>(std::move(name), std::move(class_name), std::move(read),
                                                   std::move(call));
}

}  // namespace

std::unique_ptr<Layer> MakeMultiHeadAttention(std::string name, ConfigReader& config) {
  return MakeMultiHead(std::move(name), "MultiHeadAttention", StepMaskUse::kQueriesAndKeys, config);
}

// The layer of keras_hub does not see its inputs' masks, but a TransformerDecoder gives it that of the keys.
std::unique_ptr<Layer> MakeCachedMultiHeadAttention(std::string name, ConfigReader& config) {
  const bool in_decoder = config.Bool("masks_keys", false);
  return MakeMultiHead(std::move(name), "CachedMultiHeadAttention",
                       in_decoder ? StepMaskUse::kKeys : StepMaskUse::kNone, config);
}

// The attention within a LlamaTransformerDecoder of keras_hub.
std::unique_ptr<Layer> MakeLlamaAttention(std::string name, ConfigReader& config) {
  MultiHeadConfig read = {.step_masks = StepMaskUse::kKeys};
  read.heads = config.PositiveInt("num_query_heads");
  read.key_heads = config.PositiveInt("num_key_value_heads");
  read.width = read.value_width = config.PositiveInt("head_dim");
  if (read.heads % read.key_heads != 0) {
    config.Fail("num_query_heads",
                absl::StrCat(read.heads, " is not a multiple of num_key_value_heads, ", read.key_heads));
  }
  if (read.width % 2 != 0) config.Fail("head_dim", absl::StrCat(read.width, " is odd and cannot be rotated"));
  read.rotary = ReadLlamaFrequencies(read.width, config);
  read.kernel_initializer = config.Initializer("kernel_initializer", "glorot_uniform");
  AttentionCall call = AttentionCall::Read(config);
  return std::make_unique<MultiHeadAttentionLayer>(std::move(name), "LlamaAttention", std::move(read),
                                                   std::move(call));
}

std::unique_ptr<Layer> MakeGroupQueryAttention(std::string name, ConfigReader& config) {
  MultiHeadConfig read = {.step_masks = StepMaskUse::kQueriesAndKeys};
  read.heads = config.PositiveInt("num_query_heads");
  read.key_heads = config.PositiveInt("num_key_value_heads");
  if (read.heads % read.key_heads != 0) {
    config.Fail("num_query_heads",
                absl::StrCat(read.heads, " is not a multiple of num_key_value_heads, ", read.key_heads));
  }
  read.width = read.value_width = config.PositiveInt("head_dim");
  ReadCommon(config, read);
  AttentionCall call = AttentionCall::Read(config);
  return std::make_unique<MultiHeadAttentionLayer>(std::move(name), "GroupedQueryAttention", std::move(read),
                                                   std::move(call));
}

}  // namespace cairn::nn
