#include "nn/layers/activation.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "kernels/formulas.h"
#include "nn/layer/keras_class.h"
#include "nn/layers/layer_ops.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

using kernels::Activation;

struct Row {
  absl::string_view name;
  ActivationSpec spec;
};
constexpr float kNoLimit = std::numeric_limits<float>::infinity();
constexpr Row kActivations[] = {
    {"elu", {.function = {.kind = Activation::kElu, .slope = 1}}},
    {"exponential", {.function = {.kind = Activation::kExp}}},
    {"gelu", {.function = {.kind = Activation::kGelu}}},
    {"keras_hub>gelu_approximate", {.function = {.kind = Activation::kGeluTanh}}},
    {"keras_nlp>gelu_approximate", {.function = {.kind = Activation::kGeluTanh}}},
    {"hard_sigmoid", {.function = {.kind = Activation::kHardSigmoid}}},
    {"hard_silu", {.function = {.kind = Activation::kHardSilu}}},
    {"hard_swish", {.function = {.kind = Activation::kHardSilu}}},
    {"leaky_relu", {.function = {.kind = Activation::kRelu, .slope = 0.2f, .limit = kNoLimit}}},
    {"linear", {}},
    {"relu", {.function = {.kind = Activation::kRelu, .slope = 0, .limit = kNoLimit}}},
    {"relu6", {.function = {.kind = Activation::kRelu, .slope = 0, .limit = 6}}},
    {"selu", {.function = {.kind = Activation::kSelu}}},
    {"sigmoid", {.function = {.kind = Activation::kSigmoid}}},
    {"silu", {.function = {.kind = Activation::kSilu}}},
    {"softmax", {.softmax = true}},
    {"softplus", {.function = {.kind = Activation::kSoftplus}}},
    {"swish", {.function = {.kind = Activation::kSilu}}},
    {"tanh", {.function = {.kind = Activation::kTanh}}},
};

// Returns the name of an activation. Some versions of Keras 3 write an object: the name in {"class_name":
// "function", "config": "relu"} is "relu". An object with options, {"class_name": "ReLU", "config": {...}},
// has no name here: it is returned unchanged, and the caller reports it as unknown.
const json& NameOf(const json& value) {
  static const json* const kFunction = new json("function");
  if (!value.is_object() || !value.contains("config") || !value.contains("class_name")) return value;
  return value["class_name"] == *kFunction ? value["config"] : value;
}

// An element-wise function whose gradient is that of its output, so that the output may take the place of the input.
class InPlaceOp final : public LayerOp {
 public:
  explicit InPlaceOp(std::unique_ptr<kernels::UnaryOp> op) : op_(std::move(op)) {}
  const kernels::TensorDesc& output() const override { return op_->output(); }
  BackwardReads backward_reads() const override { return {.inputs = false}; }
  bool forwards_in_place() const override { return true; }
  absl::Status Forward(const ForwardArgs& args) override { return op_->Forward(args.inputs[0], args.output); }
  absl::Status Backward(const BackwardArgs& args) override {
    if (args.input_gradients[0] == nullptr) return absl::OkStatus();
    return op_->Backward(args.output, args.output, args.output_gradient, args.input_gradients[0]);
  }

 private:
  const std::unique_ptr<kernels::UnaryOp> op_;
};

}  // namespace

ActivationSpec ReadActivation(absl::string_view field, ConfigReader& config) {
  const json& value = config.Raw(field);
  if (value.is_null()) return {};
  if (const absl::Status own = CheckIsOfKeras(value); !own.ok()) {
    config.Fail(field, own.message());
    return {};
  }
  const json& name = NameOf(value);
  for (const Row& row : kActivations) {
    if (name.is_string() && name.get_ref<const std::string&>() == row.name) return row.spec;
  }
  config.Fail(field, absl::StrCat("unknown activation ", name.dump(), "; supported: ",
                                  absl::StrJoin(kActivations, ", ", [](std::string* out, const Row& row) {
                                    absl::StrAppend(out, row.name);
                                  })));
  return {};
}

absl::StatusOr<std::unique_ptr<LayerOp>> MakeActivationOp(const kernels::TensorDesc& input,
                                                          const ActivationSpec& activation,
                                                          kernels::Device& device) {
  if (activation.is_linear()) return std::make_unique<ViewOp>(input);
  auto op = activation.softmax ? device.ops().MakeSoftmax(input)
                               : device.ops().MakeActivation(input, activation.function);
  CAIRN_RETURN_IF_ERROR(op);
  if (!activation.softmax && activation.function.has_gradient_of_output()) {
    return std::make_unique<InPlaceOp>(*std::move(op));
  }
  return std::make_unique<UnaryLayerOp>(
      *std::move(op), BackwardReads{.inputs = !activation.softmax, .output = activation.softmax});
}

namespace {

// A relu with all its options: slope * (x - threshold) below the threshold, min(x, limit) above it.
std::string OnnxRelu(const kernels::ActivationParams& f, const std::string& x, OnnxBuilder& onnx) {
  if (f.is_plain_relu()) return onnx.Add("Relu", {x});
  if (f.threshold == 0 && f.slope == 0 && f.limit > 0) {
    return onnx.Add("Clip", {x, onnx.Scalar("lowest", 0), onnx.Scalar("limit", f.limit)});
  }
  if (f.threshold == 0 && f.limit == kNoLimit) return onnx.Add("LeakyRelu", {x}, {{"alpha", f.slope}});
  const std::string threshold = onnx.Scalar("threshold", f.threshold);
  const std::string below = onnx.Add("Mul", {onnx.Add("Sub", {x, threshold}), onnx.Scalar("slope", f.slope)});
  const std::string above = onnx.Add("Min", {x, onnx.Scalar("limit", f.limit)});
  return onnx.Add("Where", {onnx.Add("Less", {x, threshold}), below, above});
}

// x (1 + inner) / 2.
std::string OnnxGated(const std::string& x, const std::string& inner, OnnxBuilder& onnx) {
  const std::string gate = onnx.Add("Add", {inner, onnx.Scalar("one", 1)});
  return onnx.Add("Mul", {onnx.Add("Mul", {x, onnx.Scalar("half", 0.5f)}), gate});
}

std::string OnnxGeluTanh(const std::string& x, OnnxBuilder& onnx) {
  const std::string cube = onnx.Add("Mul", {onnx.Add("Mul", {x, x}), x});
  const std::string sum =
      onnx.Add("Add", {x, onnx.Add("Mul", {cube, onnx.Scalar("cubic", kernels::kGeluTanhCubic)})});
  return OnnxGated(
      x, onnx.Add("Tanh", {onnx.Add("Mul", {sum, onnx.Scalar("scale", kernels::kGeluTanhScale)})}), onnx);
}

// kernels::Activate() in ONNX's operations.
std::string OnnxFunction(const kernels::ActivationParams& f, const std::string& x, OnnxBuilder& onnx) {
  switch (f.kind) {
    case Activation::kLinear:
      return x;
    case Activation::kRelu:
      return OnnxRelu(f, x, onnx);
    case Activation::kElu:
      return onnx.Add("Elu", {x}, {{"alpha", f.slope}});
    case Activation::kSelu:
      return onnx.Add("Selu", {x}, {{"alpha", kernels::kSeluAlpha}, {"gamma", kernels::kSeluScale}});
    case Activation::kSigmoid:
      return onnx.Add("Sigmoid", {x});
    case Activation::kTanh:
      return onnx.Add("Tanh", {x});
    case Activation::kSoftplus:
      return onnx.Add("Softplus", {x});
    case Activation::kSilu:
      return onnx.Add("Mul", {x, onnx.Add("Sigmoid", {x})});
    case Activation::kGelu:
      return OnnxGated(
          x, onnx.Add("Erf", {onnx.Add("Mul", {x, onnx.Scalar("inverse_sqrt2", kernels::kInverseSqrt2)})}),
          onnx);
    case Activation::kGeluTanh:
      return OnnxGeluTanh(x, onnx);
    case Activation::kHardSigmoid:
      return onnx.Add("HardSigmoid", {x}, {{"alpha", 1.0f / 6}, {"beta", 0.5f}});
    case Activation::kHardSilu:
      return onnx.Add("HardSwish", {x});
    case Activation::kExp:
      return onnx.Add("Exp", {x});
    case Activation::kLog:
      return onnx.Add("Log", {x});
    case Activation::kLog1p:
      return onnx.Add("Log", {onnx.Add("Add", {x, onnx.Scalar("one", 1)})});
    case Activation::kSqrt:
      return onnx.Add("Sqrt", {x});
    case Activation::kRsqrt:
      return onnx.Add("Reciprocal", {onnx.Add("Sqrt", {x})});
    case Activation::kReciprocal:
      return onnx.Add("Reciprocal", {x});
    case Activation::kSin:
      return onnx.Add("Sin", {x});
    case Activation::kCos:
      return onnx.Add("Cos", {x});
    case Activation::kSign:
      return onnx.Add("Sign", {x});
    case Activation::kFloor:
      return onnx.Add("Floor", {x});
    case Activation::kCeil:
      return onnx.Add("Ceil", {x});
    case Activation::kRound:
      return onnx.Add("Round", {x});
    case Activation::kTruncate:
      return onnx.Add("Mul", {onnx.Add("Sign", {x}), onnx.Add("Floor", {onnx.Add("Abs", {x})})});
  }
  return x;
}

}  // namespace

OnnxValue OnnxActivation(const ActivationSpec& activation, OnnxValue input, OnnxBuilder& onnx) {
  if (activation.is_linear()) return input;
  if (activation.softmax) {
    return onnx.FromChannelsLast(onnx.Add("Softmax", {onnx.ChannelsLast(input)}, {{"axis", int64_t{-1}}}),
                                 onnx.ShapeOf(input));
  }
  return onnx.Elementwise({input}, [&](const std::vector<std::string>& x) {
    return OnnxFunction(activation.function, x[0], onnx);
  });
}

absl::StatusOr<std::unique_ptr<LayerOp>> ActivatedOp(std::unique_ptr<LayerOp> op,
                                                     const ActivationSpec& activation,
                                                     kernels::Device& device) {
  if (activation.is_linear()) return op;
  std::vector<ChainOp::Link> links;
  kernels::TensorDesc desc = op->output();
  links.push_back({std::move(op)});
  const bool padded = desc.num_floats() != desc.shape.num_elements();
  if (desc.layout != kernels::Layout::kRowMajor &&
      (activation.softmax || (padded && !activation.function.keeps_zero()))) {
    CAIRN_ASSIGN_OR_RETURN(auto reorder, ReorderOp::Create(desc, device));
    desc = reorder->output();
    links.push_back({std::move(reorder)});
  }
  CAIRN_ASSIGN_OR_RETURN(auto after, MakeActivationOp(desc, activation, device));
  links.push_back({std::move(after)});
  return ChainOp::Create(std::move(links), device);
}

absl::StatusOr<std::unique_ptr<LayerOp>> ReluFusedOp(std::unique_ptr<LayerOp> op,
                                                     const ActivationSpec& activation,
                                                     kernels::Device& device) {
  if (activation.is_plain_relu()) return op;
  return ActivatedOp(std::move(op), activation, device);
}

}  // namespace cairn::nn
