// Learners find the vocabulary, the moments or the boundaries of a layer in the values of a training set. Made by
// AdaptModel(); one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "common/core/tensor_view.h"
#include "data/dataset.h"
#include "worker/adapt/unadapted_layers.h"

namespace cairn::worker {

class Learner {
 public:
  virtual ~Learner() = default;
  // Makes the reader of the data pass on the values of `input`, which the layer reads, instead of their ids.
  virtual void TakeValues(size_t input, data::DataOptions& options) = 0;
  // The values of an input of an example.
  virtual void Add(const TensorView& values) = 0;
  // Writes what it learned to the layer's `config`, whose values the model has accepted. Returns it for the log: "1498
  // tokens". INVALID_ARGUMENT if the values do not do.
  virtual absl::StatusOr<std::string> Finish(nlohmann::json& config) const = 0;
};

// The numbers of an array of this shape, as Keras' lists; one number if the shape is empty. No extent is 0.
nlohmann::json NestedList(absl::Span<const double> numbers, absl::Span<const int64_t> shape);

// `input`: the shape of an example of the input that the layer reads.
std::unique_ptr<Learner> MakeLearner(const UnadaptedLayer& layer, const Shape& input);

}  // namespace cairn::worker
