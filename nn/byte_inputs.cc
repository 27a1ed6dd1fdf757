#include "nn/byte_inputs.h"

#include <algorithm>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"
#include "nn/layers/layer_registry.h"

namespace cairn::nn {
namespace {

// Finds out how one input of the model is used, by following it through the graph.
class Reader {
 public:
  Reader(const Model& model, absl::Span<const std::string> any_id) : model_(model), any_id_(any_id) {}

  ByteInput Follow(int input) {
    Visit(Node::OfModelInput(input), /*unchanged=*/true);
    return decided_;
  }

 private:
  // Visits the users of `source`. `unchanged`: `source` has the same values as the model's input.
  void Visit(int source, bool unchanged) {
    if (!seen_.insert(source).second) return;
    for (size_t i = 0; i < model_.nodes().size(); ++i) {
      const Node& node = model_.nodes()[i];
      if (node.layer->is_mask()) continue;  // the layer that makes the mask reads the same values
      if (std::find(node.inputs.begin(), node.inputs.end(), source) == node.inputs.end()) continue;
      const ByteUse use = ByteUseOf(node.layer->class_name());
      if (use == ByteUse::kPasses) {
        Visit(static_cast<int>(i), unchanged && OnlyReshapes(node.layer->class_name()));
      } else {
        Decide(node, use == ByteUse::kRaw, unchanged && node.inputs[0] == source);
      }
    }
  }

  // The number of ids that the layer of `node` looks up; 0: it looks none up.
  int64_t RowsOf(const Node& node) const {
    if (node.layer->class_name() == "CategoryEncoding")
      return node.output_shape[node.output_shape.rank() - 1];
    const bool is_table = node.layer->class_name() == "Embedding" ||
                          node.layer->class_name() == "ReversibleEmbedding" ||
                          node.layer->row_table() != nullptr;
    return is_table ? model_.variables()[static_cast<size_t>(node.variables.front())].shape[0] : 0;
  }

  void Decide(const Node& node, bool raw, bool unchanged) {
    const int64_t rows = unchanged && !absl::c_linear_search(any_id_, node.layer->name()) ? RowsOf(node) : 0;
    const bool smaller = rows > 0 && (decided_.table_rows == 0 || rows < decided_.table_rows);
    if (!decided_.layer.empty() && (decided_.raw || !raw) && !smaller) return;
    decided_ = {
        .raw = raw, .layer = node.layer->name(), .class_name = node.layer->class_name(), .table_rows = rows};
  }

  const Model& model_;
  const absl::Span<const std::string> any_id_;
  std::set<int> seen_;  // nodes and inputs
  ByteInput decided_;
};

}  // namespace

std::vector<ByteInput> ByteInputsOf(const Model& model, absl::Span<const std::string> any_id) {
  std::vector<ByteInput> inputs;
  for (size_t input = 0; input < model.inputs().size(); ++input) {
    inputs.push_back(Reader(model, any_id).Follow(static_cast<int>(input)));
  }
  return inputs;
}

}  // namespace cairn::nn
