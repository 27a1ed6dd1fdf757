// Checks that examples and targets suit a model and its loss: shapes, the values of targets, table indices.
// The checks run before training; an error names the file, the example and the value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "common/core/tensor_view.h"
#include "data/dataset.h"
#include "data/targets.h"
#include "nn/model.h"
#include "nn/objective.h"

namespace cairn::worker {

// INVALID_ARGUMENT naming `name` if the model does not take examples of the shape `given`. An example for a
// model with several inputs must be flat and contain all inputs one after another.
absl::Status CheckExampleShape(const nn::Model& model, const Shape& given, absl::string_view name);

// INVALID_ARGUMENT if the labels are class names, but targets are not classes. Empty
// `class_names`: the labels are numbers.
absl::Status CheckClassNames(const nn::Objective& objective, absl::Span<const std::string> class_names);

// Checks all targets. Also checks the inputs that are indices of a table, unless the data set has more than
// 64 Mi input values. Appends to `remarks` a note on each finding that is unusual but allowed.
// `dynamic_layers` look up any integer. INVALID_ARGUMENT naming the first fault.
absl::Status CheckDataset(const nn::Model& model, const nn::Objective& objective,
                          const data::Dataset& dataset, std::vector<std::string>& remarks,
                          absl::Span<const std::string> dynamic_layers = {});

// Checks the inputs that are indices of a table, as CheckDataset() does.
struct IndexCheck {
  const nn::Model& model;
  int64_t examples;
  absl::string_view name;                   // of the inputs, for messages
  absl::Span<const data::InputSpec> specs;  // one for each input of the model
  absl::Span<const std::string> dynamic_layers{};
  absl::string_view hint{};  // appended to the error
};
absl::Status CheckIndices(const IndexCheck& check,
                          absl::FunctionRef<void(int64_t, absl::Span<const MutableTensorView>)> read);

// Checks `targets` alone, as CheckDataset() does; `name`: the file that they came from.
absl::Status CheckLabels(const nn::Model& model, const nn::Objective& objective, const data::Targets& targets,
                         absl::string_view name);

}  // namespace cairn::worker
