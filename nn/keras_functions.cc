#include "nn/keras_functions.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "nn/function_bodies.h"

namespace cairn::nn {
namespace {

struct FunctionRow {
  absl::string_view class_name;
  FunctionBody (*read)(const FunctionOption& option, ConfigReader& config);
  FunctionOption option{};
  size_t min_inputs = 1, max_inputs = 1;
  bool takes_number = false;  // in place of the first or the second of two tensors
};

constexpr size_t kMaxInputs = 1000;  // as merge layers

// One row per function, in alphabetical order. A row says how the function is read, and in what it differs from others
// that are read the same way.
constexpr FunctionRow kFunctions[] = {
    {"Absolute", ReadAbsolute},
    {"Add", ReadMerge, {"Add"}, 2, 2, true},
    {"Amax", ReadReduction, {.layer = "GlobalMaxPooling"}},
    {"Amin", ReadReduction, {.layer = "GlobalMaxPooling", .negated = true}},
    {"Average", ReadReduction, {.layer = "GlobalAveragePooling"}},
    {"AveragePool", ReadPool, {"AveragePooling"}},
    {"Cast", ReadCast},
    {"Celu", ReadCelu},
    {"Clip", ReadClip},
    {"Concatenate", ReadConcatenate, {}, 1, kMaxInputs},
    {"ConvertToTensor", ReadCast},
    {"Divide", ReadMerge, {"Divide"}, 2, 2, true},
    {"Elu", ReadWithSlope, {.layer = "ELU", .argument = "alpha"}},
    {"ExpandDims", ReadExpandDims},
    {"Gelu", ReadGelu},
    {"HardSigmoid", ReadActivationFunction, {"hard_sigmoid"}},
    {"HardSilu", ReadActivationFunction, {"hard_silu"}},
    {"HardTanh", ReadHardTanh},
    {"LeakyRelu", ReadWithSlope, {.layer = "LeakyReLU", .argument = "negative_slope"}},
    {"LogSigmoid", ReadLogSigmoid},
    {"Matmul", ReadMatmul, {}, 2, 2},
    {"Max", ReadReduction, {.layer = "GlobalMaxPooling"}},
    {"MaxPool", ReadPool, {"MaxPooling"}},
    {"Maximum", ReadMerge, {"Maximum"}, 2, 2, true},
    {"Mean", ReadReduction, {.layer = "GlobalAveragePooling"}},
    {"Min", ReadReduction, {.layer = "GlobalMaxPooling", .negated = true}},
    {"Minimum", ReadMerge, {"Minimum"}, 2, 2, true},
    {"Moveaxis", ReadMoveaxis},
    {"Multiply", ReadMerge, {"Multiply"}, 2, 2, true},
    {"Negative", ReadNegative},
    {"Pad", ReadPad},
    {"Power", ReadPower, {}, 2, 2, true},
    {"Relu", ReadActivationFunction, {"relu"}},
    {"Relu6", ReadActivationFunction, {"relu6"}},
    {"Repeat", ReadRepeat},
    {"Reshape", ReadReshape},
    {"Resize", ReadResize},
    {"Selu", ReadActivationFunction, {"selu"}},
    {"Sigmoid", ReadActivationFunction, {"sigmoid"}},
    {"Silu", ReadActivationFunction, {"silu"}},
    {"Softmax", ReadSoftmax},
    {"Softplus", ReadActivationFunction, {"softplus"}},
    {"Square", ReadSquare},
    {"Squeeze", ReadSqueeze},
    {"Stack", ReadStack, {}, 1, kMaxInputs},
    {"Subtract", ReadMerge, {"Subtract"}, 2, 2, true},
    {"Sum", ReadReduction, {.layer = "GlobalAveragePooling", .sums = true}},
    {"Swapaxes", ReadSwapaxes},
    {"Tanh", ReadActivationFunction, {"tanh"}},
    {"Transpose", ReadTranspose},
    {"TrueDivide", ReadMerge, {"Divide"}, 2, 2, true},
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
    {"Einsum", "EinsumDense or Dot"},
    {"LayerNorm", "LayerNormalization"},
    {"LogSoftmax", "Softmax"},
    {"MultiHot", "CategoryEncoding"},
    {"Normalize", "UnitNormalization"},
    {"OneHot", "CategoryEncoding"},
    {"RMSNorm", "RMSNormalization"},
    {"Ravel", "Flatten"},
    {"SeparableConv", "SeparableConv1D or SeparableConv2D"},
    {"Slice", "Cropping1D, Cropping2D or Cropping3D"},
    {"Split", "Cropping1D, Cropping2D or Cropping3D for each part"},
    {"Take", "Embedding"},
    {"Tile", "RepeatVector or UpSampling1D"},
};

const FunctionRow* FindRow(absl::string_view class_name) {
  const auto* const row =
      absl::c_find_if(kFunctions, [&](const FunctionRow& row) { return row.class_name == class_name; });
  return row == std::end(kFunctions) ? nullptr : row;
}

}  // namespace

absl::StatusOr<KerasFunction::Call> KerasFunction::LayersFor(absl::Span<const Shape> inputs) const {
  if (inputs.size() < parts_.min_inputs || inputs.size() > parts_.max_inputs) {
    return absl::InvalidArgumentError(absl::StrCat(inputs.size(), " inputs, expected ",
                                                   parts_.max_inputs == 1   ? "one"
                                                   : parts_.max_inputs == 2 ? "two"
                                                                            : "one or more"));
  }
  FunctionSteps steps(parts_.name, {inputs.begin(), inputs.end()});
  parts_.body(steps);
  Call call = {.is_identity = steps.empty()};
  if (call.is_identity) steps.Add("Activation", {{"activation", "linear"}});
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
  // With a number, one tensor remains.
  const bool has_number = row->takes_number && config.Has("number");
  return std::make_shared<const KerasFunction>(
      KerasFunction::Parts{.name = std::move(name),
                           .class_name = std::string(class_name),
                           .body = row->read(row->option, config),
                           .min_inputs = has_number ? 1 : row->min_inputs,
                           .max_inputs = has_number ? 1 : row->max_inputs});
}

}  // namespace cairn::nn
