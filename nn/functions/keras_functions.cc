#include "nn/functions/keras_functions.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "nn/functions/bodies.h"

namespace cairn::nn {
namespace {

struct FunctionRow {
  absl::string_view class_name;
  FunctionBody (*read)(const FunctionOption& option, ConfigReader& config);
  FunctionOption option{};
  size_t min_inputs = 1, max_inputs = 1;
  bool takes_number = false;  // in place of the first or the second of two tensors
  bool has_several_outputs = false;
};

constexpr size_t kMaxInputs = 1000;  // as merge layers

// One row per function, in alphabetical order. A row says how the function is read, and in what it differs from others
// that are read the same way.
constexpr FunctionRow kFunctions[] = {
    {"Absolute", ReadAbsolute},
    {"Add", ReadMerge, {"Add"}, 2, 2, true},
    {"All", ReadAllOrAny, {.negated = true}},
    {"Amax", ReadReduction, {.layer = "GlobalMaxPooling"}},
    {"Amin", ReadReduction, {.layer = "GlobalMaxPooling", .negated = true}},
    {"Any", ReadAllOrAny},
    {"Average", ReadReduction, {.layer = "GlobalAveragePooling"}},
    {"AveragePool", ReadPool, {"AveragePooling"}},
    {"Cast", ReadCast},
    {"Ceil", ReadMathFunction, {"ceil"}},
    {"Celu", ReadCelu},
    {"Clip", ReadClip},
    {"Concatenate", ReadConcatenate, {}, 1, kMaxInputs},
    {"ConvertToTensor", ReadCast},
    {"Cos", ReadMathFunction, {"cos"}},
    {"CountNonzero", ReadCountNonzero},
    {"Cumsum", ReadCumsum},
    {"Divide", ReadMerge, {"Divide"}, 2, 2, true},
    {"Einsum", ReadEinsum, {}, 1, 2},
    {"Elu", ReadWithSlope, {.layer = "ELU", .argument = "alpha"}},
    {"Equal", ReadElementwise, {"equal"}, 2, 2},
    {"Exp", ReadMathFunction, {"exp"}},
    {"ExpandDims", ReadExpandDims},
    {"Floor", ReadMathFunction, {"floor"}},
    {"Gelu", ReadGelu},
    {"GetItem", ReadGetItem},
    {"Greater", ReadElementwise, {"greater"}, 2, 2},
    {"GreaterEqual", ReadElementwise, {"greater_equal"}, 2, 2},
    {"HardSigmoid", ReadActivationFunction, {"hard_sigmoid"}},
    {"HardSilu", ReadActivationFunction, {"hard_silu"}},
    {"HardTanh", ReadHardTanh},
    {"Isnan", ReadIsNan},
    {"LayerNorm", ReadLayerNorm},
    {"LeakyRelu", ReadWithSlope, {.layer = "LeakyReLU", .argument = "negative_slope"}},
    {"Less", ReadElementwise, {"less"}, 2, 2},
    {"LessEqual", ReadElementwise, {"less_equal"}, 2, 2},
    {"Log", ReadMathFunction, {"log"}},
    {"Log1p", ReadMathFunction, {"log1p"}},
    {"LogSigmoid", ReadLogSigmoid},
    {"LogSoftmax", ReadLogSoftmax},
    {"LogicalAnd", ReadElementwise, {"logical_and"}, 2, 2},
    {"LogicalNot", ReadLogicalNot},
    {"LogicalOr", ReadElementwise, {"logical_or"}, 2, 2},
    {"LogicalXor", ReadElementwise, {"logical_xor"}, 2, 2},
    {"Logsumexp", ReadLogSumExp},
    {"Matmul", ReadMatmul, {}, 2, 2},
    {"Max", ReadReduction, {.layer = "GlobalMaxPooling"}},
    {"MaxPool", ReadPool, {"MaxPooling"}},
    {"Maximum", ReadMerge, {"Maximum"}, 2, 2, true},
    {"Mean", ReadReduction, {.layer = "GlobalAveragePooling"}},
    {"Min", ReadReduction, {.layer = "GlobalMaxPooling", .negated = true}},
    {"Minimum", ReadMerge, {"Minimum"}, 2, 2, true},
    {.class_name = "Moments", .read = ReadMoments, .has_several_outputs = true},
    {"Moveaxis", ReadMoveaxis},
    {"Multiply", ReadMerge, {"Multiply"}, 2, 2, true},
    {"Negative", ReadNegative},
    {"Normalize", ReadNormalize},
    {"NotEqual", ReadElementwise, {"not_equal"}, 2, 2},
    {"OneHot", ReadOneHot},
    {"OnesLike", ReadFilled},
    {"Pad", ReadPad},
    {"Power", ReadPower, {}, 2, 2, true},
    {"RMSNorm", ReadRmsNorm},
    {"Reciprocal", ReadMathFunction, {"reciprocal"}},
    {"Relu", ReadActivationFunction, {"relu"}},
    {"Relu6", ReadActivationFunction, {"relu6"}},
    {"Repeat", ReadRepeat},
    {"Reshape", ReadReshape},
    {"Resize", ReadResize},
    {"Round", ReadRound},
    {"Rsqrt", ReadMathFunction, {"rsqrt"}},
    {"Selu", ReadActivationFunction, {"selu"}},
    {"Sigmoid", ReadActivationFunction, {"sigmoid"}},
    {"Sign", ReadMathFunction, {"sign"}},
    {"Silu", ReadActivationFunction, {"silu"}},
    {"Sin", ReadMathFunction, {"sin"}},
    {"Slice", ReadSlice},
    {"Softmax", ReadSoftmax},
    {"Softplus", ReadActivationFunction, {"softplus"}},
    {.class_name = "Split", .read = ReadSplit, .has_several_outputs = true},
    {"Sqrt", ReadMathFunction, {"sqrt"}},
    {"Square", ReadSquare},
    {"Squeeze", ReadSqueeze},
    {"Stack", ReadStack, {}, 1, kMaxInputs},
    {"Std", ReadVariance, {"sqrt"}},
    {"Subtract", ReadMerge, {"Subtract"}, 2, 2, true},
    {"Sum", ReadReduction, {.layer = "GlobalSumPooling"}},
    {"Swapaxes", ReadSwapaxes},
    {"Tanh", ReadActivationFunction, {"tanh"}},
    {"Tile", ReadTile},
    {"Transpose", ReadTranspose},
    {"TrueDivide", ReadMerge, {"Divide"}, 2, 2, true},
    {"Trunc", ReadMathFunction, {"trunc"}},
    {.class_name = "Unstack", .read = ReadUnstack, .has_several_outputs = true},
    {"Var", ReadVariance},
    {"Where", ReadElementwise, {"where"}, 3, 3},
    {"ZerosLike", ReadFilled, {.negated = true}},
};

// The layers to use instead of functions that are not supported.
struct Advice {
  absl::string_view class_name, instead;
};
constexpr Advice kAdvice[] = {
    {"BatchNorm", "BatchNormalization"},
    {"Conv", "Conv1D, Conv2D or Conv3D"},
    {"ConvTranspose", "Conv1DTranspose or Conv2DTranspose"},
    {"DepthwiseConv", "DepthwiseConv1D or DepthwiseConv2D"},
    {"Dot", "Dot"},
    {"DotProductAttention", "MultiHeadAttention"},
    {"MultiHot", "CategoryEncoding"},
    {"Ravel", "Flatten"},
    {"SeparableConv", "SeparableConv1D or SeparableConv2D"},
    {"Take", "Embedding"},
};

const FunctionRow* FindRow(absl::string_view class_name) {
  const auto* const found =
      absl::c_find_if(kFunctions, [&](const FunctionRow& row) { return row.class_name == class_name; });
  return found == std::end(kFunctions) ? nullptr : found;
}

}  // namespace

absl::StatusOr<KerasFunction::Call> KerasFunction::LayersFor(absl::Span<const Shape> inputs,
                                                             int64_t output) const {
  if (inputs.size() < parts_.min_inputs || inputs.size() > parts_.max_inputs) {
    return absl::InvalidArgumentError(absl::StrCat(inputs.size(), " inputs, expected ",
                                                   parts_.max_inputs == 1   ? "one"
                                                   : parts_.max_inputs == 2 ? "two"
                                                   : parts_.max_inputs == 3 ? "three"
                                                                            : "one or more"));
  }
  FunctionSteps steps(parts_.name, {inputs.begin(), inputs.end()}, output);
  parts_.body(steps);
  Call call = {.is_identity = steps.latest() < 0, .num_outputs = steps.num_outputs()};
  if (call.is_identity) steps.Add("Activation", {{"activation", "linear"}});
  call.output_shape = steps.shape();
  CAIRN_ASSIGN_OR_RETURN(call.steps, steps.Take());
  return call;
}

bool IsSupportedFunction(absl::string_view class_name) {
  return FindRow(class_name) != nullptr;
}

bool TakesNumber(absl::string_view class_name) {
  const FunctionRow* const row = FindRow(class_name);
  return row != nullptr && row->takes_number;
}

bool TakesConstants(absl::string_view class_name) {
  const FunctionRow* const row = FindRow(class_name);
  return row != nullptr && row->read == ReadElementwise;
}

bool ReadsDtype(absl::string_view class_name) {
  const FunctionRow* const row = FindRow(class_name);
  return row != nullptr && (row->read == ReadCast || row->read == ReadCumsum);
}

std::string FunctionFault(absl::string_view class_name) {
  const auto* const advice =
      absl::c_find_if(kAdvice, [&](const Advice& row) { return row.class_name == class_name; });
  return absl::StrCat("is a function of keras.ops that is not supported: use ",
                      advice == std::end(kAdvice) ? "a layer" : absl::StrCat("the layer ", advice->instead),
                      "; supported functions: ",
                      absl::StrJoin(kFunctions, ", ", [](std::string* out, const FunctionRow& row) {
                        absl::StrAppend(out, row.class_name);
                      }));
}

std::shared_ptr<const KerasFunction> ReadFunction(std::string name, absl::string_view class_name,
                                                  ConfigReader& config) {
  const FunctionRow* const row = FindRow(class_name);
  // Each constant takes the place of a tensor.
  size_t constants = row->takes_number && (config.Has("number") || config.Has("constant")) ? 1 : 0;
  if (TakesConstants(class_name) && config.Has("constants")) constants = config.Raw("constants").size();
  return std::make_shared<const KerasFunction>(
      KerasFunction::Parts{.name = std::move(name),
                           .class_name = std::string(class_name),
                           .body = row->read(row->option, config),
                           .min_inputs = row->min_inputs - constants,
                           .max_inputs = row->max_inputs - constants,
                           .has_several_outputs = row->has_several_outputs});
}

}  // namespace cairn::nn
