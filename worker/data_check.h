// Whether examples and targets suit a model and its loss: shapes, the values of targets, indices of tables.
// What is wrong is found before training, and named by file, example and value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "worker/data/dataset.h"
#include "worker/data/targets.h"
#include "worker/nn/loss.h"
#include "worker/nn/model.h"

namespace cairn::worker {

// INVALID_ARGUMENT naming `name` where examples of the shape `given` are none of the model's. Those of a
// model with several inputs are flat: its inputs one behind the other.
absl::Status CheckExampleShape(const nn::Model& model, const Shape& given, absl::string_view name);

// Looks at all targets, and at the inputs that are indices of a table, unless these are more than 64 Mi.
// Appends to `remarks` what is odd but admitted. INVALID_ARGUMENT naming the first fault.
absl::Status CheckDataset(const nn::Model& model, const nn::LossSpec& loss, const data::Dataset& dataset,
                          std::vector<std::string>& remarks);

// The inputs that are indices of a table, as CheckDataset() does it; `read` writes example i.
absl::Status CheckIndices(const nn::Model& model, int64_t examples, absl::string_view name,
                          absl::FunctionRef<void(int64_t, absl::Span<float>)> read);

// The same for targets alone, which came from the file `name`.
absl::Status CheckTargetValues(const nn::LossSpec& loss, const data::Targets& targets,
                               absl::string_view name);

}  // namespace cairn::worker
