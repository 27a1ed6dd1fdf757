// Examples with their targets, in memory, that can be read in any order.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/shape.h"

namespace cairn::data {

// Immutable after loading; read from any thread.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual const Shape& example_shape() const = 0;  // [28,28,1]
  virtual int64_t num_targets() const = 0;         // floats of one example's target: 1 for a class index
  // Largest class index + 1, also of examples beyond DataOptions::limit; 0 where targets are no class
  // indices.
  virtual int64_t num_classes() const = 0;
  // False: every example weighs 1.
  virtual bool weighted() const { return false; }
  // Writes example `index`: its inputs, scaled, to `inputs` [example_shape().num_elements()], its target to
  // `target` [num_targets()]. Returns its weight.
  virtual float Read(int64_t index, absl::Span<float> inputs, absl::Span<float> target) const = 0;
};

struct DataOptions {
  // A directory with IDX files (plain or .gz) under MNIST's names, or a Keras .npz file, or a directory
  // holding mnist.npz.
  std::string path{};
  // Inputs are multiplied by this; NaN means 1/255 for byte images and 1 for floats, which is what Keras'
  // MNIST example does by hand.
  float input_scale = std::numeric_limits<float>::quiet_NaN();
  // Read this many examples of the training set and of the validation set; 0 is all.
  int64_t limit = 0;
};

struct TrainingData {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> validation;  // null when there is none
};

// NOT_FOUND listing the names that were looked for, or INVALID_ARGUMENT naming the file and its fault.
absl::StatusOr<TrainingData> LoadTrainingData(const DataOptions& options);

}  // namespace cairn::data
