// Keras 3's model.summary(): keras/src/utils/summary_utils.py prints a table with the library rich. On a
// terminal of 80 columns its three columns are 31, 22 and 13 characters wide, plus a blank on each side. The
// table of a graph has a fourth column with each layer's connections; its widths are 19, 17, 10 and 17.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "nn/model.h"

namespace cairn::nn {
namespace {

const std::vector<size_t>& WidthsOf(bool graph) {
  static const auto* const chain = new std::vector<size_t>{31, 22, 13};
  static const auto* const connected = new std::vector<size_t>{19, 17, 10, 17};
  return graph ? *connected : *chain;
}
constexpr size_t kNumberColumn = 2;  // right-aligned
using Cells = std::vector<std::string>;

std::string Repeat(absl::string_view piece, size_t times) {
  std::string repeated;
  for (size_t i = 0; i < times; ++i) absl::StrAppend(&repeated, piece);
  return repeated;
}

// "93,322"
std::string WithCommas(int64_t number) {
  if (number < 1000) return absl::StrCat(number);
  return absl::StrFormat("%s,%03d", WithCommas(number / 1000), number % 1000);
}

// summary_utils.readable_memory_size
std::string ReadableSize(int64_t bytes) {
  auto size = static_cast<double>(bytes);
  for (const char* unit : {"B", "KB", "MB", "GB", "TB"}) {
    if (size < 1024) return absl::StrFormat("%.2f %s", size, unit);
    size /= 1024;
  }
  return absl::StrFormat("%.2f PB", size);
}

// Breaks the text at blanks into lines of at most `width` characters. A longer word is cut with an ellipsis,
// as in rich.
std::vector<std::string> Wrap(const std::string& text, size_t width) {
  std::vector<std::string> lines;
  for (absl::string_view word : absl::StrSplit(text, ' ')) {
    std::string shown(word);
    if (shown.size() > width) shown = absl::StrCat(shown.substr(0, width - 1), "…");
    if (!lines.empty() && lines.back().size() + 1 + word.size() <= width) {
      absl::StrAppend(&lines.back(), " ", shown);
    } else {
      lines.push_back(shown);
    }
  }
  return lines;
}

// The number of columns that a UTF-8 text takes on a terminal: an ellipsis takes one.
size_t Columns(absl::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// A table that grows row by row.
class Table {
 public:
  explicit Table(const std::vector<size_t>& widths) : widths_(widths) {}

  void AddHeader(const Cells& cells) {
    text_ = absl::StrCat(Rule("┏", "━", "┳", "┓"), Row(cells, "┃"), Rule("┡", "━", "╇", "┩"));
  }
  void AddRow(const Cells& cells) {
    if (std::exchange(has_rows_, true)) absl::StrAppend(&text_, Rule("├", "─", "┼", "┤"));
    absl::StrAppend(&text_, Row(cells, "│"));
  }
  std::string Finish() const { return absl::StrCat(text_, Rule("└", "─", "┴", "┘")); }

 private:
  std::string Row(const Cells& cells, absl::string_view edge) const {
    std::vector<std::vector<std::string>> wrapped;
    size_t height = 0;
    for (size_t column = 0; column < cells.size(); ++column) {
      wrapped.push_back(Wrap(cells[column], widths_[column]));
      height = std::max(height, wrapped.back().size());
    }
    std::string row;
    for (size_t line = 0; line < height; ++line) {
      for (size_t column = 0; column < cells.size(); ++column) {
        const std::string text = line < wrapped[column].size() ? wrapped[column][line] : "";
        const std::string blanks(widths_[column] - Columns(text), ' ');
        const bool right = column == kNumberColumn;
        absl::StrAppend(&row, edge, " ", right ? blanks : text, right ? text : blanks, " ");
      }
      absl::StrAppend(&row, edge, "\n");
    }
    return row;
  }

  std::string Rule(absl::string_view left, absl::string_view line, absl::string_view middle,
                   absl::string_view right) const {
    std::vector<std::string> pieces;
    for (size_t width : widths_) pieces.push_back(Repeat(line, width + 2));
    return absl::StrCat(left, absl::StrJoin(pieces, middle), right, "\n");
  }

  const std::vector<size_t>& widths_;
  std::string text_;
  bool has_rows_ = false;
};

std::string KerasShape(const Shape& shape) {
  return absl::StrCat("(None", shape.rank() > 0 ? ", " : "", absl::StrJoin(shape.dims(), ", "), ")");
}

// [node] The number of its layer's call.
std::vector<int> CallNumbers(const Model& model) {
  std::map<const Layer*, int> calls;
  std::vector<int> numbers;
  for (const Node& node : model.nodes()) numbers.push_back(calls[node.layer.get()]++);
  return numbers;
}

// "conv2d[0][0], add[0][0]": the layer, the number of its call, and the number of the output.
std::string Connections(const Model& model, absl::Span<const int> call_numbers, const Node& node) {
  std::vector<std::string> connections;
  for (const int input : node.own_inputs()) {
    if (input < 0) {
      const ModelInput& from = model.inputs()[static_cast<size_t>(-1 - input)];
      connections.push_back(
          absl::StrCat(from.ids_layer != nullptr ? from.ids_layer->name() : from.name, "[0][0]"));
      continue;
    }
    const auto& layer = model.nodes()[static_cast<size_t>(input)].layer;
    connections.push_back(absl::StrCat(layer->name(), "[", call_numbers[static_cast<size_t>(input)], "][0]"));
  }
  return absl::StrJoin(connections, ", ");
}

bool IsChain(const Model& model) {
  int before = Node::OfModelInput(0);
  for (size_t index = 0; index < model.nodes().size(); ++index) {
    const Node& node = model.nodes()[index];
    if (node.layer->is_mask()) continue;
    if (node.own_inputs().size() != 1 || node.inputs[0] != before) return false;
    before = static_cast<int>(index);
  }
  return model.inputs().size() == 1;
}

}  // namespace

std::string SummaryTable(const Model& model) {
  const bool graph = !IsChain(model);
  Table table(WidthsOf(graph));
  const auto cells = [&](Cells row, std::string connections) {
    if (graph) row.push_back(std::move(connections));
    return row;
  };
  table.AddHeader(cells({"Layer (type)", "Output Shape", "Param #"}, "Connected to"));
  std::set<std::string> inputs;
  for (const ModelInput& input : model.inputs()) {
    const std::string shape = input.ragged ? "(None, None)" : KerasShape(input.shape);
    if (model.functional() && inputs.insert(input.name).second)  // a Sequential does not show its input
      table.AddRow(cells({absl::StrCat(input.name, " (InputLayer)"), shape, "0"}, "-"));
    if (input.ids_layer == nullptr) continue;
    table.AddRow(
        cells({absl::StrCat(input.ids_layer->name(), " (", input.ids_layer->class_name(), ")"), shape, "0"},
              absl::StrCat(input.name, "[0][0]")));
  }
  const std::vector<int> call_numbers = CallNumbers(model);
  std::set<const Layer*> shown;
  for (const Node& node : model.nodes()) {
    if (node.layer->is_mask() || !shown.insert(node.layer.get()).second) continue;  // one row for all calls
    int64_t parameters = 0;
    for (int variable : node.variables) {
      parameters += model.variables()[static_cast<size_t>(variable)].shape.num_elements();
    }
    table.AddRow(cells({absl::StrCat(node.layer->name(), " (", node.layer->class_name(), ")"),
                        KerasShape(node.output_shape), WithCommas(parameters)},
                       Connections(model, call_numbers, node)));
  }
  int64_t trainable = 0;
  for (const ModelVariable& variable : model.variables()) {
    if (variable.trainable()) trainable += variable.shape.num_elements();
  }
  const auto total = [](absl::string_view what, int64_t count) {
    return absl::StrCat(" ", what, " params: ", WithCommas(count), " (",
                        ReadableSize(count * static_cast<int64_t>(sizeof(float))), ")\n");
  };
  return absl::StrCat("Model: \"", model.name(), "\"\n", table.Finish(),
                      total("Total", model.num_parameters()), total("Trainable", trainable),
                      total("Non-trainable", model.num_parameters() - trainable));
}

}  // namespace cairn::nn
