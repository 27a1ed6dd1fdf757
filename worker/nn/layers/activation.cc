#include "worker/nn/layers/activation.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "worker/nn/layers/layer_ops.h"

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
    {"gelu", {.function = {.kind = Activation::kGelu}}},
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

// A plain name, or one of the objects that some versions of Keras 3 write: of {"class_name": "function",
// "config": "relu"} and {"class_name": "ReLU", "config": {...}} only the first has no options of its own.
const json& NameOf(const json& value) {
  static const json* const kFunction = new json("function");
  if (!value.is_object() || !value.contains("config") || !value.contains("class_name")) return value;
  return value["class_name"] == *kFunction ? value["config"] : value;
}

}  // namespace

ActivationSpec ReadActivation(absl::string_view field, ConfigReader& config) {
  const json& value = config.Raw(field);
  if (value.is_null()) return {};
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
  return std::make_unique<UnaryLayerOp>(*std::move(op));
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
