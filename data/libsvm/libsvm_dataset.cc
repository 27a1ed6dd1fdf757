// libsvm and libffm files (libsvm_line.h), found by libsvm_files.h. Plain files are mapped; gzip files are decompressed
// into memory.
//
// Loading checks every line once and keeps its place and its label. An example is parsed again when it is read, so a
// set may be larger than memory.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "data/array/read_ahead.h"
#include "data/file/bad_rows.h"
#include "data/first_error.h"
#include "data/formats.h"
#include "data/libsvm/libsvm_files.h"
#include "data/libsvm/libsvm_inputs.h"
#include "data/libsvm/libsvm_line.h"
#include "data/row_writer.h"
#include "data/text/text_lines.h"

namespace cairn::data {
namespace {

using Takes = LibsvmInput::Takes;

class LibsvmRows final : public RowSource {
 public:
  LibsvmRows(std::vector<LibsvmInput> inputs, TextLines lines)
      : inputs_(std::move(inputs)), lines_(std::move(lines)), read_ahead_(lines_.files()) {
    int64_t values = 0;
    for (const LibsvmInput& input : inputs_) values += input.values;
    row_shape_ = {values};
  }

  int64_t size() const override { return lines_.size(); }
  const Shape& row_shape() const override { return row_shape_; }
  std::vector<int64_t> ragged_parts() const override {
    std::vector<int64_t> ragged;
    for (const LibsvmInput& input : inputs_) ragged.push_back(input.ragged ? input.values : -1);
    return ragged;
  }
  void Prefetch(int64_t index) const override { read_ahead_.Fetch(lines_.BytesOf(index)); }
  void PrefetchMemory(int64_t index) const override { lines_.PrefetchMemory(index); }
  void Read(int64_t index, absl::Span<const MutableTensorView> to) const override {
    LibsvmLine line;
    if (const absl::Status status = Parse(index, line); !status.ok()) {
      // The place is found by a search of the file.
      if (error_.status().ok()) error_.Set(Annotate(status, lines_.Place(index)));
      line.entries.clear();
    }
    RowCursor cursor(to);
    for (const LibsvmInput& input : inputs_) {
      const auto pieces = cursor.Take(input.values);
      const bool floats = input.takes == Takes::kValues || input.takes == Takes::kVector;
      floats ? WriteFloats(line, input, pieces) : WriteIntegers(index, line, input, pieces);
    }
  }
  absl::Status status() const override { return error_.status(); }

 private:
  // Parses the line of an example, and checks that its inputs can hold it: the file may have changed since it was
  // loaded.
  absl::Status Parse(int64_t index, LibsvmLine& line) const {
    CAIRN_RETURN_IF_ERROR(ParseLibsvmLine(WithoutComment(lines_[index]), line));
    for (const LibsvmInput& input : inputs_) {
      CAIRN_RETURN_IF_ERROR(CheckFits(line, input));
      const int64_t count = input.ragged ? input.CountIn(line) : 0;
      if (count <= input.values) continue;
      return absl::InvalidArgumentError(absl::StrCat("has ", count, " entries for input '", input.name,
                                                     "', but the longest line had ", input.values,
                                                     " when the file was loaded"));
    }
    return absl::OkStatus();
  }

  // The entries of a line that an input takes, as numbers.
  template <typename T, typename NumberOf>
  static std::vector<T> Numbers(const LibsvmLine& line, const LibsvmInput& input, const NumberOf& number_of) {
    std::vector<T> numbers;
    for (const LibsvmEntry& entry : line.entries) {
      if (!input.field.has_value() || entry.field == *input.field) numbers.push_back(number_of(entry));
    }
    return numbers;
  }

  // Writes `numbers` and, if the input is not ragged, zeros behind them. Returns the first that a tensor cannot hold.
  template <typename T>
  static std::optional<int64_t> Write(const std::vector<T>& numbers, const LibsvmInput& input,
                                      absl::Span<const MutableTensorView> pieces) {
    const auto count = static_cast<int64_t>(numbers.size());
    const auto number = [&](int64_t i) { return i < count ? numbers[static_cast<size_t>(i)] : T{}; };
    return input.ragged ? WriteRagged(pieces[0], count, number) : WriteRow(pieces, input.scale, number);
  }

  void WriteFloats(const LibsvmLine& line, const LibsvmInput& input,
                   absl::Span<const MutableTensorView> pieces) const {
    if (input.takes == Takes::kValues) {
      Write(Numbers<float>(line, input, [](const LibsvmEntry& entry) { return entry.value; }), input, pieces);
      return;
    }
    std::vector<float> vector(static_cast<size_t>(input.values));
    for (const LibsvmEntry& entry : line.entries) vector[static_cast<size_t>(entry.index - 1)] = entry.value;
    Write(vector, input, pieces);
  }

  void WriteIntegers(int64_t index, const LibsvmLine& line, const LibsvmInput& input,
                     absl::Span<const MutableTensorView> pieces) const {
    const std::vector<int64_t> ids = Numbers<int64_t>(line, input, [&](const LibsvmEntry& entry) {
      return input.takes == Takes::kFields ? entry.field : input.IdOf(entry, line.has_fields);
    });
    const auto bad = Write(ids, input, pieces);
    // The place is found by a search of the file.
    if (bad && error_.status().ok())
      error_.Set(CannotHold(lines_.Place(index), *bad, ids[static_cast<size_t>(*bad)], pieces));
  }

  const std::vector<LibsvmInput> inputs_;
  const TextLines lines_;
  const ReadAhead read_ahead_;
  Shape row_shape_;
  mutable FirstError error_;
};

// Whether all labels are -1 or 1, as most sets of two classes have them.
bool AreSigns(const std::vector<float>& labels) {
  return std::all_of(labels.begin(), labels.end(), [](float label) { return std::fabs(label) == 1; });
}

// Reads the files of one set.
class LibsvmReader {
 public:
  LibsvmReader(const DataOptions& options, std::vector<LibsvmInput> inputs)
      : options_(options), inputs_(std::move(inputs)), bad_(options.max_bad_rows) {}

  absl::Status ReadFile(const std::string& path) {
    return lines_.ReadFile(path, bad_, [this](absl::string_view line) { return TakeLine(line); });
  }

  // Finishes the set, whose first file is `name`. `signs`: whether labels -1 become class 0; set by the training set,
  // whose labels must all be -1 or 1. A threshold applies to the labels as they are in the file.
  absl::StatusOr<Split> Finish(const std::string& name, std::optional<bool>& signs) {
    if (lines_.size() == 0) return absl::InvalidArgumentError(absl::StrCat(name, ": holds no examples"));
    Split split;
    split.inputs_name = name;
    split.targets_name = name;
    split.parts = lines_.parts();
    split.remark = bad_.Summary(name);
    if (labelled_) {
      if (!signs.has_value()) signs = !options_.label_threshold.has_value() && AreSigns(labels_);
      if (*signs) std::replace(labels_.begin(), labels_.end(), -1.0f, 0.0f);
      const int64_t classes = ClassesIn(labels_);
      split.targets = {.values = std::move(labels_), .num_classes = classes};
    }
    split.columns = ColumnsRead();
    split.inputs = std::make_unique<LibsvmRows>(std::move(inputs_), std::move(lines_));
    return split;
  }

 private:
  absl::StatusOr<bool> TakeLine(absl::string_view text) {
    const absl::string_view line = WithoutComment(text);
    if (line.empty()) return false;
    CAIRN_RETURN_IF_ERROR(ParseLibsvmLine(line, parsed_));
    if (lines_.size() == 0 && options_.labels_optional) labelled_ = parsed_.has_label;
    if (labelled_ != parsed_.has_label) {
      return absl::InvalidArgumentError(labelled_ ? "has no label in front of its entries"
                                                  : "has a label, but the first line has none");
    }
    const auto label = static_cast<float>(parsed_.label);
    if (labelled_ && !std::isfinite(label)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the label is ", parsed_.label, ", which no float32 holds"));
    }
    if (has_fields_.value_or(parsed_.has_fields) != parsed_.has_fields && !parsed_.entries.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "is ", parsed_.has_fields ? "field:index:value" : "index:value", ", unlike the lines before it"));
    }
    for (const LibsvmInput& input : inputs_) CAIRN_RETURN_IF_ERROR(CheckFits(parsed_, input));
    if (!parsed_.entries.empty()) has_fields_ = parsed_.has_fields;
    for (LibsvmInput& input : inputs_) {
      if (input.ragged) input.values = std::max(input.values, input.CountIn(parsed_));
    }
    if (labelled_) labels_.push_back(label);
    return true;
  }

  Columns ColumnsRead() const {
    Columns columns{.format = kLibsvmFormat, .names = {"label", "field", "index", "value"}, .label = 0};
    for (const LibsvmInput& input : inputs_) {
      columns.hashed_ids |= input.table_rows > 0;
      columns.inputs.push_back(input.takes == Takes::kFields ? 1 : input.takes == Takes::kIndices ? 2 : 3);
    }
    return columns;
  }

  const DataOptions& options_;
  std::vector<LibsvmInput> inputs_;
  BadRows bad_;
  TextLines lines_;
  std::vector<float> labels_;
  bool labelled_ = true;
  std::optional<bool> has_fields_;  // of the lines so far
  LibsvmLine parsed_;
};

// `signs`: as LibsvmReader::Finish() describes.
absl::StatusOr<Split> ReadLibsvmSet(const DataOptions& options, const std::vector<std::string>& files,
                                    std::optional<bool>& signs) {
  auto inputs = MakeLibsvmInputs(options);
  if (!inputs.ok()) return Annotate(inputs.status(), files.front());
  LibsvmReader reader(options, *std::move(inputs));
  for (const std::string& file : files) CAIRN_RETURN_IF_ERROR(reader.ReadFile(file));
  return reader.Finish(files.front(), signs);
}

}  // namespace

LoadedSplits LoadLibsvm(const DataOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(SetFiles files, FindLibsvmFiles(options.path));
  if (files.train.empty()) return std::nullopt;
  Splits splits;
  splits.remarks = std::move(files.remarks);
  std::optional<bool> signs;
  CAIRN_ASSIGN_OR_RETURN(splits.train, ReadLibsvmSet(options, files.train, signs));
  if (files.validation.empty()) return splits;
  CAIRN_ASSIGN_OR_RETURN(splits.validation, ReadLibsvmSet(options, files.validation, signs));
  return splits;
}

LoadedExamples LoadLibsvmExamples(const DataOptions& options) {
  if (!IsLibsvmFile(options.path)) return std::nullopt;
  std::optional<bool> signs;
  CAIRN_ASSIGN_OR_RETURN(Split split, ReadLibsvmSet(options, {options.path}, signs));
  return split;
}

}  // namespace cairn::data
