#include "data/tf_record/tf_schema.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/core/status.h"
#include "data/image/image.h"

namespace cairn::data {
namespace {

// Usual names, one of which must be present if the options give no name. Names with a slash are TF-slim's.
constexpr const char* kInputNames[] = {"image", "image_raw", "x", "features", "inputs", "image/encoded"};
constexpr const char* kLabelNames[] = {"label", "y", "target", "class", "image/class/label"};

absl::Status NoFeature(const std::vector<NamedFeature>& features, absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat(
      "has no feature ", wanted,
      "; it has: ", absl::StrJoin(features, ", ", [](std::string* out, const NamedFeature& named) {
        absl::StrAppend(out, absl::CHexEscape(named.name));
      })));
}

// `like`: the column without its kind and its number of values.
absl::StatusOr<TfColumn> MakeColumn(const std::vector<NamedFeature>& features, TfColumn like) {
  const std::string where = absl::StrCat("'", like.name, "'");
  const Feature* feature = FindFeature(features, like.name);
  if (feature == nullptr) return NoFeature(features, where);
  like.kind = feature->kind;
  if (like.texts != nullptr && like.kind != Feature::Kind::kBytes) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": is a ", NameOf(like.kind), "; input '",
                                                   like.input, "' takes strings, a bytes_list"));
  }
  const auto values = CountIn(like, *feature);
  if (!values.ok()) return Annotate(values.status(), where);
  if (*values == 0) return absl::InvalidArgumentError(absl::StrCat(where, ": is empty"));
  like.values = *values;
  return like;
}

// The column of a ragged input, which an example may lack: it has no values then.
TfColumn RaggedColumn(TfColumn like, bool integers) {
  like.kind = like.texts != nullptr ? Feature::Kind::kBytes
              : integers            ? Feature::Kind::kIntegers
                                    : Feature::Kind::kFloats;
  like.values = 1;
  like.ragged = true;
  return like;
}

// Turns a column of bytes whose first example is a PNG or JPEG into a column of images. If the image header
// is invalid, but the number of bytes is the number of values that the model takes, the bytes are pixels that
// only begin like an image. `input` is the model's input shape; rank 0: unknown.
absl::Status DetectImage(const Feature& feature, const Shape& input, TfColumn& column) {
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
    if (!options.labels_optional || FindFeature(features, label) != nullptr) options.label_column = label;
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
    if (FindFeature(features, name) == nullptr) continue;
    if (found != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("features '", found, "' and '", name,
                                                     "' could both be the ", what, "; ", flag, " decides"));
    }
    found = name;
  }
  if (found != nullptr) return found;
  return NoFeature(features, absl::StrJoin(names, " or "));
}

// The feature of a ragged `column`, without values if an example lacks it.
absl::StatusOr<Feature> TakeRagged(const std::vector<NamedFeature>& features, const TfColumn& column) {
  const Feature* const feature = FindFeature(features, column.name);
  if (feature == nullptr || feature->kind == Feature::Kind::kNone) return Feature{column.kind, {}};
  if (feature->kind == column.kind) return *feature;
  return absl::InvalidArgumentError(
      absl::StrCat("'", column.name, "': is a ", NameOf(feature->kind), "; this ragged input takes ",
                   column.kind == Feature::Kind::kIntegers ? "an " : "a ", NameOf(column.kind)));
}

TfColumn WithoutForm(const TfColumn& column) {
  return {.name = column.name, .texts = column.texts, .input = column.input};
}

}  // namespace

absl::StatusOr<int64_t> CountIn(const TfColumn& column, const Feature& feature) {
  if (column.texts == nullptr) return CountValues(feature);
  CAIRN_ASSIGN_OR_RETURN(const auto strings, ReadStrings(feature));
  return static_cast<int64_t>(strings.size());
}

const Feature* FindFeature(const std::vector<NamedFeature>& features, absl::string_view name) {
  for (const NamedFeature& named : features) {
    if (named.name == name) return &named.feature;
  }
  return nullptr;
}

absl::StatusOr<TfSchema> MakeTfSchema(const std::vector<NamedFeature>& features, const DataOptions& given) {
  CAIRN_ASSIGN_OR_RETURN(const DataOptions options, WithTrained(features, given));
  TfSchema schema;
  std::vector<std::string> names = options.feature_columns;
  if (names.empty() && options.input_names.size() > 1) names = options.input_names;
  if (names.empty()) {
    CAIRN_ASSIGN_OR_RETURN(names.emplace_back(),
                           OnlyName(features, kInputNames, "input", "--feature_column"));
  }
  const Shape input = names.size() == 1 ? options.example_shape : Shape();
  for (const std::string& name : names) {
    const size_t of_model = schema.inputs.size();
    const bool one_each = names.size() == options.input_types.size();
    TfColumn& column = schema.inputs.emplace_back();
    column.name = name;
    if (one_each) column.texts = options.TextMapOf(of_model);
    if (column.texts != nullptr) column.input = options.input_names[of_model];
    if (column.texts != nullptr && column.texts->ids_per_text()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", name, "': ", column.texts->layer(), " takes texts, which only CSV files have"));
    }
    if (one_each && options.IsRagged(of_model)) {
      column = RaggedColumn(std::move(column), IsInteger(options.input_types[of_model]));
      continue;
    }
    CAIRN_ASSIGN_OR_RETURN(column, MakeColumn(features, std::move(column)));
    if (column.texts != nullptr) continue;
    CAIRN_RETURN_IF_ERROR(DetectImage(*FindFeature(features, name), input, column));
  }
  std::string label = options.label_column;
  if (label.empty()) {
    const bool any = std::any_of(std::begin(kLabelNames), std::end(kLabelNames),
                                 [&](const char* name) { return FindFeature(features, name) != nullptr; });
    if (!any && options.labels_optional) return schema;
    CAIRN_ASSIGN_OR_RETURN(label, OnlyName(features, kLabelNames, "label", "--label_column"));
  }
  CAIRN_ASSIGN_OR_RETURN(schema.label, MakeColumn(features, {.name = label}));
  if (schema.label->kind == Feature::Kind::kBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", label, "': the label is a bytes_list; it must be an int64_list or a float_list"));
  }
  return schema;
}

absl::StatusOr<Feature> TakeFeature(const std::vector<NamedFeature>& features, const TfColumn& column) {
  const auto describe = [&column](Feature::Kind kind, int64_t values) {
    const bool bytes = kind == Feature::Kind::kBytes && column.texts == nullptr;
    return absl::StrCat(NameOf(kind), " of ", values, bytes ? " bytes" : " values");
  };
  if (column.ragged) return TakeRagged(features, column);
  CAIRN_ASSIGN_OR_RETURN(const TfColumn found, MakeColumn(features, WithoutForm(column)));
  if (column.image.rank() > 0) {
    const Feature& feature = *FindFeature(features, column.name);
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
  return *FindFeature(features, column.name);
}

}  // namespace cairn::data
