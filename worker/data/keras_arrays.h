// Keras' names for the arrays of a data set, wherever they are kept: x_train, y_train, x_test, y_test, and
// where examples have weights, sample_weight_train and sample_weight_test.
//
// A model with several inputs takes x_train_NAME and x_test_NAME for each, or an x_train that has them one
// behind the other already.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/data/array.h"
#include "worker/data/formats.h"

namespace cairn::data {

// One thread at a time.
class NamedArrays {
 public:
  virtual ~NamedArrays() = default;
  virtual bool Has(const std::string& name) const = 0;
  // Errors name the file and the array.
  virtual absl::StatusOr<Array> Read(const std::string& name) const = 0;
  // How messages call an array: "mnist.npz: x_train", "data/x_train.npy".
  virtual std::string FullName(const std::string& name) const = 0;
};

// The training set, and the validation set where one of its arrays is there.
absl::StatusOr<Splits> LoadKerasArrays(const NamedArrays& arrays, const DataOptions& options);

}  // namespace cairn::data
