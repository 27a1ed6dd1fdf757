// The features that training reads from tf.Examples, inferred from the training set's first example: which are the
// inputs and the label, and the form that each has in every other example.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/core/shape.h"
#include "data/dataset.h"
#include "data/tf_record/tf_example.h"

namespace cairn::data {

// A feature that every example must have, unless it is ragged, and in the same form as the first example.
struct TfColumn {
  std::string name;
  Feature::Kind kind = Feature::Kind::kNone;
  // The number of input values that it provides; of the longest example, and at least 1, if it is ragged.
  int64_t values = 0;
  bool ragged = false;
  const IdMap* texts = nullptr;  // the values are the ids of its strings
  std::string input{};           // the model's input, with `texts`
  Shape image{};                 // [height, width, channels] of a PNG or JPEG; rank 0: not an image
};

// The features of the training set's first example, which every other example must have.
struct TfSchema {
  std::vector<TfColumn> inputs;
  std::optional<TfColumn> label;  // nullopt if examples have none
};

// The number of the column's values in `feature`, which has its kind. INVALID_ARGUMENT if the list is malformed.
absl::StatusOr<int64_t> CountIn(const TfColumn& column, const Feature& feature);

// The feature `name`, an element of `features`; nullptr if there is none.
const Feature* FindFeature(const std::vector<NamedFeature>& features, absl::string_view name);

// The schema of an example with `features`. INVALID_ARGUMENT for features that are missing or malformed, for several
// that could be the input or the label, and for options that contradict given.trained_columns.
absl::StatusOr<TfSchema> MakeTfSchema(const std::vector<NamedFeature>& features, const DataOptions& given);

// The feature of `column`, which borrows the bytes of the example; without values if the column is ragged and the
// example lacks it. INVALID_ARGUMENT if the feature does not have the column's form.
absl::StatusOr<Feature> TakeFeature(const std::vector<NamedFeature>& features, const TfColumn& column);

}  // namespace cairn::data
