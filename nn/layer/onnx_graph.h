// A model's inference as a graph of ONNX operations, opset 17, without protobuf. worker/export writes it to a
// file.
//
// MakeOnnxGraph() (onnx_model.h) lets each layer add its nodes to an OnnxBuilder (Layer::ToOnnx). Keras'
// images have the channels last, ONNX's convolutions expect them first. A value keeps the layout in which it
// was computed, and is transposed once if an operation needs the other layout. So a chain of convolutions is
// transposed only at its ends, and flattened values have Keras' order.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "common/core/tensor_view.h"
#include "common/ids/id_map.h"

namespace cairn::nn {

class Model;

// ONNX's number for an element type: TensorProto.DataType.
int64_t OnnxTypeOf(DType type);

struct OnnxAttribute {
  std::string name;
  std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<std::string>> value;
};

// The domain of operators such as LabelEncoder.
inline constexpr char kOnnxMlDomain[] = "ai.onnx.ml";

struct OnnxNode {
  std::string op_type;  // "Conv"
  std::string name;     // unique, like `output`
  std::vector<std::string> inputs;
  std::string output;
  std::vector<OnnxAttribute> attributes;
  std::string domain{};                     // empty: ONNX's standard operators
  std::vector<std::string> more_outputs{};  // after `output`
};

// A constant: a variable's values, or a parameter of an operation.
struct OnnxTensor {
  std::string name;
  Shape shape;
  std::variant<std::vector<float>, std::vector<int64_t>> values;  // [shape], row-major
};

struct OnnxGraph {
  struct Port {
    std::string name;
    Shape shape;  // without the batch, whose size is not fixed in the file
    DType dtype = DType::kFloat32;
    // [batch, longest] instead, an extent that is not fixed either: negative numbers pad the rows.
    bool ragged = false;
    bool text = false;  // strings; `dtype` is not used
  };
  std::string name;
  std::vector<Port> inputs;  // in the order of the model; one per InputLayer
  std::vector<Port> outputs;
  std::vector<OnnxNode> nodes;  // inputs before their users
  std::vector<OnnxTensor> constants;
};

// One layer's variable with its values, borrowed.
struct OnnxVariable {
  std::string name;  // "conv2d/kernel"
  Shape shape;
  absl::Span<const float> values;  // [shape], row-major
  // A table that takes any id: row i belongs to ids[i], and the last row, after those, to all other ids.
  bool by_ids = false;
  absl::Span<const int64_t> ids{};
};

// A value of the graph: an index into the builder's values.
using OnnxValue = int;

// Builds one graph, from one thread.
class OnnxBuilder {
 public:
  // --- Values ---
  // The shape without the batch, channels last.
  const Shape& ShapeOf(OnnxValue value) const { return values_[static_cast<size_t>(value)].shape; }
  // Integers occur only in values that are looked up in tables.
  DType TypeOf(OnnxValue value) const { return values_[static_cast<size_t>(value)].dtype; }
  // [mask at the end of the current layer's inputs] the own input whose steps it masks (Node::masked).
  absl::Span<const int> masked() const { return masked_; }
  // Whether the value is a ragged input of the model.
  bool IsRagged(OnnxValue value) const { return values_[static_cast<size_t>(value)].ragged; }
  // The name of the value in the layout [batch, shape].
  std::string ChannelsLast(OnnxValue value);
  // The name of the value in the layout [batch, last extent, other extents].
  std::string ChannelsFirst(OnnxValue value);
  // Whether ChannelsFirst() adds no transposition.
  bool IsChannelsFirst(OnnxValue value) const {
    return !values_[static_cast<size_t>(value)].channels_first.empty();
  }
  // `name` is a node's output in this layout; `shape` is without the batch, channels last.
  OnnxValue FromChannelsLast(std::string name, const Shape& shape, DType type = DType::kFloat32);
  OnnxValue FromChannelsFirst(std::string name, const Shape& shape);
  // Adds an operation that treats all elements alike. `compute` gets the names of the inputs and returns the
  // name of the output. If all inputs exist with channels first, the operation uses that layout, otherwise
  // channels last. The inputs must have equal shapes.
  OnnxValue Elementwise(absl::Span<const OnnxValue> inputs,
                        absl::FunctionRef<std::string(const std::vector<std::string>&)> compute);

  // --- Nodes and constants ---
  // Returns the output's name: "LAYER/OP_TYPE", with a number if that name is taken.
  std::string Add(absl::string_view op_type, std::vector<std::string> inputs,
                  std::vector<OnnxAttribute> attributes = {});
  // The same for an operation with several outputs: returns their names.
  std::vector<std::string> AddWithOutputs(int outputs, absl::string_view op_type,
                                          std::vector<std::string> inputs,
                                          std::vector<OnnxAttribute> attributes);
  std::string Cast(std::string from, DType to);
  // Returns the name of a variable's values in the graph. `permutation` reorders the axes (empty: unchanged).
  // `shape` is the resulting shape (empty: the shape of the permuted axes). If a layer is called again,
  // returns the tensor of its first call.
  std::string Weights(const OnnxVariable& variable, absl::Span<const int> permutation = {},
                      const Shape& shape = {});
  // The ids of `values` [batch, shape] by `table`.
  std::string IdsOf(const IdTable& table, std::string values, const Shape& shape);
  // The rows of a table for `ids`, integers or floats of this type.
  std::string GatherRows(const OnnxVariable& table, std::string ids, DType type);
  // Adds a constant to the current layer and returns its name.
  std::string Floats(absl::string_view what, const Shape& shape, std::vector<float> values);
  std::string Scalar(absl::string_view what, float value) { return Floats(what, {}, {value}); }
  std::string Ints(absl::string_view what, std::vector<int64_t> values);

 private:
  friend class OnnxModelWriter;
  struct Value {
    Shape shape;
    std::string channels_last, channels_first;  // empty: not in the graph yet
    DType dtype = DType::kFloat32;
    bool ragged = false;
  };
  std::string UniqueName(absl::string_view wanted);
  // Renames the value `name` to `to`.
  void Rename(const std::string& name, const std::string& to);

  OnnxGraph graph_;
  std::vector<Value> values_;
  std::set<std::string> names_;
  std::map<std::string, int, std::less<>> suffixes_;  // [taken name] the last number appended to it
  std::set<std::string> weights_;                     // names of variables that are in the graph
  absl::Span<const int> masked_;
  std::string layer_;  // the layer whose nodes are being added
};

}  // namespace cairn::nn
