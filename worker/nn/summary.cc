// Keras 3's model.summary(): keras/src/utils/summary_utils.py prints a table with the library rich. On a
// terminal of 80 columns its three columns are 31, 22 and 13 characters wide, plus a blank on each side.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "worker/nn/model.h"

namespace cairn::nn {
namespace {

constexpr std::array<size_t, 3> kWidths = {31, 22, 13};
using Cells = std::array<std::string, 3>;

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

// Lines of at most `width` characters, broken at blanks; a longer word ends in an ellipsis, as rich cuts it.
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

// Columns that a UTF-8 text takes on a terminal: the ellipsis is one.
size_t Columns(absl::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string Row(const Cells& cells, absl::string_view edge) {
  std::array<std::vector<std::string>, 3> wrapped;
  size_t height = 0;
  for (size_t column = 0; column < 3; ++column) {
    wrapped[column] = Wrap(cells[column], kWidths[column]);
    height = std::max(height, wrapped[column].size());
  }
  std::string row;
  for (size_t line = 0; line < height; ++line) {
    for (size_t column = 0; column < 3; ++column) {
      const std::string text = line < wrapped[column].size() ? wrapped[column][line] : "";
      const std::string blanks(kWidths[column] - Columns(text), ' ');
      const bool right = column == 2;
      absl::StrAppend(&row, edge, " ", right ? blanks : text, right ? text : blanks, " ");
    }
    absl::StrAppend(&row, edge, "\n");
  }
  return row;
}

std::string Rule(absl::string_view left, absl::string_view line, absl::string_view middle,
                 absl::string_view right) {
  std::vector<std::string> pieces;
  for (size_t width : kWidths) pieces.push_back(Repeat(line, width + 2));
  return absl::StrCat(left, absl::StrJoin(pieces, middle), right, "\n");
}

std::string KerasShape(const Shape& shape) {
  return absl::StrCat("(None", shape.rank() > 0 ? ", " : "", absl::StrJoin(shape.dims(), ", "), ")");
}

}  // namespace

std::string SummaryTable(const Model& model) {
  std::string table =
      absl::StrCat("Model: \"", model.name(), "\"\n", Rule("┏", "━", "┳", "┓"),
                   Row({"Layer (type)", "Output Shape", "Param #"}, "┃"), Rule("┡", "━", "╇", "┩"));
  bool first = true;
  for (const Node& node : model.nodes()) {
    int64_t parameters = 0;
    for (int variable : node.variables) {
      parameters += model.variables()[static_cast<size_t>(variable)].shape.num_elements();
    }
    if (!first) absl::StrAppend(&table, Rule("├", "─", "┼", "┤"));
    first = false;
    absl::StrAppend(&table, Row({absl::StrCat(node.layer->name(), " (", node.layer->class_name(), ")"),
                                 KerasShape(node.output_shape), WithCommas(parameters)},
                                "│"));
  }
  const auto total = [](absl::string_view what, int64_t count) {
    return absl::StrCat(" ", what, " params: ", WithCommas(count), " (",
                        ReadableSize(count * static_cast<int64_t>(sizeof(float))), ")\n");
  };
  return absl::StrCat(table, Rule("└", "─", "┴", "┘"), total("Total", model.num_parameters()),
                      total("Trainable", model.num_parameters()), total("Non-trainable", 0));
}

}  // namespace cairn::nn
