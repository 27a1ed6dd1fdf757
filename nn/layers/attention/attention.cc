// Attention and AdditiveAttention: of one head, without projections.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/attention/additive_scores.h"
#include "nn/layers/attention/attention_call.h"
#include "nn/layers/attention/attention_onnx.h"
#include "nn/layers/attention/projected_attention_op.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"
#include "nn/layers/typed_parameter.h"

namespace cairn::nn {
namespace {

// x times a variable of one element, in the type of x.
class ScaledInput {
 public:
  static absl::StatusOr<std::unique_ptr<ScaledInput>> Create(const kernels::TensorDesc& x,
                                                             kernels::Device& device) {
    auto made = std::make_unique<ScaledInput>();
    const kernels::TensorDesc scale = x.WithShape({1, 1, 1});
    CAIRN_ASSIGN_OR_RETURN(
        made->multiply_,
        device.ops().MakeBroadcastMerge({.kind = kernels::MergeKind::kMultiply, .inputs = {x, scale}}));
    CAIRN_ASSIGN_OR_RETURN(made->scale_, TypedParameter::Create(scale, device));
    for (auto* memory : {&made->output_, &made->gradient_}) {
      CAIRN_ASSIGN_OR_RETURN(*memory, device.Allocate(x.num_floats(), "scaled query"));
    }
    return made;
  }

  absl::Status Forward(const float* x, const float* scale) {
    CAIRN_ASSIGN_OR_RETURN(const float* const typed, scale_.Load(scale));
    return multiply_->Forward({x, typed}, output_->data());
  }
  absl::Status Backward(const float* x, float* dx, float* dscale) {
    CAIRN_RETURN_IF_ERROR(
        multiply_->Backward({x, scale_.values()}, gradient_->data(), {dx, scale_.Target(dscale)}));
    return scale_.StoreGradient(dscale);
  }
  const float* output() const { return output_->data(); }
  float* gradient() const { return gradient_->data(); }

 private:
  std::unique_ptr<kernels::NaryOp> multiply_;
  TypedParameter scale_;
  std::unique_ptr<kernels::DeviceMemory> output_, gradient_;
};

// How a layer computes scores: products of queries and keys, or additive ones, with a scale that is a variable or not.
struct Scores {
  bool additive = false, use_scale = false;
};

// Variables: the scale, if there is one.
class AttentionOp final : public LayerOp {
 public:
  AttentionOp(const kernels::TensorDesc& query, const kernels::AttentionParams& params,
              const AttentionCall& call, size_t key, kernels::Device& device)
      : output_(query.WithShape({params.batch, params.queries, params.value_width})),
        call_(call),
        key_(key),
        device_(device) {}

  absl::Status Prepare(const LayerOpParams& params, const kernels::AttentionParams& attention,
                       const Scores& scores) {
    CAIRN_ASSIGN_OR_RETURN(attention_, device_.ops().MakeAttention(attention));
    if (scores.additive) {
      CAIRN_ASSIGN_OR_RETURN(additive_,
                             AdditiveScores::Create(params.inputs[0], params.inputs[key_], device_));
    } else if (scores.use_scale) {
      CAIRN_ASSIGN_OR_RETURN(scaled_, ScaledInput::Create(params.inputs[0], device_));
    }
    // The kernel always writes dq, dk and dv. If the value is also the key, dk and dv are added.
    if (key_ == 1) {
      CAIRN_ASSIGN_OR_RETURN(add_, device_.ops().MakeAdd(params.inputs[1], 2));
    }
    const size_t readers[] = {0, 1, key_};
    for (size_t i = 0; i < std::size(readers); ++i) {
      CAIRN_ASSIGN_OR_RETURN(
          spare_[i], device_.Allocate(params.inputs[readers[i]].num_floats(), "gradient of an input"));
    }
    int64_t longest_mask = 1;
    for (size_t i = 0; i < params.inputs.size(); ++i) {
      floats_.push_back(params.inputs[i].num_floats());
      if (i > 1 && i != key_) longest_mask = std::max(longest_mask, floats_[i]);
    }
    CAIRN_ASSIGN_OR_RETURN(zeros_, device_.Allocate(longest_mask, "gradient of a mask"));
    return absl::OkStatus();
  }

  // Keeps keys and values, if they are steps of the sequence that is decoded.
  absl::Status Decode(const Decoding& decoding, const kernels::AttentionParams& attention) {
    first_ = decoding.first;
    if (decoding.inputs[1] != DecodedInput::kSteps) return absl::OkStatus();
    cache_ = decoding.cache;
    const int64_t widths[] = {attention.width, attention.value_width};
    for (size_t i = 0; i < 2; ++i) {
      copies_[i] = {.batch = attention.batch,
                    .count = attention.queries,
                    .length = attention.keys,
                    .floats = widths[i]};
      CAIRN_RETURN_IF_ERROR(cache_->Reserve(i, attention.keys * widths[i], "keys and values"));
    }
    return absl::OkStatus();
  }

  const kernels::TensorDesc& output() const override { return output_; }
  absl::Status Forward(const ForwardArgs& args) override {
    if (scaled_ != nullptr) CAIRN_RETURN_IF_ERROR(scaled_->Forward(args.inputs[0], args.variables[0]));
    if (additive_ != nullptr)
      CAIRN_RETURN_IF_ERROR(additive_->Forward(OfScores(args.inputs, args.variables)));
    kernels::AttentionInputs inputs = InputsOf(args.inputs);
    if (first_ != nullptr) inputs.first_query = *first_;
    if (cache_ != nullptr) {
      CAIRN_RETURN_IF_ERROR(CopySteps(copies_[0], inputs.k, *first_, cache_->at(0), device_));
      CAIRN_RETURN_IF_ERROR(CopySteps(copies_[1], inputs.v, *first_, cache_->at(1), device_));
      inputs.k = cache_->at(0);
      inputs.v = cache_->at(1);
    }
    return attention_->Forward(inputs, args.training, args.output);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    const auto gradient = [&](size_t input, size_t spare) {
      float* const needed = args.input_gradients[input];
      return needed != nullptr ? needed : spare_[spare]->data();
    };
    float* const dq = gradient(0, 0);
    float* const dv = gradient(1, 1);
    float* const dk = key_ == 1 ? spare_[2]->data() : gradient(key_, 2);
    float* const dscores = additive_ != nullptr ? additive_->gradient()
                           : scaled_ != nullptr ? scaled_->gradient()
                                                : dq;
    CAIRN_RETURN_IF_ERROR(attention_->Backward(InputsOf(args.inputs), args.output, args.output_gradient,
                                               dscores, additive_ == nullptr ? dk : nullptr, dv));
    if (additive_ != nullptr) {
      CAIRN_RETURN_IF_ERROR(additive_->Backward(OfScores(args.inputs, args.variables), dq, dk,
                                                args.gradients.empty() ? nullptr : args.gradients[0]));
    }
    if (scaled_ != nullptr) CAIRN_RETURN_IF_ERROR(scaled_->Backward(args.inputs[0], dq, args.gradients[0]));
    if (key_ == 1) CAIRN_RETURN_IF_ERROR(add_->Forward({dv, dk}, dv));
    for (size_t input = 2; input < args.inputs.size(); ++input) {
      if (input == key_ || args.input_gradients[input] == nullptr) continue;
      CAIRN_RETURN_IF_ERROR(
          device_.CopyOnDevice(zeros_->data(), args.input_gradients[input], floats_[input]));
    }
    return absl::OkStatus();
  }

 private:
  AdditiveScores::Inputs OfScores(absl::Span<const float* const> inputs,
                                  absl::Span<const float* const> variables) const {
    return {.query = inputs[0], .key = inputs[key_], .scale = variables.empty() ? nullptr : variables[0]};
  }
  kernels::AttentionInputs InputsOf(absl::Span<const float* const> inputs) const {
    kernels::AttentionInputs of_attention = MasksOf(call_, inputs);
    of_attention.q = scaled_ == nullptr ? inputs[0] : scaled_->output();
    of_attention.k = inputs[key_];
    if (additive_ != nullptr) {
      of_attention.q = additive_->scores();
      of_attention.k = nullptr;
    }
    of_attention.v = inputs[1];
    return of_attention;
  }

  const kernels::TensorDesc output_;
  const AttentionCall call_;
  const size_t key_;  // the input of the key
  kernels::Device& device_;
  std::unique_ptr<kernels::Attention> attention_;
  std::unique_ptr<ScaledInput> scaled_;       // null: the query as it is
  std::unique_ptr<AdditiveScores> additive_;  // null: products of queries and keys
  std::unique_ptr<kernels::NaryOp> add_;
  std::unique_ptr<kernels::DeviceMemory> spare_[3];  // of query, value and key
  std::unique_ptr<kernels::DeviceMemory> zeros_;
  std::vector<int64_t> floats_;  // [input]
  // While a sequence is decoded: the position of its first step here, and earlier keys and values; else null.
  const int64_t* first_ = nullptr;
  DecodingCache* cache_ = nullptr;
  StepCopy copies_[2] = {};  // of keys and values
};

class AttentionLayer final : public Layer {
 public:
  AttentionLayer(std::string name, const Scores& scores, float dropout, AttentionCall call)
      : Layer(std::move(name), scores.additive ? "AdditiveAttention" : "Attention"),
        scores_(scores),
        dropout_(dropout),
        call_(std::move(call)) {}

  bool merges() const override { return true; }
  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    CAIRN_RETURN_IF_ERROR(call_.CheckShapes(inputs));
    const Shape& key = inputs[KeyInput(inputs.size())];
    if (inputs[0][1] != key[1]) {
      return absl::InvalidArgumentError(absl::StrCat("query ", inputs[0].ToString(), " and key ",
                                                     key.ToString(), " differ in the axis of the ",
                                                     scores_.additive ? "sum" : "product"));
    }
    return Shape{inputs[0][0], inputs[1][1]};
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override {
    if (!scores_.use_scale) return {};
    if (scores_.additive) {
      return {{.name = "scale",
               .shape = {inputs[0][1]},
               .initializer = ParseInitializer("glorot_uniform").value_or(InitializerSpec{})}};
    }
    return {{.name = "scale", .shape = {}, .initializer = {.center = 1}}};
  }

  bool differs_in_training() const override { return dropout_ > 0; }
  MaskUse mask_use() const override { return MaskUse::kRefuses; }
  StepUse step_use(absl::Span<const Shape>, absl::Span<const DecodedInput> kinds) const override {
    return !scores_.additive && call_.IsDecoded(kinds) ? StepUse::kDecodes : StepUse::kMixes;
  }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    std::vector<Shape> shapes;
    for (const kernels::TensorDesc& input : params.inputs) shapes.emplace_back(input.shape.dims().subspan(1));
    kernels::AttentionParams attention = AttentionOf(params.inputs[0].shape[0], shapes);
    attention.type = params.inputs[0].type;
    const Decoding* const decoding = params.decoding;
    if (decoding != nullptr && decoding->inputs[1] == DecodedInput::kSteps) attention.keys = decoding->length;
    auto op =
        std::make_unique<AttentionOp>(params.inputs[0], attention, call_, KeyInput(shapes.size()), device);
    CAIRN_RETURN_IF_ERROR(op->Prepare(params, attention, scores_));
    if (decoding != nullptr) CAIRN_RETURN_IF_ERROR(op->Decode(*decoding, attention));
    return op;
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    std::vector<Shape> shapes;
    for (const OnnxValue input : inputs) shapes.push_back(onnx.ShapeOf(input));
    std::string q = onnx.ChannelsLast(inputs[0]), k = onnx.ChannelsLast(inputs[KeyInput(inputs.size())]);
    const std::string v = onnx.ChannelsLast(inputs[1]);
    if (scores_.additive) {
      q = ScoresInOnnx({q, k, {}}, shapes, variables, onnx);
      k.clear();
    } else if (scores_.use_scale) {
      q = onnx.Add("Mul", {q, onnx.Weights(variables[0])});
    }
    const std::string y =
        AttentionInOnnx(AttentionOf(0, shapes), {q, k, v}, MasksInOnnx(call_, inputs, onnx), onnx);
    return onnx.FromChannelsLast(y, {shapes[0][0], shapes[1][1]});
  }

 private:
  // [batch, queries, keys]
  static std::string ScoresInOnnx(const OnnxProjections& inputs, absl::Span<const Shape> shapes,
                                  absl::Span<const OnnxVariable> variables, OnnxBuilder& onnx) {
    const int64_t queries = shapes[0][0], keys = shapes[1][0], width = shapes[0][1];
    const auto reshaped = [&onnx](const std::string& x, std::vector<int64_t> shape) {
      return onnx.Add("Reshape", {x, onnx.Ints("shape", std::move(shape))});
    };
    const std::string sum = onnx.Add(
        "Add", {reshaped(inputs.q, {-1, queries, 1, width}), reshaped(inputs.k, {-1, 1, keys, width})});
    std::string tanh = onnx.Add("Tanh", {sum});
    if (!variables.empty()) tanh = onnx.Add("Mul", {tanh, onnx.Weights(variables[0])});
    return onnx.Add("ReduceSum", {tanh, onnx.Ints("axes", {-1})}, {{"keepdims", int64_t{0}}});
  }

  size_t KeyInput(size_t inputs) const { return call_.key() < inputs ? call_.key() : 1; }
  kernels::AttentionParams AttentionOf(int64_t batch, absl::Span<const Shape> inputs) const {
    return {.batch = batch,
            .queries = inputs[0][0],
            .keys = inputs[1][0],
            .heads = 1,
            .key_heads = 1,
            .width = scores_.additive ? 0 : inputs[0][1],
            .value_width = inputs[1][1],
            .causal = call_.causal,
            .dropout = dropout_,
            .stream = StreamOf(absl::StrCat("dropout/", name()))};
  }

  const Scores scores_;
  const float dropout_;
  const AttentionCall call_;
};

std::unique_ptr<Layer> ReadAttention(std::string name, const Scores& scores, ConfigReader& config) {
  const auto dropout = static_cast<float>(config.Number("dropout", 0));
  if (!(dropout >= 0 && dropout < 1)) config.Fail("dropout", absl::StrCat(dropout, " is not in [0, 1)"));
  config.Ignore({"seed"});  // the job's --seed is used
  AttentionCall call = AttentionCall::Read(config);
  if (call.Find("query_mask").has_value())
    config.Fail("mask", "a mask of the query is not supported: multiply the output by it");
  return std::make_unique<AttentionLayer>(std::move(name), scores, dropout, std::move(call));
}

}  // namespace

std::unique_ptr<Layer> MakeAttention(std::string name, ConfigReader& config) {
  config.Refuse("score_mode", "dot");
  return ReadAttention(std::move(name), {.use_scale = config.Bool("use_scale", false)}, config);
}

std::unique_ptr<Layer> MakeAdditiveAttention(std::string name, ConfigReader& config) {
  return ReadAttention(std::move(name), {.additive = true, .use_scale = config.Bool("use_scale", true)},
                       config);
}

}  // namespace cairn::nn
