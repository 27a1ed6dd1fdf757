// A model in inference as a graph of ONNX's operations, opset 17, without protobuf: worker/export writes it
// to a file.
//
// Layers add their nodes to an OnnxBuilder (Layer::ToOnnx). Keras' images are channels last, ONNX's
// convolutions want channels first: a value is kept in the layout it came in, and turned when somebody asks
// for the other one, once. So a chain of convolutions is turned at its ends alone, and what is flattened has
// Keras' order.
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

namespace cairn::nn {

class Model;

struct OnnxAttribute {
  std::string name;
  std::variant<int64_t, float, std::vector<int64_t>> value;
};

struct OnnxNode {
  std::string op_type;  // "Conv"
  std::string name;     // unique, as is the output
  std::vector<std::string> inputs;
  std::string output;
  std::vector<OnnxAttribute> attributes;
};

// A constant: a variable's values, or what an operation wants to know.
struct OnnxTensor {
  std::string name;
  Shape shape;
  std::variant<std::vector<float>, std::vector<int64_t>> values;  // [shape], row-major
};

struct OnnxGraph {
  struct Port {
    std::string name;
    Shape shape;  // without the batch, which has no size of its own in the file
  };
  std::string name;
  std::vector<Port> inputs;     // float32, as the model has them; one per InputLayer
  Port output;                  // float32
  std::vector<OnnxNode> nodes;  // inputs before their users
  std::vector<OnnxTensor> constants;
};

// One layer's variable with its values, borrowed.
struct OnnxVariable {
  std::string name;  // "conv2d/kernel"
  Shape shape;
  absl::Span<const float> values;  // [shape], row-major
};

// A value of the graph: an index into the builder's.
using OnnxValue = int;

// One graph, from one thread.
class OnnxBuilder {
 public:
  // --- Values ---
  // Without the batch, channels last.
  const Shape& ShapeOf(OnnxValue value) const { return values_[static_cast<size_t>(value)].shape; }
  // The name under which it is [batch, shape].
  std::string ChannelsLast(OnnxValue value);
  // The same as [batch, last extent, the others].
  std::string ChannelsFirst(OnnxValue value);
  // Whether that costs nothing.
  bool IsChannelsFirst(OnnxValue value) const {
    return !values_[static_cast<size_t>(value)].channels_first.empty();
  }
  // `name`: of a node's output, in this layout; `shape`: without the batch, channels last.
  OnnxValue FromChannelsLast(std::string name, const Shape& shape);
  OnnxValue FromChannelsFirst(std::string name, const Shape& shape);
  // What treats all elements alike, in the layout that is there: `compute` gets the inputs' names and returns
  // the output's. Inputs of one shape, or all of them with channels first.
  OnnxValue Elementwise(absl::Span<const OnnxValue> inputs,
                        absl::FunctionRef<std::string(const std::vector<std::string>&)> compute);

  // --- Nodes and constants ---
  // Returns the output's name: "LAYER/OP_TYPE", and a number where that is taken.
  std::string Add(absl::string_view op_type, std::vector<std::string> inputs,
                  std::vector<OnnxAttribute> attributes = {});
  // The name of a variable's values, under its own name in the order of axes that `permutation` gives (none:
  // as it is) and of `shape` (none: of that order's). Of a layer that is called again, what it was the first
  // time.
  std::string Weights(const OnnxVariable& variable, absl::Span<const int> permutation = {},
                      const Shape& shape = {});
  // The name of constants of this layer.
  std::string Floats(absl::string_view what, const Shape& shape, std::vector<float> values);
  std::string Scalar(absl::string_view what, float value) { return Floats(what, {}, {value}); }
  std::string Ints(absl::string_view what, std::vector<int64_t> values);

 private:
  friend absl::StatusOr<OnnxGraph> MakeOnnxGraph(const Model& model, absl::Span<const float> parameters);
  struct Value {
    Shape shape;
    std::string channels_last, channels_first;  // empty: not there yet
  };
  std::string UniqueName(absl::string_view wanted);
  // Gives the value that `name` is another name.
  void Rename(const std::string& name, const std::string& to);

  OnnxGraph graph_;
  std::vector<Value> values_;
  std::set<std::string> names_;
  std::map<std::string, int, std::less<>> suffixes_;  // by a name that was taken: the last one given
  std::set<std::string> weights_;                     // names of variables that are in the graph
  std::string layer_;                                 // whose nodes are being added
};

// `parameters` in the model's flat order. UNIMPLEMENTED naming the layer that ONNX's operations do not
// express.
absl::StatusOr<OnnxGraph> MakeOnnxGraph(const Model& model, absl::Span<const float> parameters);

}  // namespace cairn::nn
