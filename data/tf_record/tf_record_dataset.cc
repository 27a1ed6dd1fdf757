// TFRecord files of tf.Example messages: the files that tf_record_files.h finds in a directory, or a single
// file. Plain files are mapped; gzip or zlib files are decompressed into memory.
//
// Loading checks every record once; afterwards the features of an example are read in place. Loading checks
// only the header of a PNG or JPEG image; each read of its example decodes the image.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "data/array/read_ahead.h"
#include "data/file/bad_rows.h"
#include "data/file/byte_reader.h"
#include "data/file/first_error.h"
#include "data/formats.h"
#include "data/image/image.h"
#include "data/row_writer.h"
#include "data/tf_record/tf_example.h"
#include "data/tf_record/tf_record.h"
#include "data/tf_record/tf_record_files.h"

namespace cairn::data {
namespace {

// Usual names, one of which must be present if the options give no name. Names with a slash are TF-slim's.
constexpr const char* kInputNames[] = {"image", "image_raw", "x", "features", "inputs", "image/encoded"};
constexpr const char* kLabelNames[] = {"label", "y", "target", "class", "image/class/label"};

// A feature that every example must have, in the same form as in the first example.
struct Column {
  std::string name;
  Feature::Kind kind = Feature::Kind::kNone;
  // The number of input values that it provides; of the longest example, and at least 1, if it is ragged.
  int64_t values = 0;
  bool ragged = false;
  Shape image{};  // [height, width, channels] of a PNG or JPEG; rank 0: not an image
};

// The features of the training set's first example, which every other example must have.
struct Schema {
  std::vector<Column> inputs;
  std::optional<Column> label;  // nullopt if examples have none
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

// The column of a ragged input, which an example may lack: it has no values then.
Column RaggedColumn(const std::string& name, bool integers) {
  return {.name = name,
          .kind = integers ? Feature::Kind::kIntegers : Feature::Kind::kFloats,
          .values = 1,
          .ragged = true};
}

// Turns a column of bytes whose first example is a PNG or JPEG into a column of images. If the image header
// is invalid, but the number of bytes is the number of values that the model takes, the bytes are pixels that
// only begin like an image. `input` is the model's input shape; rank 0: unknown.
absl::Status DetectImage(const Feature& feature, const Shape& input, Column& column) {
  const auto bytes = OneString(feature);
  if (!bytes || ImageFormatOf(*bytes).empty()) return absl::OkStatus();
  const auto header = ReadImageHeader(*bytes);
  if (!header.ok()) {
    const bool pixels = input.rank() > 0 && column.values == input.num_elements();
    return pixels ? absl::OkStatus() : Annotate(header.status(), absl::StrCat("'", column.name, "'"));
  }
  column.image = PixelShapeFor(*header, input);
  column.values = column.image.num_elements();
  return absl::OkStatus();
}

// INVALID_ARGUMENT if a flag names other features than those that the model was trained on.
absl::Status CheckAsTrained(const Columns& trained, const DataOptions& options) {
  std::vector<std::string> inputs;
  for (const size_t input : trained.inputs) inputs.push_back(trained.names[input]);
  if (!options.feature_columns.empty() && options.feature_columns != inputs) {
    return absl::InvalidArgumentError(absl::StrCat("--feature_column: the inputs are features ",
                                                   ListColumns(options.feature_columns),
                                                   ", but in training they were ", ListColumns(inputs)));
  }
  if (!options.label_column.empty() && trained.label &&
      options.label_column != trained.names[*trained.label]) {
    return absl::InvalidArgumentError(absl::StrCat("--label_column: the label is feature '",
                                                   options.label_column, "', but in training it was '",
                                                   trained.names[*trained.label], "'"));
  }
  return absl::OkStatus();
}

// Adds the features that the model was trained on to the options, if they are known and no flag names others.
absl::StatusOr<DataOptions> WithTrained(const std::vector<NamedFeature>& features, DataOptions options) {
  if (!options.trained_columns || options.trained_columns->format != kTfRecordFormat) return options;
  const Columns& trained = *options.trained_columns;
  CAIRN_RETURN_IF_ERROR(CheckAsTrained(trained, options));
  if (options.feature_columns.empty()) {
    for (const size_t input : trained.inputs) options.feature_columns.push_back(trained.names[input]);
  }
  if (options.label_column.empty() && trained.label) {
    const std::string& label = trained.names[*trained.label];
    if (!options.labels_optional || Find(features, label) != nullptr) options.label_column = label;
  }
  return options;
}

// The only one of `names` that is present. INVALID_ARGUMENT if there are several; `what` and `flag` are for
// the message.
absl::StatusOr<std::string> OnlyName(const std::vector<NamedFeature>& features,
                                     absl::Span<const char* const> names, absl::string_view what,
                                     absl::string_view flag) {
  const char* found = nullptr;
  for (const char* name : names) {
    if (Find(features, name) == nullptr) continue;
    if (found != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("features '", found, "' and '", name,
                                                     "' could both be the ", what, "; ", flag, " decides"));
    }
    found = name;
  }
  if (found != nullptr) return found;
  return NoFeature(features, absl::StrJoin(names, " or "));
}

absl::StatusOr<Schema> MakeSchema(const std::vector<NamedFeature>& features, const DataOptions& given) {
  CAIRN_ASSIGN_OR_RETURN(const DataOptions options, WithTrained(features, given));
  Schema schema;
  std::vector<std::string> names = options.feature_columns;
  if (names.empty() && options.input_names.size() > 1) names = options.input_names;
  if (names.empty()) {
    CAIRN_ASSIGN_OR_RETURN(names.emplace_back(),
                           OnlyName(features, kInputNames, "input", "--feature_column"));
  }
  const Shape input = names.size() == 1 ? options.example_shape : Shape();
  for (const std::string& name : names) {
    const bool ragged =
        options.IsRagged(schema.inputs.size()) && names.size() == options.ragged_inputs.size();
    Column& column = schema.inputs.emplace_back();
    if (ragged) {
      column = RaggedColumn(name, IsInteger(options.input_types[schema.inputs.size() - 1]));
      continue;
    }
    CAIRN_ASSIGN_OR_RETURN(column, MakeColumn(features, name));
    CAIRN_RETURN_IF_ERROR(DetectImage(*Find(features, name), input, column));
  }
  std::string label = options.label_column;
  if (label.empty()) {
    const bool any = std::any_of(std::begin(kLabelNames), std::end(kLabelNames),
                                 [&](const char* name) { return Find(features, name) != nullptr; });
    if (!any && options.labels_optional) return schema;
    CAIRN_ASSIGN_OR_RETURN(label, OnlyName(features, kLabelNames, "label", "--label_column"));
  }
  CAIRN_ASSIGN_OR_RETURN(schema.label, MakeColumn(features, label));
  if (schema.label->kind == Feature::Kind::kBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", label, "': the label is a bytes_list; it must be an int64_list or a float_list"));
  }
  return schema;
}

// The feature of a ragged `column`, without values if an example lacks it.
absl::StatusOr<Feature> TakeRagged(const std::vector<NamedFeature>& features, const Column& column) {
  const Feature* const feature = Find(features, column.name);
  if (feature == nullptr || feature->kind == Feature::Kind::kNone) return Feature{column.kind, {}};
  if (feature->kind == column.kind) return *feature;
  return absl::InvalidArgumentError(
      absl::StrCat("'", column.name, "': is a ", NameOf(feature->kind), "; this ragged input takes ",
                   column.kind == Feature::Kind::kIntegers ? "an " : "a ", NameOf(column.kind)));
}

// The feature of `column`, which must have the column's form.
absl::StatusOr<Feature> Take(const std::vector<NamedFeature>& features, const Column& column) {
  const auto describe = [](Feature::Kind kind, int64_t values) {
    return absl::StrCat(NameOf(kind), " of ", values, kind == Feature::Kind::kBytes ? " bytes" : " values");
  };
  if (column.ragged) return TakeRagged(features, column);
  CAIRN_ASSIGN_OR_RETURN(const Column found, MakeColumn(features, column.name));
  if (column.image.rank() > 0) {
    const Feature& feature = *Find(features, column.name);
    const auto bytes = OneString(feature);
    const auto header = ReadImageHeader(bytes.value_or(absl::Span<const uint8_t>()));
    const absl::Status fits = header.ok() ? CheckFits(*header, column.image) : header.status();
    if (!fits.ok()) return Annotate(fits, absl::StrCat("'", column.name, "'"));
    return feature;
  }
  if (found.kind != column.kind || found.values != column.values) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", column.name, "': is a ", describe(found.kind, found.values), ", not a ",
                     describe(column.kind, column.values), " as in the first example"));
  }
  return *Find(features, column.name);
}

// The file and record of an example.
struct Origin {
  int32_t file = 0;
  int64_t record = 0;
};

// The checked records of a set.
struct Records {
  std::vector<std::string> paths;                // [file]
  std::vector<SharedBytes> files;                // [file] keeps the bytes of `lists` alive
  std::vector<Origin> origins;                   // [example]
  std::vector<absl::Span<const uint8_t>> lists;  // [example, column], encoded
};

class RecordRows final : public RowSource {
 public:
  // `scales` [column]; `weights_of` as in DataOptions, or empty.
  RecordRows(const std::vector<Column>& columns, std::vector<Scale> scales, std::vector<int> weights_of,
             Records records)
      : columns_(columns),
        scales_(std::move(scales)),
        weights_of_(std::move(weights_of)),
        records_(std::move(records)),
        read_ahead_(records_.files) {
    int64_t values = 0;
    for (const Column& column : columns_) {
      values += column.values;
      any_ragged_ = any_ragged_ || column.ragged;
    }
    row_shape_ = {values};
    if (columns_.size() == 1 && columns_[0].image.rank() > 0) row_shape_ = columns_[0].image;
  }

  int64_t size() const override { return static_cast<int64_t>(records_.origins.size()); }
  const Shape& row_shape() const override { return row_shape_; }
  std::vector<int64_t> ragged_parts() const override {
    std::vector<int64_t> ragged;
    for (const Column& column : columns_) ragged.push_back(column.ragged ? column.values : -1);
    return ragged;
  }
  void Prefetch(int64_t index) const override {
    for (const absl::Span<const uint8_t> list : ListsOf(index)) read_ahead_.Fetch(list);
  }
  void Read(int64_t index, absl::Span<const MutableTensorView> to) const override {
    const auto lists = ListsOf(index);
    std::vector<int64_t> counts;  // of ragged features
    if (any_ragged_) counts = CountRagged(index);
    RowCursor cursor(to);
    for (size_t i = 0; i < columns_.size(); ++i) {
      const Column& column = columns_[i];
      const auto pieces = cursor.Take(column.values);
      const Feature feature{column.kind, lists[i]};
      if (column.ragged && column.kind == Feature::Kind::kIntegers) {
        std::vector<int64_t> values = ReadIntegers(feature);
        values.resize(static_cast<size_t>(counts[i]));
        const auto bad = WriteRagged(pieces[0], static_cast<int64_t>(values.size()),
                                     [&values](int64_t at) { return values[static_cast<size_t>(at)]; });
        if (bad) Refuse(index, i, *bad, values, pieces);
      } else if (column.ragged) {
        std::vector<float> values(static_cast<size_t>(counts[i]));
        ReadValues(feature, absl::MakeSpan(values));
        WriteRagged(pieces[0], static_cast<int64_t>(values.size()),
                    [&values](int64_t at) { return values[static_cast<size_t>(at)]; });
      } else if (pieces.size() == 1 && pieces[0].dtype == DType::kFloat32) {
        const absl::Span<float> values = pieces[0].floats();
        ReadFloats(column, feature, index, values);
        for (float& value : values) value = scales_[i](value);
      } else if (column.kind == Feature::Kind::kIntegers) {
        std::vector<int64_t> values = ReadIntegers(feature);
        values.resize(static_cast<size_t>(column.values));  // the file may have changed since it was loaded
        Write(index, i, values, pieces);
      } else {
        std::vector<float> values(static_cast<size_t>(column.values));
        ReadFloats(column, feature, index, absl::MakeSpan(values));
        Write(index, i, values, pieces);
      }
    }
  }

  absl::Status status() const override { return error_.status(); }

 private:
  // The numbers of values of the ragged features of example `index` [column]. If the file has changed since it was
  // loaded, and they are malformed, longer than the longest was, or other numbers of weights than of ids, makes
  // status() an error and returns zeros.
  std::vector<int64_t> CountRagged(int64_t index) const {
    std::vector<int64_t> counts(columns_.size());
    for (size_t i = 0; i < columns_.size(); ++i) {
      const Column& column = columns_[i];
      if (!column.ragged) continue;
      const auto count = CountValues({column.kind, ListsOf(index)[i]});
      const int ids = i < weights_of_.size() ? weights_of_[i] : -1;
      if (count.ok() && *count <= column.values) {
        counts[i] = *count;
      } else {
        error_.Set(Annotate(count.ok() ? HasChanged() : count.status(),
                            absl::StrCat(Place(index), ": '", column.name, "'")));
        return std::vector<int64_t>(columns_.size());
      }
      if (ids < 0) continue;
      const auto weighted =
          CountValues({columns_[static_cast<size_t>(ids)].kind, ListsOf(index)[static_cast<size_t>(ids)]});
      if (weighted.ok() && *weighted == *count) continue;
      error_.Set(Annotate(HasChanged(), absl::StrCat(Place(index), ": '", column.name, "'")));
      return std::vector<int64_t>(columns_.size());
    }
    return counts;
  }

  static absl::Status HasChanged() {
    return absl::InvalidArgumentError("has another number of values than when the file was loaded");
  }

  void ReadFloats(const Column& column, const Feature& feature, int64_t index,
                  absl::Span<float> values) const {
    if (column.image.rank() > 0) {
      ReadImage(column, feature, index, values);
    } else {
      ReadValues(feature, values);
    }
  }

  // Writes the values of a column of example `index` to tensors of any types.
  template <typename T>
  void Write(int64_t index, size_t column, const std::vector<T>& values,
             absl::Span<const MutableTensorView> pieces) const {
    const auto bad =
        WriteRow(pieces, scales_[column], [&values](int64_t i) { return values[static_cast<size_t>(i)]; });
    if (bad) Refuse(index, column, *bad, values, pieces);
  }

  template <typename T>
  void Refuse(int64_t index, size_t column, int64_t bad, const std::vector<T>& values,
              absl::Span<const MutableTensorView> pieces) const {
    error_.Set(CannotHold(absl::StrCat(Place(index), ": '", columns_[column].name, "'"), bad,
                          values[static_cast<size_t>(bad)], pieces));
  }

  // "a.tfrecord: record 7", for messages.
  std::string Place(int64_t index) const {
    const Origin& origin = records_.origins[static_cast<size_t>(index)];
    return absl::StrCat(records_.paths[static_cast<size_t>(origin.file)], ": record ", origin.record);
  }

  void ReadImage(const Column& column, const Feature& feature, int64_t index,
                 absl::Span<float> values) const {
    std::vector<uint8_t> pixels(values.size());
    const absl::Status decoded = DecodeImage(OneString(feature).value_or(absl::Span<const uint8_t>()),
                                             column.image, absl::MakeSpan(pixels));
    if (!decoded.ok()) error_.Set(Annotate(decoded, absl::StrCat(Place(index), ": '", column.name, "'")));
    std::copy(pixels.begin(), pixels.end(), values.begin());
  }

  absl::Span<const absl::Span<const uint8_t>> ListsOf(int64_t index) const {
    return absl::MakeConstSpan(records_.lists)
        .subspan(static_cast<size_t>(index) * columns_.size(), columns_.size());
  }

  const std::vector<Column> columns_;
  const std::vector<Scale> scales_;
  const std::vector<int> weights_of_;
  const Records records_;
  const ReadAhead read_ahead_;
  Shape row_shape_;
  bool any_ragged_ = false;
  mutable FirstError error_;
};

// Reads the files of one set.
class SetReader {
 public:
  // For training, `schema` is empty and inferred from the first example.
  SetReader(const DataOptions& options, Schema schema)
      : options_(options),
        training_(schema.inputs.empty()),
        schema_(std::move(schema)),
        bad_(options.max_bad_rows) {}

  absl::Status ReadFile(const std::string& path) {
    CAIRN_ASSIGN_OR_RETURN(SharedBytes file, ReadTfRecordFile(path));
    parts_.push_back({path, static_cast<int64_t>(records_.origins.size())});
    TfRecordReader reader(file.span());
    for (;;) {
      const auto record = reader.Next();
      if (record.ok() && !record->has_value()) break;
      const absl::Status taken = record.ok() ? TakeRecord(**record, reader.record()) : record.status();
      if (taken.ok()) continue;
      CAIRN_RETURN_IF_ERROR(bad_.Skip(Annotate(taken, absl::StrCat(path, ": record ", reader.record()))));
    }
    records_.paths.push_back(path);
    records_.files.push_back(std::move(file));
    return absl::OkStatus();
  }

  // Finishes the set, whose first file is `name`.
  absl::StatusOr<Split> Finish(const std::string& name) {
    if (records_.origins.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": holds no examples"));
    }
    for (size_t i = 0; training_ && i < has_feature_.size(); ++i) {
      if (has_feature_[i]) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": no example has a feature '", schema_.inputs[i].name, "'"));
    }
    Split split;
    split.inputs_name = name;
    split.targets_name = name;
    split.parts = std::move(parts_);
    split.remark = bad_.Summary(name);
    if (schema_.label) {
      const bool single = schema_.label->values == 1;
      const int64_t classes = ClassesIn(targets_);
      split.targets = {.values = std::move(targets_),
                       .per_example = schema_.label->values,
                       .shape = {schema_.label->values},
                       .num_classes = single ? classes : 0,
                       .position_classes = single ? 0 : classes};
    }
    split.columns = ColumnsRead();
    CAIRN_ASSIGN_OR_RETURN(std::vector<Scale> scales, MakeScales(split));
    split.inputs = std::make_unique<RecordRows>(
        schema_.inputs, std::move(scales),
        schema_.inputs.size() == options_.input_names.size() ? options_.weights_of : std::vector<int>(),
        std::move(records_));
    return split;
  }

  const Schema& schema() const { return schema_; }

 private:
  Columns ColumnsRead() const {
    Columns columns{.format = kTfRecordFormat};
    for (const Column& column : schema_.inputs) {
      columns.inputs.push_back(columns.names.size());
      columns.names.push_back(column.name);
    }
    if (schema_.label) {
      columns.label = columns.names.size();
      columns.names.push_back(schema_.label->name);
    }
    return columns;
  }

  // The scales of the input columns [column]. Also sets split.byte_inputs. INVALID_ARGUMENT if a column does
  // not fit the model's input.
  absl::StatusOr<std::vector<Scale>> MakeScales(Split& split) const {
    const size_t columns = schema_.inputs.size();
    const bool one_each = columns > 1 && columns == options_.input_names.size();
    split.byte_inputs.assign(one_each ? columns : 1, false);
    std::vector<Scale> scales;
    for (size_t i = 0; i < columns; ++i) {
      const Column& column = schema_.inputs[i];
      const size_t input = one_each ? i : 0;
      if (one_each && !column.ragged) {
        const Shape shape = column.image.rank() > 0 ? column.image : Shape{column.values};
        CAIRN_RETURN_IF_ERROR(CheckInputShape(options_, input, shape,
                                              absl::StrCat(split.inputs_name, ": '", column.name, "'")));
      }
      const bool bytes = column.kind == Feature::Kind::kBytes;
      if (bytes) split.byte_inputs[input] = true;
      scales.push_back(data::ScaleOf(options_.ScaleOf(input), bytes));
    }
    return scales;
  }

  // Adds one example. The error describes what is wrong with it.
  absl::Status TakeRecord(absl::Span<const uint8_t> record, int64_t number) {
    CAIRN_ASSIGN_OR_RETURN(const auto features, ParseExample(record));
    if (schema_.inputs.empty()) {
      CAIRN_ASSIGN_OR_RETURN(schema_, MakeSchema(features, options_));
    }
    has_feature_.resize(schema_.inputs.size());
    std::vector<absl::Span<const uint8_t>> lists;
    std::vector<int64_t> counts;
    for (const Column& column : schema_.inputs) {
      CAIRN_ASSIGN_OR_RETURN(const Feature feature, Take(features, column));
      lists.push_back(feature.list);
      counts.push_back(column.values);
      if (!column.ragged) continue;
      const auto values = CountValues(feature);
      if (!values.ok()) return Annotate(values.status(), absl::StrCat("'", column.name, "'"));
      counts.back() = *values;
    }
    if (counts.size() == options_.input_names.size())
      CAIRN_RETURN_IF_ERROR(CheckWeightCounts(options_, counts));
    if (schema_.label) {
      CAIRN_ASSIGN_OR_RETURN(const Feature label, Take(features, *schema_.label));
      CAIRN_RETURN_IF_ERROR(TakeLabel(label));
    }
    for (size_t i = 0; i < counts.size(); ++i) {
      Column& column = schema_.inputs[i];
      if (column.ragged) column.values = std::max(column.values, counts[i]);
      has_feature_[i] = has_feature_[i] || Find(features, column.name) != nullptr;
    }
    records_.lists.insert(records_.lists.end(), lists.begin(), lists.end());
    records_.origins.push_back({static_cast<int32_t>(records_.files.size()), number});
    return absl::OkStatus();
  }

  absl::Status TakeLabel(const Feature& label) {
    const auto index = OneInteger(label);
    if (index && *index > kLargestLabel) {
      return absl::InvalidArgumentError(absl::StrCat("label ", *index, " is not a class index"));
    }
    std::vector<float> values(static_cast<size_t>(schema_.label->values));
    ReadValues(label, absl::MakeSpan(values));
    const auto bad = std::find_if_not(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
    if (bad != values.end())
      return absl::InvalidArgumentError(absl::StrCat("label ", *bad, " is not finite"));
    targets_.insert(targets_.end(), values.begin(), values.end());
    return absl::OkStatus();
  }

  const DataOptions& options_;
  const bool training_;  // false for the validation set
  Schema schema_;
  BadRows bad_;
  std::vector<FilePart> parts_;
  Records records_;
  std::vector<bool> has_feature_;  // [input of the schema] in any example
  std::vector<float> targets_;     // [examples, label->values]
};

absl::StatusOr<Split> ReadSet(SetReader& reader, const std::vector<std::string>& files) {
  for (const std::string& file : files) CAIRN_RETURN_IF_ERROR(reader.ReadFile(file));
  return reader.Finish(files.front());
}

}  // namespace

LoadedSplits LoadTfRecords(const DataOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(SetFiles files, FindTfRecordFiles(options.path));
  if (files.train.empty()) return std::nullopt;
  if (options.hash_ids) {
    return absl::InvalidArgumentError(
        absl::StrCat(files.train.front(),
                     ": --hash_ids applies to Criteo, CSV and libsvm; the ids of TFRecord are integers"));
  }
  Splits splits;
  splits.remarks = std::move(files.remarks);
  SetReader training(options, {});
  CAIRN_ASSIGN_OR_RETURN(splits.train, ReadSet(training, files.train));
  if (files.validation.empty()) return splits;
  SetReader validation(options, training.schema());
  CAIRN_ASSIGN_OR_RETURN(splits.validation, ReadSet(validation, files.validation));
  return splits;
}

LoadedExamples LoadTfRecordExamples(const DataOptions& options) {
  if (!IsTfRecordFile(options.path)) return std::nullopt;
  SetReader reader(options, {});
  CAIRN_ASSIGN_OR_RETURN(Split split, ReadSet(reader, {options.path}));
  return split;
}

}  // namespace cairn::data
