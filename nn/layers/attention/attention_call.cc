#include "nn/layers/attention/attention_call.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

constexpr absl::string_view kCall = "call";  // the field of the config
// In the order of Keras' parameters.
constexpr absl::string_view kArguments[] = {"query",      "value",    "key",           "query_mask",
                                            "value_mask", "key_mask", "attention_mask"};

bool IsAttention(const json& class_name) {
  return class_name == "MultiHeadAttention" || class_name == "GroupQueryAttention" ||
         class_name == "Attention" || class_name == "AdditiveAttention" ||
         class_name == "CachedMultiHeadAttention" || class_name == "LlamaAttention";
}
// Attention takes a list of tensors and a list of masks, MultiHeadAttention takes an argument for each
// tensor.
bool TakesLists(const json& class_name) {
  return class_name == "Attention" || class_name == "AdditiveAttention";
}

// Whether the shape is [queries,keys] or [1,keys], perhaps behind an axis of all heads.
bool IsBroadcastTo(const Shape& mask, int64_t queries, int64_t keys) {
  const int rank = mask.rank();
  return (rank == 2 || (rank == 3 && mask[0] == 1)) && mask[rank - 1] == keys &&
         (mask[rank - 2] == 1 || mask[rank - 2] == queries);
}

// A call as read: its tensors by argument, and the keyword arguments that are left.
struct ReadArguments {
  std::vector<std::pair<std::string, json>> tensors;
  bool causal = false;
  json kwargs = json::object();

  void Add(absl::string_view argument, json tensor) {
    if (!tensor.is_null()) tensors.emplace_back(argument, std::move(tensor));
  }
};

absl::Status ReadKeywords(json kwargs, bool lists, ReadArguments& read) {
  if (kwargs.is_null()) return absl::OkStatus();
  if (!kwargs.is_object())
    return absl::InvalidArgumentError(absl::StrCat("kwargs: expected an object, got ", kwargs.dump()));
  for (auto& [key, value] : kwargs.items()) {
    if (key == "use_causal_mask") {
      read.causal = value == true;
    } else if (key == "return_attention_scores") {
      if (value != true) continue;
      return absl::InvalidArgumentError(
          "kwargs: return_attention_scores: the scores are not computed as a matrix; set it to false");
    } else if (lists && key == "mask") {
      if (value.is_null()) continue;
      if (!value.is_array() || value.size() > 3)
        return absl::InvalidArgumentError(
            absl::StrCat("kwargs: mask: expected a list of masks, got ", value.dump()));
      // Keras does not use a third one, of the key.
      for (size_t i = 0; i < value.size() && i < 2; ++i)
        read.Add(i == 0 ? "query_mask" : "value_mask", value[i]);
    } else if (!lists && absl::c_linear_search(kArguments, key)) {
      read.Add(key, std::move(value));
    } else {
      read.kwargs[key] = std::move(value);
    }
  }
  return absl::OkStatus();
}

// Keras 3: {"args": [...], "kwargs": {...}}.
absl::StatusOr<ReadArguments> ReadKeras3(json call, bool lists) {
  ReadArguments read;
  json args = call.value("args", json::array());
  if (lists && args.size() == 1 && args[0].is_array()) args = std::move(args[0]);
  if (!args.is_array() || args.size() > std::size(kArguments))
    return absl::InvalidArgumentError(absl::StrCat("args: ", args.dump(), " are not arguments of attention"));
  for (size_t i = 0; i < args.size(); ++i) read.Add(kArguments[i], std::move(args[i]));
  CAIRN_RETURN_IF_ERROR(ReadKeywords(call.value("kwargs", json()), lists, read));
  return read;
}

// Keras 2: [[layer, call, output, kwargs], ...], where only the first entry has the keyword arguments.
absl::StatusOr<ReadArguments> ReadKeras2(json call, bool lists) {
  ReadArguments read;
  for (size_t i = 0; i < call.size() && i < std::size(kArguments); ++i) {
    json tensor = call[i];
    if (tensor.is_array() && tensor.size() > 3) {
      CAIRN_RETURN_IF_ERROR(ReadKeywords(std::move(tensor[3]), lists, read));
      tensor[3] = std::exchange(read.kwargs, json::object());
    }
    read.tensors.insert(read.tensors.begin() + static_cast<std::ptrdiff_t>(i),
                        {std::string(kArguments[i]), std::move(tensor)});
  }
  return read;
}

}  // namespace

std::optional<size_t> AttentionCall::Find(absl::string_view argument) const {
  const auto found = absl::c_find(inputs, argument);
  if (found == inputs.end()) return std::nullopt;
  return static_cast<size_t>(found - inputs.begin());
}

bool AttentionCall::IsDecoded(absl::Span<const DecodedInput> kinds) const {
  const size_t key_input = key() < kinds.size() ? key() : 1;
  const DecodedInput keys = kinds[1];
  if (kinds[0] != DecodedInput::kSteps || kinds[key_input] != keys || keys == DecodedInput::kOnes)
    return false;
  if (keys == DecodedInput::kSteps && !causal) return false;
  const DecodedInput mask_of_keys = keys == DecodedInput::kSteps ? DecodedInput::kOnes : DecodedInput::kWhole;
  for (size_t i = 2; i < kinds.size(); ++i) {
    if (i == key_input) continue;
    const bool of_keys = inputs[i] == "value_mask" || inputs[i] == "key_mask";
    const bool of_queries = inputs[i] == "query_mask" && kinds[i] == DecodedInput::kOnes;
    if (!of_queries && !(of_keys && kinds[i] == mask_of_keys)) return false;
  }
  return true;
}

AttentionCall AttentionCall::Read(ConfigReader& config) {
  const json& call = config.Raw(kCall);
  if (call.is_null()) return {.inputs = {"query", "value", "key"}};
  const json inputs = call.is_object() ? call.value("inputs", json()) : json();
  const json causal = call.is_object() ? call.value("causal", json()) : json();
  const bool valid = inputs.is_array() && causal.is_boolean() &&
                     absl::c_all_of(inputs, [](const json& input) { return input.is_string(); });
  if (!valid) {
    config.Fail(kCall, "is not a field of Keras");
    return {.inputs = {"query", "value", "key"}};
  }
  return {.inputs = inputs.get<std::vector<std::string>>(), .causal = causal.get<bool>()};
}

absl::Status AttentionCall::CheckShapes(absl::Span<const Shape> shapes) const {
  const auto fault = [](const auto&... what) { return absl::InvalidArgumentError(absl::StrCat(what...)); };
  if (shapes.size() < 2 || shapes.size() > inputs.size())
    return fault("takes a query, a value and perhaps a key, not ", shapes.size(), " inputs");
  const size_t sequences = key() < shapes.size() && key() > 1 ? 3 : 2;
  for (size_t i = 0; i < sequences; ++i) {
    if (shapes[i].rank() == 2) continue;
    return fault(inputs[i], ": ", shapes[i].ToString(),
                 " is not supported, only sequences of vectors, [length,width]");
  }
  const int64_t queries = shapes[0][0], keys = shapes[1][0];
  if (sequences == 3 && shapes[2][0] != keys)
    return fault("value ", shapes[1].ToString(), " and key ", shapes[2].ToString(), " differ in length");
  if (Find("key_mask").has_value() && Find("value_mask").has_value())
    return fault("key_mask and value_mask in one call are not supported: multiply them");
  for (size_t i = sequences; i < shapes.size(); ++i) {
    const Shape expected = inputs[i] == "attention_mask" ? Shape{queries, keys}
                           : inputs[i] == "query_mask"   ? Shape{queries}
                                                         : Shape{keys};
    if (shapes[i] == expected || (inputs[i] == "attention_mask" && IsBroadcastTo(shapes[i], queries, keys)))
      continue;
    return fault(inputs[i], ": ", shapes[i].ToString(), " is not supported, expected ", expected.ToString());
  }
  return absl::OkStatus();
}

absl::Status NormalizeAttentionCalls(json& layer) {
  const json class_name = layer.value("class_name", json());
  if (!IsAttention(class_name) || !layer.contains("inbound_nodes") || !layer["inbound_nodes"].is_array())
    return absl::OkStatus();
  const json config = layer.value("config", json());
  if (!config.is_null() && !config.is_object())
    return absl::InvalidArgumentError(absl::StrCat("config: expected an object, got ", config.dump()));
  if (config.contains(kCall)) return absl::InvalidArgumentError("config: call is not a field of Keras");
  json description;
  for (json& call : layer["inbound_nodes"]) {
    if (!call.is_object() && !call.is_array())
      return absl::InvalidArgumentError(absl::StrCat("inbound_nodes: expected calls, got ", call.dump()));
    CAIRN_ASSIGN_OR_RETURN(ReadArguments read, call.is_object() ? ReadKeras3(call, TakesLists(class_name))
                                                                : ReadKeras2(call, TakesLists(class_name)));
    std::vector<std::string> names;
    json args = json::array();
    json value;
    for (const absl::string_view argument : kArguments) {
      for (auto& [name, tensor] : read.tensors) {
        if (name != argument) continue;
        if (name == "value") value = tensor;
        if (name == "key" && tensor == value) continue;  // as if it were absent
        names.emplace_back(argument);
        args.push_back(std::move(tensor));
      }
    }
    if (names.size() < 2 || names[0] != "query" || names[1] != "value")
      return absl::InvalidArgumentError("inbound_nodes: a call names no query or no value");
    json call_description = {{"inputs", std::move(names)}, {"causal", read.causal}};
    if (!description.is_null() && description != call_description) {
      return absl::InvalidArgumentError(
          "inbound_nodes: calls with different arguments are not supported: use a layer for each");
    }
    description = std::move(call_description);
    if (call.is_object()) {
      args = {{"args", std::move(args)}, {"kwargs", std::move(read.kwargs)}};
    }
    call = std::move(args);
  }
  if (!description.is_null()) layer["config"][std::string(kCall)] = std::move(description);
  return absl::OkStatus();
}

}  // namespace cairn::nn
