// TFRecord files of tf.Example: train*.tfrecord and test*.tfrecord or validation*.tfrecord, each perhaps in
// pieces (train-00000-of-00004.tfrecord, train.tfrecord-00000-of-00004), or one file; plain ones are mapped,
// .gz unpacked into memory.
//
// Every record is checked once, at loading; then an example's features are read from where they lie.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "worker/data/bad_rows.h"
#include "worker/data/byte_reader.h"
#include "worker/data/file_sets.h"
#include "worker/data/formats.h"
#include "worker/data/read_ahead.h"
#include "worker/data/tf_example.h"
#include "worker/data/tf_record.h"

namespace cairn::data {
namespace {

constexpr const char* kSuffixes[] = {".tfrecord", ".tfrecords"};
// Looked for in this order, where the options do not name them.
constexpr const char* kInputNames[] = {"image", "image_raw", "x", "features", "inputs"};
constexpr const char* kLabelNames[] = {"label", "y", "target", "class"};

// A feature that every example must have, in the form that the first one gave it.
struct Column {
  std::string name;
  Feature::Kind kind = Feature::Kind::kNone;
  int64_t values = 0;
};

// What the training set's first example says, and every other one must.
struct Schema {
  std::vector<Column> inputs;
  Column label;
};

const Feature* Find(const std::vector<NamedFeature>& features, absl::string_view name) {
  for (const NamedFeature& named : features) {
    if (named.name == name) return &named.feature;
  }
  return nullptr;
}

absl::Status NoFeature(const std::vector<NamedFeature>& features, absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat(
      "has no feature ", wanted,
      "; it has: ", absl::StrJoin(features, ", ", [](std::string* out, const NamedFeature& named) {
        absl::StrAppend(out, absl::CHexEscape(named.name));
      })));
}

absl::StatusOr<Column> MakeColumn(const std::vector<NamedFeature>& features, const std::string& name) {
  const Feature* feature = Find(features, name);
  if (feature == nullptr) return NoFeature(features, absl::StrCat("'", name, "'"));
  const auto values = CountValues(*feature);
  if (!values.ok()) return Annotate(values.status(), absl::StrCat("'", name, "'"));
  if (*values == 0) return absl::InvalidArgumentError(absl::StrCat("'", name, "': is empty"));
  return Column{name, feature->kind, *values};
}

// The first of `names` that is there.
absl::StatusOr<std::string> FirstName(const std::vector<NamedFeature>& features,
                                      absl::Span<const char* const> names) {
  for (const char* name : names) {
    if (Find(features, name) != nullptr) return name;
  }
  return NoFeature(features, absl::StrJoin(names, " or "));
}

absl::StatusOr<Schema> MakeSchema(const std::vector<NamedFeature>& features, const DataOptions& options) {
  Schema schema;
  std::vector<std::string> names = options.feature_columns;
  if (names.empty() && options.input_names.size() > 1) names = options.input_names;
  if (names.empty()) {
    CAIRN_ASSIGN_OR_RETURN(names.emplace_back(), FirstName(features, kInputNames));
  }
  for (const std::string& name : names) {
    CAIRN_ASSIGN_OR_RETURN(schema.inputs.emplace_back(), MakeColumn(features, name));
  }
  std::string label = options.label_column;
  if (label.empty()) {
    CAIRN_ASSIGN_OR_RETURN(label, FirstName(features, kLabelNames));
  }
  CAIRN_ASSIGN_OR_RETURN(schema.label, MakeColumn(features, label));
  if (schema.label.kind == Feature::Kind::kBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", label, "': the label is a bytes_list; it must be an int64_list or a float_list"));
  }
  return schema;
}

// The feature of `column`, which must have the column's form.
absl::StatusOr<Feature> Take(const std::vector<NamedFeature>& features, const Column& column) {
  const auto describe = [](Feature::Kind kind, int64_t values) {
    return absl::StrCat(NameOf(kind), " of ", values, kind == Feature::Kind::kBytes ? " bytes" : " values");
  };
  CAIRN_ASSIGN_OR_RETURN(const Column found, MakeColumn(features, column.name));
  if (found.kind != column.kind || found.values != column.values) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", column.name, "': is a ", describe(found.kind, found.values), ", not a ",
                     describe(column.kind, column.values), " as in the first example"));
  }
  return *Find(features, column.name);
}

class RecordRows final : public RowSource {
 public:
  RecordRows(const std::vector<Column>& columns, float input_scale, std::vector<SharedBytes> files,
             std::vector<absl::Span<const uint8_t>> lists)
      : columns_(columns),
        input_scale_(input_scale),
        files_(std::move(files)),
        read_ahead_(files_),
        lists_(std::move(lists)) {
    int64_t values = 0;
    for (const Column& column : columns_) values += column.values;
    row_shape_ = {values};
  }

  int64_t size() const override { return static_cast<int64_t>(lists_.size() / columns_.size()); }
  const Shape& row_shape() const override { return row_shape_; }
  void Prefetch(int64_t index) const override {
    for (const absl::Span<const uint8_t> list : ListsOf(index)) read_ahead_.Fetch(list);
  }
  void Read(int64_t index, absl::Span<float> to) const override {
    const auto* list = ListsOf(index).data();
    for (const Column& column : columns_) {
      const absl::Span<float> values = to.subspan(0, static_cast<size_t>(column.values));
      ReadValues({column.kind, *list++}, values);
      const Scale scale = ScaleOf(input_scale_, column.kind == Feature::Kind::kBytes);
      for (float& value : values) value = scale(value);
      to.remove_prefix(values.size());
    }
  }

 private:
  absl::Span<const absl::Span<const uint8_t>> ListsOf(int64_t index) const {
    return absl::MakeConstSpan(lists_).subspan(static_cast<size_t>(index) * columns_.size(), columns_.size());
  }

  const std::vector<Column> columns_;
  const float input_scale_;
  const std::vector<SharedBytes> files_;  // keep what lists_ shows
  const ReadAhead read_ahead_;
  const std::vector<absl::Span<const uint8_t>> lists_;  // [examples, columns], encoded
  Shape row_shape_;
};

// Reads the files of one set.
class SetReader {
 public:
  // For training `schema` is empty and learnt from the first example.
  SetReader(const DataOptions& options, Schema schema)
      : options_(options), schema_(std::move(schema)), bad_(options.max_bad_rows) {}

  absl::Status ReadFile(const std::string& path) {
    CAIRN_ASSIGN_OR_RETURN(SharedBytes file, ReadFileBytes(path));
    TfRecordReader reader(file.span());
    for (;;) {
      const auto record = reader.Next();
      if (record.ok() && !record->has_value()) break;
      const absl::Status taken = record.ok() ? TakeRecord(**record) : record.status();
      if (taken.ok()) continue;
      CAIRN_RETURN_IF_ERROR(bad_.Skip(Annotate(taken, absl::StrCat(path, ": record ", reader.record()))));
    }
    files_.push_back(std::move(file));
    return absl::OkStatus();
  }

  // Ends the reading of the set, which began with the file `name`.
  absl::StatusOr<Split> Finish(const std::string& name) {
    if (targets_.empty()) return absl::InvalidArgumentError(absl::StrCat(name, ": holds no examples"));
    Split split;
    split.inputs_name = name;
    split.targets_name = name;
    split.remark = bad_.Summary(name);
    split.targets = {.values = std::move(targets_),
                     .per_example = schema_.label.values,
                     .num_classes = largest_label_ + 1};
    split.inputs = std::make_unique<RecordRows>(schema_.inputs, options_.input_scale, std::move(files_),
                                                std::move(lists_));
    return split;
  }

  const Schema& schema() const { return schema_; }

 private:
  // Adds one example, or says what is wrong with it.
  absl::Status TakeRecord(absl::Span<const uint8_t> record) {
    CAIRN_ASSIGN_OR_RETURN(const auto features, ParseExample(record));
    if (schema_.inputs.empty()) {
      CAIRN_ASSIGN_OR_RETURN(schema_, MakeSchema(features, options_));
    }
    std::vector<absl::Span<const uint8_t>> lists;
    for (const Column& column : schema_.inputs) {
      CAIRN_ASSIGN_OR_RETURN(const Feature feature, Take(features, column));
      lists.push_back(feature.list);
    }
    CAIRN_ASSIGN_OR_RETURN(const Feature label, Take(features, schema_.label));
    CAIRN_RETURN_IF_ERROR(TakeLabel(label));
    lists_.insert(lists_.end(), lists.begin(), lists.end());
    return absl::OkStatus();
  }

  absl::Status TakeLabel(const Feature& label) {
    const auto index = OneInteger(label);
    if (index && (*index < 0 || *index > kLargestLabel)) {
      return absl::InvalidArgumentError(absl::StrCat("label ", *index, " is no class index"));
    }
    std::vector<float> values(static_cast<size_t>(schema_.label.values));
    ReadValues(label, absl::MakeSpan(values));
    const auto bad = std::find_if_not(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
    if (bad != values.end())
      return absl::InvalidArgumentError(absl::StrCat("label ", *bad, " is not finite"));
    targets_.insert(targets_.end(), values.begin(), values.end());
    if (index) largest_label_ = std::max(largest_label_, *index);
    return absl::OkStatus();
  }

  const DataOptions& options_;
  Schema schema_;
  BadRows bad_;
  std::vector<SharedBytes> files_;
  std::vector<absl::Span<const uint8_t>> lists_;  // [examples, inputs]
  std::vector<float> targets_;                    // [examples, label.values]
  int64_t largest_label_ = -1;                    // of class indices
};

absl::StatusOr<Split> ReadSet(SetReader& reader, const std::vector<std::string>& files) {
  for (const std::string& file : files) CAIRN_RETURN_IF_ERROR(reader.ReadFile(file));
  return reader.Finish(files.front());
}

}  // namespace

LoadedSplits LoadTfRecords(const DataOptions& options) {
  std::vector<std::string> training_files, validation_files;
  if (IsFileNamed(options.path, ".tfrecord")) training_files = {options.path};
  for (const char* suffix : kSuffixes) {
    if (training_files.empty()) training_files = FindFiles(options.path, "train", suffix);
    if (validation_files.empty()) validation_files = FindValidationFiles(options.path, suffix);
  }
  if (training_files.empty()) return std::nullopt;
  Splits splits;
  SetReader training(options, {});
  CAIRN_ASSIGN_OR_RETURN(splits.train, ReadSet(training, training_files));
  if (validation_files.empty()) return splits;
  SetReader validation(options, training.schema());
  CAIRN_ASSIGN_OR_RETURN(splits.validation, ReadSet(validation, validation_files));
  return splits;
}

}  // namespace cairn::data
