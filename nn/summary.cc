// Keras 3's model.summary(): keras/src/utils/summary_utils.py prints a table with the library rich. On a
// terminal of 80 columns its three columns are 31, 22 and 13 characters wide, plus a blank on each side. The
// table of a graph has a fourth column with each layer's connections; its widths are 19, 17, 10 and 17.
#include <algorithm>
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

// Whether each layer reads only the one before, once.
bool IsChain(const Model& model) {
  if (!model.functional()) return true;
  const std::vector<SummaryRow>& rows = model.rows();
  for (size_t i = 1; i < rows.size(); ++i) {
    const std::vector<std::string>& inputs = rows[i].connected_to;
    if (inputs.size() != 1 || inputs[0] != absl::StrCat(rows[i - 1].name, "[0][0]")) return false;
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
  for (const SummaryRow& row : model.rows()) {
    int64_t parameters = 0;
    for (const int variable : row.variables)
      parameters += model.variables()[static_cast<size_t>(variable)].shape.num_elements();
    table.AddRow(
        cells({absl::StrCat(row.name, " (", row.class_name, ")"), row.output_shape, WithCommas(parameters)},
              row.connected_to.empty() ? "-" : absl::StrJoin(row.connected_to, ", ")));
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
