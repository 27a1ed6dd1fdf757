// Criteo's click logs: the files that criteo_files.h finds. Plain files are mapped; gzip files are decompressed into
// memory.
//
// Loading checks every line once and keeps its place and its label. An example is parsed again when it is read, so a
// set may be larger than memory.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/core/status.h"
#include "data/array/read_ahead.h"
#include "data/criteo/criteo_files.h"
#include "data/criteo/criteo_inputs.h"
#include "data/criteo/criteo_line.h"
#include "data/file/bad_rows.h"
#include "data/file/byte_reader.h"
#include "data/file/first_error.h"
#include "data/formats.h"
#include "data/hashed_id.h"
#include "data/row_writer.h"

namespace cairn::data {
namespace {

// The line of `text` that begins at `at`, without its end.
absl::string_view LineAt(absl::string_view text, size_t at) {
  const absl::string_view rest = text.substr(at);
  return rest.substr(0, rest.find('\n'));
}

// The checked lines of a set.
struct Lines {
  std::vector<FilePart> parts;     // [file] in the order of their examples
  std::vector<SharedBytes> files;  // [file]
  std::vector<uint64_t> offsets;   // [example] where its line begins in its file
  bool labelled = true;

  absl::string_view TextOf(size_t file) const {
    return {reinterpret_cast<const char*>(files[file].data()), files[file].size()};
  }
  size_t FileOf(int64_t example) const {
    const auto after =
        std::upper_bound(parts.begin(), parts.end(), example,
                         [](int64_t index, const FilePart& part) { return index < part.first; });
    return static_cast<size_t>(after - parts.begin()) - 1;
  }
  absl::string_view LineOf(int64_t example) const {
    return absl::StripSuffix(LineAt(TextOf(FileOf(example)), offsets[static_cast<size_t>(example)]), "\r");
  }
  // "day_0: line 7"
  std::string Place(int64_t example) const {
    const size_t file = FileOf(example);
    const absl::string_view before = TextOf(file).substr(0, offsets[static_cast<size_t>(example)]);
    return absl::StrCat(parts[file].path, ": line ", std::count(before.begin(), before.end(), '\n') + 1);
  }
};

class CriteoRows final : public RowSource {
 public:
  CriteoRows(std::vector<CriteoInput> inputs, Lines lines)
      : inputs_(std::move(inputs)), lines_(std::move(lines)), read_ahead_(lines_.files) {
    int64_t values = 0;
    for (const CriteoInput& input : inputs_) values += static_cast<int64_t>(input.fields.size());
    row_shape_ = {values};
  }

  int64_t size() const override { return static_cast<int64_t>(lines_.offsets.size()); }
  const Shape& row_shape() const override { return row_shape_; }
  void Prefetch(int64_t index) const override {
    constexpr size_t kUsualLine = 512;  // the end of the line is not searched, which would wait for the disk
    const absl::Span<const uint8_t> file = lines_.files[lines_.FileOf(index)].span();
    read_ahead_.Fetch(file.subspan(lines_.offsets[static_cast<size_t>(index)], kUsualLine));
  }
  void Read(int64_t index, absl::Span<const MutableTensorView> to) const override {
    CriteoLine line;
    error_.Set(ParseCriteoLine(lines_.LineOf(index), lines_.labelled, line));
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
  const Lines lines_;
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
    CAIRN_ASSIGN_OR_RETURN(SharedBytes bytes, ReadFileBytes(path));
    lines_.parts.push_back({path, static_cast<int64_t>(lines_.offsets.size())});
    lines_.files.push_back(std::move(bytes));
    const absl::string_view text = lines_.TextOf(lines_.files.size() - 1);
    int64_t number = 0;
    for (size_t at = 0; at < text.size();) {
      const absl::string_view whole = LineAt(text, at);
      const absl::string_view line = absl::StripSuffix(whole, "\r");
      ++number;
      if (!line.empty()) {
        const absl::Status taken = TakeLine(line, at);
        if (!taken.ok()) {
          CAIRN_RETURN_IF_ERROR(bad_.Skip(Annotate(taken, absl::StrCat(path, ": line ", number))));
        }
      }
      at += whole.size() + 1;
    }
    return absl::OkStatus();
  }

  // Finishes the set, whose first file is `name`.
  absl::StatusOr<Split> Finish(const std::string& name) {
    if (lines_.offsets.empty()) return absl::InvalidArgumentError(absl::StrCat(name, ": holds no examples"));
    Split split;
    split.inputs_name = name;
    split.targets_name = name;
    split.parts = lines_.parts;
    split.remark = bad_.Summary(name);
    if (lines_.labelled) {
      const int64_t classes = ClassesIn(labels_);
      split.targets = {.values = std::move(labels_), .num_classes = classes};
    }
    auto inputs = MakeCriteoInputs(options_);
    if (!inputs.ok()) return Annotate(inputs.status(), name);
    split.columns = CriteoColumns(*inputs);
    split.inputs = std::make_unique<CriteoRows>(*std::move(inputs), std::move(lines_));
    return split;
  }

 private:
  absl::Status TakeLine(absl::string_view line, size_t at) {
    if (lines_.offsets.empty() && labels_optional_) {
      lines_.labelled = std::count(line.begin(), line.end(), '\t') >= kCriteoNumbers + kCriteoCategories;
    }
    CAIRN_RETURN_IF_ERROR(ParseCriteoLine(line, lines_.labelled, parsed_));
    lines_.offsets.push_back(at);
    if (lines_.labelled) labels_.push_back(parsed_.label);
    return absl::OkStatus();
  }

  const DataOptions& options_;
  const bool labels_optional_;
  BadRows bad_;
  Lines lines_;
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
