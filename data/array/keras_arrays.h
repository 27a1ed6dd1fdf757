// Keras' names for the arrays of a data set, in any container: x_train and y_train; for validation x_val and
// y_val or x_test and y_test; if examples have weights, also sample_weight_train and so on. The letters x and
// y may be capitals: X_train.
//
// A ragged input has its values, one example after another, in x_train. x_train_row_splits has the position where
// each example begins, and the end of the last.
//
// A model with several inputs takes x_train_NAME for each input, or an x_train that already concatenates
// them. In the same way, a model with several outputs takes y_train_NAME for each output that has a loss, or a y_train
// that concatenates the targets of an example. It may take weights for each output, sample_weight_train_NAME; those of
// an output without this array are 1.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/array.h"
#include "data/formats.h"

namespace cairn::data {

// One thread at a time.
class NamedArrays {
 public:
  virtual ~NamedArrays() = default;
  virtual std::vector<std::string> Names() const = 0;
  virtual bool Has(const std::string& name) const = 0;
  // Errors name the file and the array.
  virtual absl::StatusOr<Array> Read(const std::string& name) const = 0;
  // The name of an array in messages: "mnist.npz: x_train", "data/x_train.npy".
  virtual std::string FullName(const std::string& name) const = 0;
};

// Loads the training set, and the validation set if one of its arrays exists: the first of val, valid,
// validation and test. INVALID_ARGUMENT for two spellings of one array. The remarks name the arrays that are
// not used.
absl::StatusOr<Splits> LoadKerasArrays(const NamedArrays& arrays, const DataOptions& options);

}  // namespace cairn::data
