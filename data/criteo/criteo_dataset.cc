// Criteo's click logs: the files that criteo_files.h finds. Plain files are mapped; gzip files are decompressed into
// memory.
//
// Loading checks every line once and keeps its place and its label. An example is parsed again when it is read, so a
// set may be larger than memory.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "data/array/read_ahead.h"
#include "data/criteo/criteo_files.h"
#include "data/criteo/criteo_inputs.h"
#include "data/criteo/criteo_line.h"
#include "data/file/bad_rows.h"
#include "data/first_error.h"
#include "data/formats.h"
#include "data/hashed_id.h"
#include "data/row_writer.h"
#include "data/text/text_lines.h"

namespace cairn::data {
namespace {

class CriteoRows final : public RowSource {
 public:
  CriteoRows(std::vector<CriteoInput> inputs, TextLines lines, bool labelled)
      : inputs_(std::move(inputs)),
        lines_(std::move(lines)),
        labelled_(labelled),
        read_ahead_(lines_.files()) {
    int64_t values = 0;
    for (const CriteoInput& input : inputs_) values += static_cast<int64_t>(input.fields.size());
    row_shape_ = {values};
  }

  int64_t size() const override { return lines_.size(); }
  const Shape& row_shape() const override { return row_shape_; }
  void Prefetch(int64_t index) const override { read_ahead_.Fetch(lines_.BytesOf(index)); }
  void PrefetchMemory(int64_t index) const override { lines_.PrefetchMemory(index); }
  void Read(int64_t index, absl::Span<const MutableTensorView> to) const override {
    CriteoLine line;
    error_.Set(ParseCriteoLine(lines_[index], labelled_, line));
    RowCursor cursor(to);
    for (const CriteoInput& input : inputs_) {
      const auto pieces = cursor.Take(static_cast<int64_t>(input.fields.size()));
      if (!input.categories) {
        WriteRow(pieces, input.scale, [&](int64_t i) {
          return CriteoNumber(line.numbers[static_cast<size_t>(input.fields[static_cast<size_t>(i)] - 1)]);
        });
        continue;
      }
      const auto id = [&](int64_t i) { return IdOf(line, input, static_cast<size_t>(i)); };
      const auto bad = WriteRow(pieces, {}, id);
      // The place is found by a search of the file.
      if (bad && error_.status().ok()) error_.Set(CannotHold(lines_.Place(index), *bad, id(*bad), pieces));
    }
  }
  absl::Status status() const override { return error_.status(); }

 private:
  static int64_t IdOf(const CriteoLine& line, const CriteoInput& input, size_t i) {
    const auto& category = line.categories[static_cast<size_t>(input.fields[i] - 1 - kCriteoNumbers)];
    if (input.table_rows == 0) return CriteoId(category);
    return HashedId(CriteoText(category), input.salts[i], input.table_rows);
  }

  const std::vector<CriteoInput> inputs_;
  const TextLines lines_;
  const bool labelled_;
  const ReadAhead read_ahead_;
  Shape row_shape_;
  mutable FirstError error_;
};

// Reads the files of one set.
class CriteoReader {
 public:
  CriteoReader(const DataOptions& options, bool labels_optional)
      : options_(options), labels_optional_(labels_optional), bad_(options.max_bad_rows) {}

  absl::Status ReadFile(const std::string& path) {
    return lines_.ReadFile(path, bad_, [this](absl::string_view line) { return TakeLine(line); });
  }

  // Finishes the set, whose first file is `name`.
  absl::StatusOr<Split> Finish(const std::string& name) {
    if (lines_.size() == 0) return absl::InvalidArgumentError(absl::StrCat(name, ": holds no examples"));
    Split split;
    split.inputs_name = name;
    split.targets_name = name;
    split.parts = lines_.parts();
    split.remark = bad_.Summary(name);
    if (labelled_) {
      const int64_t classes = ClassesIn(labels_);
      split.targets = {.values = std::move(labels_), .num_classes = classes};
    }
    auto inputs = MakeCriteoInputs(options_);
    if (!inputs.ok()) return Annotate(inputs.status(), name);
    split.columns = CriteoColumns(*inputs);
    split.inputs = std::make_unique<CriteoRows>(*std::move(inputs), std::move(lines_), labelled_);
    return split;
  }

 private:
  absl::StatusOr<bool> TakeLine(absl::string_view line) {
    if (lines_.size() == 0 && labels_optional_) {
      labelled_ = std::count(line.begin(), line.end(), '\t') >= kCriteoNumbers + kCriteoCategories;
    }
    CAIRN_RETURN_IF_ERROR(ParseCriteoLine(line, labelled_, parsed_));
    if (labelled_) labels_.push_back(parsed_.label);
    return true;
  }

  const DataOptions& options_;
  const bool labels_optional_;
  BadRows bad_;
  TextLines lines_;
  bool labelled_ = true;
  std::vector<float> labels_;
  CriteoLine parsed_;
};

absl::StatusOr<Split> ReadCriteoSet(const DataOptions& options, const std::vector<std::string>& files) {
  CriteoReader reader(options, options.labels_optional);
  for (const std::string& file : files) CAIRN_RETURN_IF_ERROR(reader.ReadFile(file));
  return reader.Finish(files.front());
}

}  // namespace

LoadedSplits LoadCriteo(const DataOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(SetFiles files, FindCriteoFiles(options.path));
  if (files.train.empty()) return std::nullopt;
  Splits splits;
  splits.remarks = std::move(files.remarks);
  CAIRN_ASSIGN_OR_RETURN(splits.train, ReadCriteoSet(options, files.train));
  if (files.validation.empty()) return splits;
  CAIRN_ASSIGN_OR_RETURN(splits.validation, ReadCriteoSet(options, files.validation));
  return splits;
}

LoadedExamples LoadCriteoExamples(const DataOptions& options) {
  if (!IsCriteoFile(options.path)) return std::nullopt;
  CAIRN_ASSIGN_OR_RETURN(Split split, ReadCriteoSet(options, {options.path}));
  return split;
}

}  // namespace cairn::data
