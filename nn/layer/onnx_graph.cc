#include "nn/layer/onnx_graph.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn::nn {
namespace {

// Permutes the axes of `values` [shape]: output axis i is input axis permutation[i].
std::vector<float> Permuted(absl::Span<const float> values, const Shape& shape,
                            absl::Span<const int> permutation) {
  const size_t rank = permutation.size();
  std::vector<int64_t> strides(rank, 1);  // [input axis]
  for (size_t axis = rank - 1; axis-- > 0;)
    strides[axis] = strides[axis + 1] * shape[static_cast<int>(axis) + 1];
  std::vector<float> permuted;
  permuted.reserve(values.size());
  std::vector<int64_t> index(rank, 0);  // [output axis]
  while (permuted.size() < values.size()) {
    int64_t from = 0;
    for (size_t axis = 0; axis < rank; ++axis)
      from += index[axis] * strides[static_cast<size_t>(permutation[axis])];
    permuted.push_back(values[static_cast<size_t>(from)]);
    for (size_t axis = rank; axis-- > 0;) {
      if (++index[axis] < shape[permutation[axis]]) break;
      index[axis] = 0;
    }
  }
  return permuted;
}

}  // namespace

int64_t OnnxTypeOf(DType type) {
  switch (type) {
    case DType::kFloat32:
      return 1;
    case DType::kUint8:
      return 2;
    case DType::kInt32:
      return 6;
    case DType::kInt64:
      return 7;
    case DType::kBool:
      return 9;
    case DType::kFloat16:
      return 10;
    case DType::kBFloat16:
      return 16;
  }
  return 0;
}

std::string OnnxBuilder::UniqueName(absl::string_view wanted) {
  std::string name(wanted);
  if (names_.insert(name).second) return name;
  int& suffix = suffixes_[name];
  do {
    name = absl::StrCat(wanted, "_", ++suffix);
  } while (!names_.insert(name).second);
  return name;
}

std::string OnnxBuilder::Add(absl::string_view op_type, std::vector<std::string> inputs,
                             std::vector<OnnxAttribute> attributes) {
  std::string name = UniqueName(absl::StrCat(layer_, "/", op_type));
  graph_.nodes.push_back({std::string(op_type), name, std::move(inputs), name, std::move(attributes)});
  return name;
}

std::vector<std::string> OnnxBuilder::AddWithOutputs(int outputs, absl::string_view op_type,
                                                     std::vector<std::string> inputs,
                                                     std::vector<OnnxAttribute> attributes) {
  std::vector<std::string> names = {Add(op_type, std::move(inputs), std::move(attributes))};
  while (static_cast<int>(names.size()) < outputs) {
    names.push_back(UniqueName(absl::StrCat(layer_, "/", op_type)));
    graph_.nodes.back().more_outputs.push_back(names.back());
  }
  return names;
}

std::string OnnxBuilder::Cast(std::string from, DType to) {
  return Add("Cast", {std::move(from)}, {{"to", OnnxTypeOf(to)}});
}

std::string OnnxBuilder::ChannelsLast(OnnxValue value) {
  const Value& there = values_[static_cast<size_t>(value)];
  if (!there.channels_last.empty()) return there.channels_last;
  std::vector<int64_t> order = {0};
  for (int axis = 1; axis < there.shape.rank(); ++axis) order.push_back(axis + 1);
  order.push_back(1);
  std::string name = Add("Transpose", {there.channels_first}, {{"perm", order}});
  values_[static_cast<size_t>(value)].channels_last = name;
  return name;
}

std::string OnnxBuilder::ChannelsFirst(OnnxValue value) {
  const Value& there = values_[static_cast<size_t>(value)];
  if (!there.channels_first.empty()) return there.channels_first;
  if (there.shape.rank() == 1) return there.channels_last;
  std::vector<int64_t> order = {0, there.shape.rank()};
  for (int axis = 1; axis < there.shape.rank(); ++axis) order.push_back(axis);
  std::string name = Add("Transpose", {there.channels_last}, {{"perm", order}});
  values_[static_cast<size_t>(value)].channels_first = name;
  return name;
}

OnnxValue OnnxBuilder::FromChannelsLast(std::string name, const Shape& shape, DType type) {
  values_.push_back({shape, std::move(name), {}, type});
  return static_cast<OnnxValue>(values_.size()) - 1;
}

OnnxValue OnnxBuilder::FromChannelsFirst(std::string name, const Shape& shape) {
  if (shape.rank() == 1) return FromChannelsLast(std::move(name), shape);
  values_.push_back({.shape = shape, .channels_last = {}, .channels_first = std::move(name)});
  return static_cast<OnnxValue>(values_.size()) - 1;
}

OnnxValue OnnxBuilder::Elementwise(absl::Span<const OnnxValue> inputs,
                                   absl::FunctionRef<std::string(const std::vector<std::string>&)> compute) {
  bool channels_first = true;
  for (const OnnxValue input : inputs) channels_first = channels_first && IsChannelsFirst(input);
  std::vector<std::string> names;
  for (const OnnxValue input : inputs)
    names.push_back(channels_first ? ChannelsFirst(input) : ChannelsLast(input));
  const Shape shape = ShapeOf(inputs[0]);
  std::string output = compute(names);
  return channels_first ? FromChannelsFirst(std::move(output), shape)
                        : FromChannelsLast(std::move(output), shape);
}

std::string OnnxBuilder::Weights(const OnnxVariable& variable, absl::Span<const int> permutation,
                                 const Shape& shape) {
  if (!weights_.insert(variable.name).second) return variable.name;
  names_.insert(variable.name);
  if (permutation.empty()) {
    graph_.constants.push_back({variable.name, shape.rank() > 0 ? shape : variable.shape,
                                std::vector<float>(variable.values.begin(), variable.values.end())});
    return variable.name;
  }
  Shape permuted;
  for (const int axis : permutation) permuted.Append(variable.shape[axis]);
  graph_.constants.push_back({variable.name, shape.rank() > 0 ? shape : permuted,
                              Permuted(variable.values, variable.shape, permutation)});
  return variable.name;
}

std::string OnnxBuilder::GatherRows(const OnnxVariable& table, std::string ids, DType type) {
  if (type != DType::kInt64 && (table.by_ids || type != DType::kInt32)) ids = Cast(ids, DType::kInt64);
  if (table.by_ids && table.ids.empty()) {
    ids = Add("Mul", {ids, Ints("no_rows", {0})});
  } else if (table.by_ids) {
    std::vector<int64_t> rows(table.ids.size());
    std::iota(rows.begin(), rows.end(), int64_t{0});
    const auto other = static_cast<int64_t>(rows.size());
    ids = Add("LabelEncoder", {ids},
              {{"keys_int64s", std::vector<int64_t>(table.ids.begin(), table.ids.end())},
               {"values_int64s", std::move(rows)},
               {"default_int64", other}});
    graph_.nodes.back().domain = kOnnxMlDomain;
  }
  return Add("Gather", {Weights(table), ids});
}

std::string OnnxBuilder::IdsOf(const IdTable& table, std::string values, const Shape& shape) {
  if (table.kind == ValueKind::kFloat) {  // the number of bounds that are at most the value
    const auto bounds = static_cast<int64_t>(table.bounds.size());
    const int64_t axis = shape.rank() + 1;
    const std::string each = Add("Unsqueeze", {std::move(values), Ints("axis", {axis})});
    const std::string reached =
        Add("GreaterOrEqual", {each, Floats("bounds", Shape({bounds}), table.bounds)});
    return Add("ReduceSum", {Cast(reached, DType::kInt64), Ints("axis", {axis})}, {{"keepdims", int64_t{0}}});
  }
  OnnxAttribute keys = table.kind == ValueKind::kText ? OnnxAttribute{"keys_strings", table.texts}
                                                      : OnnxAttribute{"keys_int64s", table.integers};
  std::string ids = Add("LabelEncoder", {std::move(values)},
                        {std::move(keys), {"values_int64s", table.ids}, {"default_int64", table.other}});
  graph_.nodes.back().domain = kOnnxMlDomain;
  return ids;
}

std::string OnnxBuilder::Floats(absl::string_view what, const Shape& shape, std::vector<float> values) {
  std::string name = UniqueName(absl::StrCat(layer_, "/", what));
  graph_.constants.push_back({name, shape, std::move(values)});
  return name;
}

std::string OnnxBuilder::Ints(absl::string_view what, std::vector<int64_t> values) {
  std::string name = UniqueName(absl::StrCat(layer_, "/", what));
  const Shape shape = {static_cast<int64_t>(values.size())};
  graph_.constants.push_back({name, shape, std::move(values)});
  return name;
}

void OnnxBuilder::Rename(const std::string& name, const std::string& to) {
  for (OnnxNode& node : graph_.nodes) {
    if (node.output == name) node.output = to;
    std::replace(node.more_outputs.begin(), node.more_outputs.end(), name, to);
    for (std::string& input : node.inputs) {
      if (input == name) input = to;
    }
  }
}

}  // namespace cairn::nn
