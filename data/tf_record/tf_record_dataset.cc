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
#include "common/core/status.h"
#include "data/array/read_ahead.h"
#include "data/file/bad_rows.h"
#include "data/file/byte_reader.h"
#include "data/first_error.h"
#include "data/formats.h"
#include "data/image/image.h"
#include "data/row_writer.h"
#include "data/tf_record/tf_example.h"
#include "data/tf_record/tf_record.h"
#include "data/tf_record/tf_record_files.h"
#include "data/tf_record/tf_schema.h"

namespace cairn::data {
namespace {

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
  RecordRows(const std::vector<TfColumn>& columns, std::vector<Scale> scales, std::vector<int> weights_of,
             Records records)
      : columns_(columns),
        scales_(std::move(scales)),
        weights_of_(std::move(weights_of)),
        records_(std::move(records)),
        read_ahead_(records_.files) {
    int64_t values = 0;
    for (const TfColumn& column : columns_) {
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
    for (const TfColumn& column : columns_) ragged.push_back(column.ragged ? column.values : -1);
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
      const TfColumn& column = columns_[i];
      const auto pieces = cursor.Take(column.values);
      const Feature feature{column.kind, lists[i]};
      const bool integers = column.kind == Feature::Kind::kIntegers || column.texts != nullptr;
      if (column.ragged && integers) {
        std::vector<int64_t> values = IntegersOf(index, column, feature);
        values.resize(static_cast<size_t>(counts[i]));
        const auto bad = WriteRagged(pieces[0], static_cast<int64_t>(values.size()),
                                     [&values](int64_t at) { return values[static_cast<size_t>(at)]; });
        if (bad) Refuse(index, i, *bad, values, pieces);
      } else if (column.ragged) {
        std::vector<float> values(static_cast<size_t>(counts[i]));
        ReadValues(feature, absl::MakeSpan(values));
        WriteRagged(pieces[0], static_cast<int64_t>(values.size()),
                    [&values](int64_t at) { return values[static_cast<size_t>(at)]; });
      } else if (pieces.size() == 1 && pieces[0].dtype == DType::kFloat32 && column.texts == nullptr) {
        const absl::Span<float> values = pieces[0].floats();
        ReadFloats(column, feature, index, values);
        for (float& value : values) value = scales_[i](value);
      } else if (integers) {
        std::vector<int64_t> values = IntegersOf(index, column, feature);
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
      const TfColumn& column = columns_[i];
      if (!column.ragged) continue;
      const auto count = CountIn(column, {column.kind, ListsOf(index)[i]});
      const int ids = i < weights_of_.size() ? weights_of_[i] : -1;
      if (count.ok() && *count <= column.values) {
        counts[i] = *count;
      } else {
        error_.Set(Annotate(count.ok() ? HasChanged() : count.status(),
                            absl::StrCat(Place(index), ": '", column.name, "'")));
        return std::vector<int64_t>(columns_.size());
      }
      if (ids < 0) continue;
      const TfColumn& of_ids = columns_[static_cast<size_t>(ids)];
      const auto weighted = CountIn(of_ids, {of_ids.kind, ListsOf(index)[static_cast<size_t>(ids)]});
      if (weighted.ok() && *weighted == *count) continue;
      error_.Set(Annotate(HasChanged(), absl::StrCat(Place(index), ": '", column.name, "'")));
      return std::vector<int64_t>(columns_.size());
    }
    return counts;
  }

  // The integers of a feature, or the ids of its strings. If one has no id, makes status() an error.
  std::vector<int64_t> IntegersOf(int64_t index, const TfColumn& column, const Feature& feature) const {
    if (column.texts == nullptr) return ReadIntegers(feature);
    const auto strings = ReadStrings(feature);
    std::vector<int64_t> ids;
    for (const absl::string_view text : strings.ok() ? *strings : std::vector<absl::string_view>()) {
      const auto id = column.texts->OfText(text);
      if (!id) {
        error_.Set(absl::InvalidArgumentError(absl::StrCat(
            Place(index), ": '", column.name,
            "': ", column.texts->WhyNoId(absl::StrCat("'", absl::CHexEscape(text), "'"), column.input))));
      }
      ids.push_back(id.value_or(0));
    }
    return ids;
  }

  static absl::Status HasChanged() {
    return absl::InvalidArgumentError("has another number of values than when the file was loaded");
  }

  void ReadFloats(const TfColumn& column, const Feature& feature, int64_t index,
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

  void ReadImage(const TfColumn& column, const Feature& feature, int64_t index,
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

  const std::vector<TfColumn> columns_;
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
  SetReader(const DataOptions& options, TfSchema schema)
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

  const TfSchema& schema() const { return schema_; }

 private:
  Columns ColumnsRead() const {
    Columns columns{.format = kTfRecordFormat};
    for (const TfColumn& column : schema_.inputs) {
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
      const TfColumn& column = schema_.inputs[i];
      const size_t input = one_each ? i : 0;
      if (one_each && !column.ragged) {
        const Shape shape = column.image.rank() > 0 ? column.image : Shape{column.values};
        CAIRN_RETURN_IF_ERROR(CheckInputShape(options_, input, shape,
                                              absl::StrCat(split.inputs_name, ": '", column.name, "'")));
      }
      const bool bytes = column.kind == Feature::Kind::kBytes && column.texts == nullptr;
      if (bytes) split.byte_inputs[input] = true;
      scales.push_back(data::ScaleOf(options_.ScaleOf(input), bytes));
    }
    return scales;
  }

  // Adds one example. The error describes what is wrong with it.
  absl::Status TakeRecord(absl::Span<const uint8_t> record, int64_t number) {
    CAIRN_ASSIGN_OR_RETURN(const auto features, ParseExample(record));
    if (schema_.inputs.empty()) {
      CAIRN_ASSIGN_OR_RETURN(schema_, MakeTfSchema(features, options_));
    }
    has_feature_.resize(schema_.inputs.size());
    std::vector<absl::Span<const uint8_t>> lists;
    std::vector<int64_t> counts;
    for (const TfColumn& column : schema_.inputs) {
      CAIRN_ASSIGN_OR_RETURN(const Feature feature, TakeFeature(features, column));
      lists.push_back(feature.list);
      counts.push_back(column.values);
      if (!column.ragged) continue;
      const auto values = CountIn(column, feature);
      if (!values.ok()) return Annotate(values.status(), absl::StrCat("'", column.name, "'"));
      counts.back() = *values;
    }
    if (counts.size() == options_.input_names.size())
      CAIRN_RETURN_IF_ERROR(CheckWeightCounts(options_, counts));
    if (schema_.label) {
      CAIRN_ASSIGN_OR_RETURN(const Feature label, TakeFeature(features, *schema_.label));
      CAIRN_RETURN_IF_ERROR(TakeLabel(label));
    }
    for (size_t i = 0; i < counts.size(); ++i) {
      TfColumn& column = schema_.inputs[i];
      if (column.ragged) column.values = std::max(column.values, counts[i]);
      has_feature_[i] = has_feature_[i] || FindFeature(features, column.name) != nullptr;
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
  TfSchema schema_;
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
