// CSV: train.csv and test.csv or validation.csv, each perhaps in pieces (train-0.csv, train-1.csv), or one
// file.
//
// One column holds the label, the others numbers. Whether there is a header, and what the labels are, follows
// from the training set: whole numbers from 0 up are class indices, words become class indices in their
// sorted order, any other numbers are values to regress to. All of it is kept in memory.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "worker/data/array_rows.h"
#include "worker/data/bad_rows.h"
#include "worker/data/byte_reader.h"
#include "worker/data/csv.h"
#include "worker/data/file_sets.h"
#include "worker/data/formats.h"

namespace cairn::data {
namespace {

using Fields = std::vector<absl::string_view>;

constexpr const char* kLabelNames[] = {"label", "target", "class"};

bool IsLabelName(absl::string_view name) {
  return std::any_of(std::begin(kLabelNames), std::end(kLabelNames),
                     [&](const char* known) { return absl::EqualsIgnoreCase(name, known); });
}

// An empty field, or what pandas and R write for one.
bool IsMissing(absl::string_view field) {
  for (const char* word : {"", "NA", "N/A", "nan", "null"}) {
    if (absl::EqualsIgnoreCase(field, word)) return true;
  }
  return false;
}

std::optional<float> ToNumber(absl::string_view field) {
  float value = 0;
  if (!absl::SimpleAtof(field, &value) || !std::isfinite(value)) return std::nullopt;
  return value;
}

// "3", but neither "3.0" nor "-3".
std::optional<int64_t> ToClassIndex(absl::string_view field) {
  int64_t value = 0;
  const bool digits = field.find_first_not_of("0123456789") == absl::string_view::npos;
  if (!digits || !absl::SimpleAtoi(field, &value) || value > kLargestLabel) return std::nullopt;
  return value;
}

// A field as messages show it: not all of a long one, and nothing that a terminal obeys.
std::string Shown(absl::string_view field) {
  constexpr size_t kMost = 40;
  return absl::StrCat("'", absl::CHexEscape(field.substr(0, kMost)), field.size() > kMost ? "..." : "", "'");
}

enum class LabelKind { kUnknown, kClassIndices, kNumbers, kWords };

// What the training set's files say of themselves, and the validation set's must too.
struct Schema {
  bool has_header = false;
  std::vector<std::string> columns;  // names; their numbers, from 0, without a header
  size_t label = 0;                  // index into columns
  std::vector<size_t> features;      // the same
  LabelKind labels = LabelKind::kUnknown;
  std::map<std::string, int64_t> words;  // class index of each
};

// By name, or where no column has it, by index.
absl::StatusOr<size_t> FindColumn(const std::vector<std::string>& columns, const std::string& key) {
  const auto found = std::find(columns.begin(), columns.end(), key);
  if (found != columns.end()) return static_cast<size_t>(found - columns.begin());
  const auto index = ToClassIndex(key);
  if (index && *index < static_cast<int64_t>(columns.size())) return static_cast<size_t>(*index);
  constexpr size_t kMost = 20;
  const auto shown = absl::MakeConstSpan(columns).subspan(0, kMost);
  return absl::InvalidArgumentError(absl::StrCat("has no column '", key,
                                                 "'; it has: ", absl::StrJoin(shown, ", "),
                                                 columns.size() > kMost ? ", ..." : ""));
}

// A first record names the columns if it has the label column's name, or else if nothing in it is a number.
bool IsHeader(const Fields& fields, const DataOptions& options) {
  const bool named = !options.label_column.empty() && !ToClassIndex(options.label_column);
  for (const absl::string_view field : fields) {
    if (named ? field == options.label_column : IsLabelName(field)) return true;
  }
  return std::none_of(fields.begin(), fields.end(), [](absl::string_view field) {
    return ToNumber(field) || (!field.empty() && IsMissing(field));
  });
}

absl::StatusOr<Schema> MakeSchema(const Fields& fields, const DataOptions& options) {
  Schema schema;
  schema.has_header = IsHeader(fields, options);
  for (const absl::string_view field : fields) {
    schema.columns.push_back(schema.has_header ? std::string(field) : absl::StrCat(schema.columns.size()));
  }
  const auto& columns = schema.columns;
  if (!options.label_column.empty()) {
    CAIRN_ASSIGN_OR_RETURN(schema.label, FindColumn(columns, options.label_column));
  } else {
    const auto named = std::find_if(columns.begin(), columns.end(), IsLabelName);
    schema.label = std::min(static_cast<size_t>(named - columns.begin()), columns.size() - 1);
  }
  std::vector<std::string> features = options.feature_columns;
  if (features.empty() && options.input_names.size() > 1 &&
      std::find(columns.begin(), columns.end(), options.input_names.front()) != columns.end()) {
    features = options.input_names;
  }
  for (const std::string& feature : features) {
    CAIRN_ASSIGN_OR_RETURN(schema.features.emplace_back(), FindColumn(columns, feature));
  }
  if (features.empty()) {
    for (size_t i = 0; i < columns.size(); ++i) {
      if (i != schema.label) schema.features.push_back(i);
    }
  }
  if (schema.features.empty()) return absl::InvalidArgumentError("has one column, which is the label's");
  return schema;
}

// Reads the files of one set into memory.
class SetReader {
 public:
  // For training `schema` is empty and learnt from the files; for validation it is what training has learnt.
  SetReader(const DataOptions& options, Schema schema)
      : options_(options),
        training_(schema.columns.empty()),
        schema_(std::move(schema)),
        bad_(options.max_bad_rows) {}

  absl::Status ReadFile(const std::string& path) {
    CAIRN_ASSIGN_OR_RETURN(const SharedBytes bytes, ReadFileBytes(path));
    CsvReader csv({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    bool first = true;
    for (Fields fields;;) {
      const auto more = csv.Next(fields);
      const auto place = [&] { return absl::StrCat(path, ": line ", csv.line()); };
      if (more.ok() && !*more) return absl::OkStatus();
      if (std::exchange(first, false)) {
        // Too much hangs on it to leave it out.
        if (!more.ok()) return absl::InvalidArgumentError(Annotate(more.status(), place()).message());
        CAIRN_ASSIGN_OR_RETURN(const bool header, TakeFirst(fields, path));
        if (header) continue;
      }
      const absl::Status taken = more.ok() ? TakeRow(fields) : more.status();
      if (taken.ok()) continue;
      CAIRN_RETURN_IF_ERROR(bad_.Skip(Annotate(taken, place())));
    }
  }

  // Ends the reading of the set, which began with the file `name`.
  absl::StatusOr<Split> Finish(const std::string& name) {
    if (labels_.empty()) return absl::InvalidArgumentError(absl::StrCat(name, ": holds no examples"));
    if (training_ && schema_.labels == LabelKind::kWords) NumberWords();
    Split split;
    split.inputs_name = name;
    split.targets_name = name;
    split.remark = bad_.Summary(name);
    split.targets.values = std::move(labels_);
    split.targets.num_classes = schema_.labels == LabelKind::kNumbers ? 0 : largest_label_ + 1;
    const auto numbers = std::make_shared<const std::vector<float>>(std::move(numbers_));
    const absl::Span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(numbers->data()),
                                          numbers->size() * sizeof(float));
    Array inputs{ElementType::kFloat32,
                 {split.targets.size(), static_cast<int64_t>(schema_.features.size())},
                 SharedBytes(bytes, numbers)};
    CAIRN_ASSIGN_OR_RETURN(split.inputs, MakeArrayRows(std::move(inputs), name, options_.input_scale));
    return split;
  }

  const Schema& schema() const { return schema_; }

 private:
  // A file's first record: true where it is the header.
  absl::StatusOr<bool> TakeFirst(const Fields& fields, const std::string& path) {
    if (schema_.columns.empty()) {
      auto schema = MakeSchema(fields, options_);
      if (!schema.ok()) return Annotate(schema.status(), path);
      schema_ = *std::move(schema);
    } else if (schema_.has_header &&
               !std::equal(fields.begin(), fields.end(), schema_.columns.begin(), schema_.columns.end())) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": line 1: the header differs from that of the first file of the training set"));
    }
    return schema_.has_header;
  }

  // Adds one example, or says what is wrong with the record.
  absl::Status TakeRow(const Fields& fields) {
    if (fields.size() != schema_.columns.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("has ", fields.size(), " fields, the first line ", schema_.columns.size()));
    }
    const size_t before = numbers_.size();
    const absl::Status taken = TakeFields(fields);
    if (!taken.ok()) numbers_.resize(before);
    return taken;
  }

  absl::Status TakeFields(const Fields& fields) {
    for (const size_t column : schema_.features) {
      const absl::string_view field = fields[column];
      const auto number = IsMissing(field) ? options_.missing_value : ToNumber(field);
      if (!number) {
        return absl::InvalidArgumentError(absl::StrCat("column '", schema_.columns[column], "' ",
                                                       IsMissing(field)
                                                           ? "is empty and no number stands for that"
                                                           : "holds " + Shown(field) + ", no number"));
      }
      numbers_.push_back(*number);
    }
    CAIRN_ASSIGN_OR_RETURN(const float label, ReadLabel(fields[schema_.label]));
    labels_.push_back(label);
    return absl::OkStatus();
  }

  absl::StatusOr<float> ReadLabel(absl::string_view field) {
    const auto refuse = [&](absl::string_view what) {
      return absl::InvalidArgumentError(
          absl::StrCat("the label in column '", schema_.columns[schema_.label], "' ", what));
    };
    if (IsMissing(field)) return refuse("is missing");
    const auto index = ToClassIndex(field);
    const auto number = ToNumber(field);
    if (schema_.labels == LabelKind::kUnknown) {
      schema_.labels = index ? LabelKind::kClassIndices : number ? LabelKind::kNumbers : LabelKind::kWords;
    } else if (training_ && schema_.labels == LabelKind::kClassIndices && number && !index) {
      schema_.labels = LabelKind::kNumbers;
    }
    if (schema_.labels == LabelKind::kWords) return ReadWord(field);
    if (schema_.labels == LabelKind::kClassIndices && !index)
      return refuse(absl::StrCat("is ", Shown(field), ", no class index"));
    if (!number) return refuse(absl::StrCat("is ", Shown(field), ", no number"));
    if (index) largest_label_ = std::max(largest_label_, *index);
    return *number;
  }

  // In training the words are numbered as they come, until NumberWords().
  absl::StatusOr<float> ReadWord(absl::string_view field) {
    auto found = schema_.words.find(std::string(field));
    if (found == schema_.words.end()) {
      if (!training_) {
        return absl::InvalidArgumentError(
            absl::StrCat("the label ", Shown(field), " is none of the training set's"));
      }
      found = schema_.words.emplace(field, static_cast<int64_t>(schema_.words.size())).first;
    }
    largest_label_ = std::max(largest_label_, found->second);
    return static_cast<float>(found->second);
  }

  void NumberWords() {
    std::vector<float> sorted(schema_.words.size());  // [number in the order of coming]
    int64_t next = 0;
    for (auto& [word, number] : schema_.words) {
      sorted[static_cast<size_t>(number)] = static_cast<float>(next);
      number = next++;
    }
    for (float& label : labels_) label = sorted[static_cast<size_t>(label)];
  }

  const DataOptions& options_;
  const bool training_;
  Schema schema_;
  BadRows bad_;
  std::vector<float> numbers_;  // [examples, features]
  std::vector<float> labels_;   // [examples]
  int64_t largest_label_ = -1;  // of class indices
};

absl::StatusOr<Split> ReadSet(SetReader& reader, const std::vector<std::string>& files) {
  for (const std::string& file : files) CAIRN_RETURN_IF_ERROR(reader.ReadFile(file));
  return reader.Finish(files.front());
}

}  // namespace

LoadedSplits LoadCsv(const DataOptions& options) {
  const bool single = IsFileNamed(options.path, ".csv");
  const auto files =
      single ? std::vector<std::string>{options.path} : FindFiles(options.path, "train", ".csv");
  if (files.empty()) return std::nullopt;
  Splits splits;
  SetReader training(options, {});
  CAIRN_ASSIGN_OR_RETURN(splits.train, ReadSet(training, files));
  if (single) return splits;
  const auto validation_files = FindValidationFiles(options.path, ".csv");
  if (validation_files.empty()) return splits;
  SetReader validation(options, training.schema());
  CAIRN_ASSIGN_OR_RETURN(splits.validation, ReadSet(validation, validation_files));
  return splits;
}

}  // namespace cairn::data
