// Values for a model's variables, from wherever they were left: a checkpoint, or a file of arrays under
// Keras' names. Nothing in the files is trusted. Any thread; blocks while the disk reads.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/core/shape.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/data_record.h"
#include "worker/nn/model.h"

namespace cairn::worker {

// One array of a file of weights.
struct WeightArray {
  Shape shape;
  std::vector<float> values;  // [shape], row-major
};
using WeightArrays = std::map<std::string, WeightArray>;  // by name: "conv2d/kernel"

// The arrays of PATH.safetensors or PATH.npz, float32 or float64. INVALID_ARGUMENT for another kind of file,
// or for arrays of whole numbers; DATA_LOSS or INVALID_ARGUMENT for a damaged one, NOT_FOUND; all name the
// file.
absl::StatusOr<WeightArrays> ReadWeightArrays(const std::string& path);

// `arrays` in the model's flat order. INVALID_ARGUMENT naming `source` and the variable that is missing, has
// another shape (both are told) or is not of the model.
absl::StatusOr<std::vector<float>> MatchWeights(const WeightArrays& arrays, const nn::Model& model,
                                                absl::string_view source);

// The same of a checkpoint, with Checkpoint::Load()'s errors. Of both LoadWeights(): OUT_OF_RANGE naming
// source and variable for a value that is NaN or infinite; RESOURCE_EXHAUSTED where there is no memory for
// them.
absl::StatusOr<std::vector<float>> LoadWeights(const Checkpoint& checkpoint, const nn::Model& model);
// Of `path`: a --train_dir (its newest whole checkpoint), the directory of one checkpoint, what
// ReadWeightArrays() takes, or Keras' own .keras or .h5 (also .hdf5).
absl::StatusOr<std::vector<float>> LoadWeights(const std::string& path, const nn::Model& model);

struct TrainedModel {
  nn::Model model;
  std::vector<float> parameters;       // in the model's flat order
  std::optional<int64_t> global_step;  // where a checkpoint says so
  DataRecord data;                     // kept beside `path`
};

// `path` as LoadWeights() takes it, of the model in `model_file`; where that is empty, of the one that the
// checkpoint was written with, or that a .keras or the .h5 of a whole model holds. INVALID_ARGUMENT where
// there is none.
absl::StatusOr<TrainedModel> LoadTrainedModel(const std::string& path, const std::string& model_file);

}  // namespace cairn::worker
