// CSV files: train.csv and test.csv or validation.csv, each optionally in pieces (train-0.csv, train-1.csv),
// or a single file. The suffix may also be .tsv or .inter (RecBole, with columns of .user and .item: csv_join.h);
// MovieLens' u.data has the same form, and .jsonl files are converted to it first (json_lines.h).
//
// One column contains the label, the others numbers (csv_schema.h, csv_labels.h). The schema inferred from
// the training set also applies to the validation set. All data is kept in memory.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/core/status.h"
#include "data/array/array_rows.h"
#include "data/csv/csv.h"
#include "data/csv/csv_join.h"
#include "data/csv/csv_labels.h"
#include "data/csv/csv_schema.h"
#include "data/csv/json_lines.h"
#include "data/file/bad_rows.h"
#include "data/file/byte_reader.h"
#include "data/file_sets.h"
#include "data/formats.h"
#include "data/hashed_id.h"
#include "data/row_writer.h"

namespace cairn::data {
namespace {

constexpr const char* kSuffixes[] = {".csv", ".tsv", ".inter", ".jsonl"};

std::string NameOf(char separator) {
  return separator == '\t' ? "tab" : absl::StrCat("'", absl::string_view(&separator, 1), "'");
}

absl::Status CheckEncoding(absl::string_view text) {
  if (absl::StartsWith(text, "\xFF\xFE") || absl::StartsWith(text, "\xFE\xFF")) {
    return absl::InvalidArgumentError("is UTF-16; save it as UTF-8");
  }
  return absl::OkStatus();
}

bool IsJsonLines(const std::string& path) {
  return IsFileNamed(path, ".jsonl");
}

// Reads the files of one set into memory.
class SetReader {
 public:
  // Reads a set whose columns are inferred from its files.
  SetReader(const DataOptions& options, CsvLabels labels)
      : options_(options), labels_(std::move(labels)), bad_(options.max_bad_rows) {}

  // A reader of the validation set: it has the columns of this set, and the files of users and items.
  SetReader ForValidation() const {
    SetReader reader(options_, labels_.ForValidation(options_.label_threshold.has_value()));
    reader.schema_ = schema_;
    reader.join_ = join_;
    reader.own_columns_ = own_columns_;
    return reader;
  }

  absl::Status ReadFile(const std::string& path) {
    CAIRN_ASSIGN_OR_RETURN(const SharedBytes bytes, ReadFileBytes(path));
    parts_.push_back({path, rows_});
    absl::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (const absl::Status status = CheckEncoding(text); !status.ok()) return Annotate(status, path);
    JsonLines json;
    if (IsJsonLines(path)) {
      CAIRN_ASSIGN_OR_RETURN(json, ReadJsonLines(text, path));
      text = json.csv;
    }
    const char separator = IsJsonLines(path) ? ',' : SeparatorOf(text);
    CsvReader csv(text, separator);
    bool first = true;
    size_t record = 0;                 // with `json`, those that were read
    std::vector<std::string> comment;  // the last comment before the first record
    for (CsvFields fields;;) {
      const auto more = csv.Next(fields);
      const int64_t line = record < json.lines.size() ? json.lines[record++] : csv.line();
      const auto place = [&] { return absl::StrCat(path, ": line ", line); };
      if (more.ok() && !*more) return absl::OkStatus();
      if (more.ok() && csv.comment()) {
        if (first) comment = std::vector<std::string>(fields.begin(), fields.end());
        const absl::Status status = SkipComment(fields);
        if (!status.ok()) CAIRN_RETURN_IF_ERROR(bad_.Skip(Annotate(status, place())));
        continue;
      }
      if (std::exchange(first, false)) {
        // The first record cannot be skipped, since the schema depends on it.
        if (!more.ok()) return absl::InvalidArgumentError(Annotate(more.status(), place()).message());
        fields = WithoutTypes(fields);
        CAIRN_ASSIGN_OR_RETURN(const bool header, TakeFirst({fields, comment, separator, path}));
        if (header) continue;
      }
      const absl::Status taken = more.ok() ? TakeRow(fields) : more.status();
      if (!taken.ok()) CAIRN_RETURN_IF_ERROR(bad_.Skip(Annotate(taken, place())));
    }
  }

  // Finishes the set, whose first file is `name`.
  absl::StatusOr<Split> Finish(const std::string& name) {
    if (rows_ == 0) return absl::InvalidArgumentError(absl::StrCat(name, ": holds no examples"));
    if (schema_.decimals.ambiguous() && schema_.separator != ';') {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": its commas could be decimal marks or separate thousands"));
    }
    Split split;
    split.inputs_name = name;
    split.targets_name = name;
    split.parts = std::move(parts_);
    split.remark = bad_.Summary(name);
    if (schema_.label) split.targets = labels_.Finish();
    split.class_names = labels_.class_names();
    split.notes.push_back(absl::StrCat(name, ": ", Describe()));
    split.columns = Columns{.format = kCsvFormat,
                            .named = schema_.has_header,
                            .names = schema_.columns,
                            .inputs = schema_.features,
                            .label = schema_.label,
                            .missing_value = schema_.missing_value,
                            .hashed_ids = schema_.hash_ids};
    CAIRN_ASSIGN_OR_RETURN(split.inputs, MakeRows(name));
    return split;
  }

 private:
  // The separator of `text`. The training set's first file decides it for all files.
  char SeparatorOf(absl::string_view text) const {
    if (!schema_.columns.empty()) return schema_.separator;
    return options_.csv_separator != 0 ? options_.csv_separator : DetectCsvSeparator(text);
  }

  // The beginning of a file.
  struct Beginning {
    const CsvFields& record;                  // the first record
    const std::vector<std::string>& comment;  // the last comment before it; empty: none
    char separator;
    const std::string& path;
  };

  // Infers the schema from the first file of the training set, or checks the header of a later file. Returns
  // true if the first record is the header. If the first record is not a header, the comment before it is the
  // header, provided that it names columns and has as many fields as the record.
  absl::StatusOr<bool> TakeFirst(const Beginning& file) {
    const CsvFields comment(file.comment.begin(), file.comment.end());
    const bool in_comment = comment.size() == file.record.size() && IsCsvHeader(comment, options_) &&
                            !IsCsvHeader(file.record, options_);
    const CsvFields& header = in_comment ? comment : file.record;
    if (schema_.columns.empty()) {
      const bool has_header = in_comment || IsCsvHeader(file.record, options_);
      if (has_header) {
        CAIRN_ASSIGN_OR_RETURN(CsvJoin join, CsvJoin::Load(file.path, header, file.separator, options_));
        join_ = std::make_shared<const CsvJoin>(std::move(join));
      }
      auto schema = MakeCsvSchema(header, has_header, file.separator, options_, join_->columns());
      if (!schema.ok()) return Annotate(schema.status(), file.path);
      schema_ = *std::move(schema);
      own_columns_ = header.size();
    } else if (schema_.has_header && !IsHeader(header)) {
      return absl::InvalidArgumentError(absl::StrCat(
          file.path, ": line 1: the header differs from that of the first file of the training set"));
    }
    return schema_.has_header && !in_comment;
  }

  // Whether `record` has the names of the columns that the first file itself has.
  bool IsHeader(const CsvFields& record) const {
    const auto names = absl::MakeConstSpan(schema_.columns).subspan(0, own_columns_);
    return std::equal(record.begin(), record.end(), names.begin(), names.end());
  }

  // A comment that could also be a row is an error if the first column is the label, since a label may be any
  // word.
  absl::Status SkipComment(const CsvFields& fields) {
    ++comments_;
    if (schema_.columns.empty() || schema_.label != 0 || fields.size() != own_columns_) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        "begins with '#', as a comment does, and has as many fields as a row; put a label in quotes");
  }

  // The numbers of adjacent features: of one input of the model, or of all of them.
  struct Part {
    size_t features = 0;
    size_t in_field = 1;  // numbers in each field, separated as NumbersOf() describes
    bool integers = false;
    bool ragged = false;              // one feature: a field holds any number of numbers
    std::optional<size_t> weights{};  // ragged ids: the part of the weights that the field holds too
    int64_t table_rows = 0;           // integers are hashed to [0, table_rows); 0: they are not
    std::vector<uint64_t> salts{};    // [feature] of the hash
    const IdMap* texts = nullptr;     // integers are the ids of the fields' texts
    bool divided = false;             // `texts` makes in_field ids of the text of each field, or any number
    std::string input{};              // its name, with `texts`
    size_t numbers() const { return features * in_field; }  // of an example, if the part is not ragged
    // [examples, numbers()] One of them is used.
    std::vector<float> floats{};
    std::vector<int64_t> whole{};
    std::vector<int64_t> row_splits = {0};  // [examples + 1] of them, if it is ragged
  };

  // One part for all features, unless the model takes integers: then one part for each of its inputs. If there is one
  // feature for each input, it has all numbers of its input.
  // INVALID_ARGUMENT if there are strings for some input, and the features do not fit the inputs.
  absl::StatusOr<std::vector<Part>> MakeParts() const {
    const size_t features = schema_.features.size();
    std::vector<Part> parts;
    size_t elements = 0;
    for (size_t i = 0; i < options_.input_types.size(); ++i) {
      parts.push_back({.features = static_cast<size_t>(options_.input_shapes[i].num_elements()),
                       .integers = IsInteger(options_.input_types[i]),
                       .ragged = options_.IsRagged(i),
                       .table_rows = schema_.hash_ids ? options_.table_rows[i] : 0,
                       .texts = options_.TextMapOf(i)});
      if (parts.back().texts != nullptr) {
        parts.back().input = options_.input_names[i];
        parts.back().divided = parts.back().texts->ids_per_text().has_value();
      }
      if (parts.back().divided) parts.back().in_field = std::exchange(parts.back().features, 1);
      elements += parts.back().features;
    }
    const bool any = std::any_of(parts.begin(), parts.end(), [](const Part& part) { return part.integers; });
    const bool any_text =
        std::any_of(parts.begin(), parts.end(), [](const Part& part) { return part.texts != nullptr; });
    if (elements > features && AddWeights(parts)) elements = features;
    if (elements != features && parts.size() > 1 && parts.size() == features) {
      for (Part& part : parts) {
        if (!part.divided) part.in_field = std::exchange(part.features, 1);
      }
    } else if (any_text && elements != features) {
      return absl::InvalidArgumentError(
          absl::StrCat("has ", features, " columns of inputs, and the inputs of the model take ", elements));
    } else if (!any || elements != features) {
      return std::vector<Part>{{.features = features}};
    }
    size_t feature = 0;
    for (Part& part : parts) {
      for (size_t i = 0; i < part.features; ++i) part.salts.push_back(SaltOf(NameInTraining(feature++)));
    }
    return parts;
  }

  // Whether any part has the weights of another.
  bool HasWeights() const {
    if (inputs_.size() != options_.input_types.size()) return false;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (options_.WeightsOf(i) >= 0) return true;
    }
    return false;
  }

  // Makes the fields of ids hold their weights too, if this leaves as many features as there are and no ids have two
  // inputs of weights. Returns whether it did.
  bool AddWeights(std::vector<Part>& parts) const {
    size_t features = 0;
    std::vector<std::pair<size_t, size_t>> found;
    for (size_t i = 0; i < parts.size(); ++i) {
      const int ids = options_.WeightsOf(i);
      if (ids >= 0 && parts[i].ragged) {
        found.emplace_back(static_cast<size_t>(ids), i);
      } else {
        features += parts[i].features;
      }
    }
    if (found.empty() || features != schema_.features.size()) return false;
    for (const auto& weighted : found) {
      const size_t ids = weighted.first;
      const auto same = [ids](const auto& other) { return other.first == ids; };
      if (!parts[ids].ragged || !parts[ids].integers || std::count_if(found.begin(), found.end(), same) > 1)
        return false;
    }
    for (const auto& [ids, weights] : found) {
      parts[ids].weights = weights;
      parts[weights].features = 0;
    }
    return true;
  }

  // The name that a feature's column had in the training data, whatever it is in this file.
  const std::string& NameInTraining(size_t feature) const {
    const std::optional<Columns>& trained = options_.trained_columns;
    const bool known = trained.has_value() && trained->format == kCsvFormat &&
                       trained->inputs.size() == schema_.features.size();
    return known ? trained->names[trained->inputs[feature]] : schema_.columns[schema_.features[feature]];
  }

  template <typename T>
  static Array ArrayOf(std::vector<T> values, ElementType type, const Shape& shape) {
    const auto kept = std::make_shared<const std::vector<T>>(std::move(values));
    const absl::Span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(kept->data()),
                                          kept->size() * sizeof(T));
    return {type, shape, SharedBytes(bytes, kept)};
  }

  absl::StatusOr<std::unique_ptr<RowSource>> MakeRows(const std::string& name) {
    std::vector<std::unique_ptr<RowSource>> rows;
    for (Part& part : inputs_) {
      const auto numbers = static_cast<int64_t>(part.numbers());
      if (part.ragged) {
        const int64_t values = part.row_splits.back();
        Array array = part.integers ? ArrayOf(std::move(part.whole), ElementType::kInt64, {values})
                                    : ArrayOf(std::move(part.floats), ElementType::kFloat32, {values});
        rows.push_back(MakeRaggedRows(std::move(array), std::move(part.row_splits), name));
        continue;
      }
      Array array = part.integers ? ArrayOf(std::move(part.whole), ElementType::kInt64, {rows_, numbers})
                                  : ArrayOf(std::move(part.floats), ElementType::kFloat32, {rows_, numbers});
      CAIRN_ASSIGN_OR_RETURN(rows.emplace_back(), MakeArrayRows(std::move(array), name, options_.ScaleOf(0)));
    }
    return JoinRows(std::move(rows), std::vector<std::string>(inputs_.size(), name));
  }

  // Adds one example. The error describes what is wrong with the record.
  absl::Status TakeRow(CsvFields& fields) {
    if (fields.size() != own_columns_) {
      return absl::InvalidArgumentError(
          absl::StrCat("has ", fields.size(), " fields, but the first line has ", own_columns_));
    }
    CAIRN_RETURN_IF_ERROR(join_->Append(fields));
    if (inputs_.empty()) {
      CAIRN_ASSIGN_OR_RETURN(inputs_, MakeParts());
      has_weights_ = HasWeights();
    }
    const absl::Status taken = TakeFields(fields);
    if (taken.ok()) {
      ++rows_;
      return taken;
    }
    for (Part& part : inputs_) {
      if (part.ragged) {
        part.row_splits.resize(static_cast<size_t>(rows_) + 1);
        (part.integers ? part.whole.resize(static_cast<size_t>(part.row_splits.back()))
                       : part.floats.resize(static_cast<size_t>(part.row_splits.back())));
      } else if (part.integers) {
        part.whole.resize(static_cast<size_t>(rows_) * part.numbers());
      } else {
        part.floats.resize(static_cast<size_t>(rows_) * part.numbers());
      }
    }
    return taken;
  }

  absl::Status TakeFields(const CsvFields& fields) {
    auto column = schema_.features.begin();
    for (Part& part : inputs_) {
      for (size_t i = 0; i < part.features; ++i, ++column) {
        const absl::Status taken = TakeNumber(fields[*column], i, part);
        if (taken.ok()) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("column '", schema_.columns[*column], "' ", taken.message()));
      }
    }
    if (has_weights_) CAIRN_RETURN_IF_ERROR(CheckWeights());
    if (!schema_.label) return absl::OkStatus();
    const absl::Status status = AddLabel(fields[*schema_.label]);
    if (status.ok()) return status;
    return absl::InvalidArgumentError(
        absl::StrCat("the label in column '", schema_.columns[*schema_.label], "' ", status.message()));
  }

  // `feature`: its index in the part.
  absl::Status TakeNumber(absl::string_view field, size_t feature, Part& part) {
    if (part.divided) return TakeText(field, part);
    if (part.ragged) return TakeBag(field, part);
    if (part.in_field == 1) return TakeOne(field, feature, part);
    const CsvFields numbers = NumbersOf(field);
    if (numbers.size() != part.in_field) {
      return absl::InvalidArgumentError(
          absl::StrCat("holds ", numbers.size(), " values, and the model's input takes ", part.in_field));
    }
    for (const absl::string_view number : numbers) CAIRN_RETURN_IF_ERROR(TakeOne(number, feature, part));
    return absl::OkStatus();
  }

  // Takes the ids of a text that is divided.
  static absl::Status TakeText(absl::string_view field, Part& part) {
    part.texts->AppendIds(field, part.whole);
    if (part.ragged) part.row_splits.push_back(static_cast<int64_t>(part.whole.size()));
    return absl::OkStatus();
  }

  // Takes one number of a field.
  absl::Status TakeOne(absl::string_view number, size_t feature, Part& part) {
    if (part.integers) {
      CAIRN_ASSIGN_OR_RETURN(part.whole.emplace_back(), ReadId(number, feature, part));
    } else {
      CAIRN_ASSIGN_OR_RETURN(part.floats.emplace_back(), ReadNumber(number));
    }
    return absl::OkStatus();
  }

  // Takes the ids, or the weights, of a ragged part.
  absl::Status TakeBag(absl::string_view field, Part& part) {
    Part* const weights = part.weights.has_value() ? &inputs_[*part.weights] : nullptr;
    for (const absl::string_view number : NumbersOf(field)) {
      if (weights != nullptr) {
        const auto [id, weight] = IdAndWeight(number);
        CAIRN_ASSIGN_OR_RETURN(part.whole.emplace_back(), ReadId(id, 0, part));
        CAIRN_ASSIGN_OR_RETURN(weights->floats.emplace_back(), ReadNumber(weight));
      } else {
        CAIRN_RETURN_IF_ERROR(TakeOne(number, 0, part));
      }
    }
    part.row_splits.push_back(static_cast<int64_t>(part.integers ? part.whole.size() : part.floats.size()));
    if (weights != nullptr) weights->row_splits.push_back(static_cast<int64_t>(weights->floats.size()));
    return absl::OkStatus();
  }

  // INVALID_ARGUMENT if the last example has another number of weights than of ids.
  absl::Status CheckWeights() const {
    std::vector<int64_t> values;
    for (const Part& part : inputs_) {
      const std::vector<int64_t>& splits = part.row_splits;
      values.push_back(part.ragged ? splits.back() - splits[splits.size() - 2]
                                   : static_cast<int64_t>(part.features));
    }
    return CheckWeightCounts(options_, values);
  }

  absl::StatusOr<int64_t> ReadId(absl::string_view field, size_t feature, const Part& part) {
    if (part.texts != nullptr) {
      const auto id = part.texts->OfText(field);
      if (id) return *id;
      return absl::InvalidArgumentError(
          absl::StrCat("cannot be used: ", part.texts->WhyNoId(ShowField(field), part.input)));
    }
    if (part.table_rows > 0) return HashedId(field, part.salts[feature], part.table_rows);
    return ReadWhole(field);
  }

  // A number for an input that takes integers.
  absl::StatusOr<int64_t> ReadWhole(absl::string_view field) {
    if (IsMissing(field)) {
      CAIRN_ASSIGN_OR_RETURN(const float missing, ReadNumber(field));
      const auto integer = ToInteger(missing, DType::kInt64);
      if (integer) return *integer;
      return absl::InvalidArgumentError(absl::StrCat("is empty, and the value for missing numbers is ",
                                                     missing, ", but the model looks up whole numbers here"));
    }
    CAIRN_ASSIGN_OR_RETURN(const auto integer, schema_.decimals.ReadInteger(field));
    if (integer) return *integer;
    CAIRN_RETURN_IF_ERROR(ReadNumber(field));
    return absl::InvalidArgumentError(
        absl::StrCat("holds ", ShowField(field), ", and the model looks up whole numbers (int64) here"));
  }

  absl::StatusOr<float> ReadNumber(absl::string_view field) {
    if (IsMissing(field)) {
      if (schema_.missing_value) return *schema_.missing_value;
      return absl::InvalidArgumentError("is empty, and no value for missing numbers is set");
    }
    CAIRN_ASSIGN_OR_RETURN(const auto number, schema_.decimals.Read(field));
    if (!number)
      return absl::InvalidArgumentError(absl::StrCat("holds ", ShowField(field), ", which is not a number"));
    return static_cast<float>(*number);
  }

  absl::Status AddLabel(absl::string_view field) {
    if (IsMissing(field)) return absl::InvalidArgumentError("is missing");
    CAIRN_ASSIGN_OR_RETURN(const auto number, schema_.decimals.Read(field));
    return labels_.Add(field, number);
  }

  std::string Describe() const {
    std::string text = absl::StrCat("separator ", NameOf(schema_.separator));
    if (schema_.decimals.mark() == ',') absl::StrAppend(&text, ", decimal comma");
    if (schema_.label) {
      absl::StrAppend(&text, ", label column '", schema_.columns[*schema_.label], "' (", labels_.Describe(),
                      ")");
    } else {
      absl::StrAppend(&text, ", no label column");
    }
    if (schema_.by_position) absl::StrAppend(&text, ", columns by their position, as in training");
    if (comments_ > 0) {
      absl::StrAppend(&text, ", ", comments_, comments_ == 1 ? " comment skipped" : " comments skipped");
    }
    return text;
  }

  const DataOptions& options_;
  CsvSchema schema_;
  std::shared_ptr<const CsvJoin> join_ = std::make_shared<const CsvJoin>();  // shared with ForValidation()
  size_t own_columns_ = 0;  // columns of the files, without those that join_ adds
  CsvLabels labels_;
  BadRows bad_;
  int64_t rows_ = 0, comments_ = 0;
  std::vector<FilePart> parts_;
  std::vector<Part> inputs_;  // empty before the first row
  bool has_weights_ = false;  // of inputs_
};

absl::StatusOr<Split> ReadSet(SetReader& reader, const std::vector<std::string>& files) {
  for (const std::string& file : files) CAIRN_RETURN_IF_ERROR(reader.ReadFile(file));
  return reader.Finish(files.front());
}

bool IsCsvFile(const std::string& path) {
  for (const char* suffix : kSuffixes) {
    if (IsFileNamed(path, suffix)) return true;
  }
  return absl::EndsWith(path, "u.data") && IsFileNamed(path, "u.data");
}

}  // namespace

LoadedSplits LoadCsv(const DataOptions& options) {
  const bool single = IsCsvFile(options.path);
  SetFiles files = {.train = {options.path}};
  if (!single) {
    files = {};
    for (const char* suffix : kSuffixes) {
      if (!files.train.empty()) break;
      CAIRN_ASSIGN_OR_RETURN(files, FindSets(options.path, {suffix}));
    }
  }
  if (files.train.empty()) return std::nullopt;
  Splits splits;
  splits.remarks = std::move(files.remarks);
  SetReader training(options, {});
  CAIRN_ASSIGN_OR_RETURN(splits.train, ReadSet(training, files.train));
  if (files.validation.empty()) return splits;
  SetReader validation = training.ForValidation();
  CAIRN_ASSIGN_OR_RETURN(splits.validation, ReadSet(validation, files.validation));
  return splits;
}

LoadedExamples LoadCsvExamples(const DataOptions& options) {
  if (!IsCsvFile(options.path)) return std::nullopt;
  SetReader reader(options, options.class_names.empty() ? CsvLabels() : CsvLabels(options.class_names));
  CAIRN_ASSIGN_OR_RETURN(Split split, ReadSet(reader, {options.path}));
  return split;
}

}  // namespace cairn::data
