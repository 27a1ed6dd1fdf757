// Loads values for a model's variables: from a checkpoint, or from a file of arrays under Keras' names.
// Nothing in the files is trusted. Any thread; blocks while the disk reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "nn/input_sizes.h"
#include "nn/model.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/embedding/table_plan.h"
#include "worker/embedding/trained_tables.h"
#include "worker/export/data_record.h"
#include "worker/export/weights_file.h"

namespace cairn::worker {

// The arrays of PATH.safetensors or PATH.npz, float32 or float64. INVALID_ARGUMENT for other kinds of files
// and for integer arrays; DATA_LOSS or INVALID_ARGUMENT for damaged files; NOT_FOUND. All errors name the
// file.
absl::StatusOr<WeightArrays> ReadWeightArrays(const std::string& path);

// Returns the values of `arrays` in the model's flat order. INVALID_ARGUMENT naming `source` and the variable
// that is missing, has another shape (the message has both) or is not in the model.
absl::StatusOr<std::vector<float>> MatchWeights(const WeightArrays& arrays, const nn::Model& model,
                                                absl::string_view source);

// Fills `into` with the values of a checkpoint, in the model's flat order. A variable that the run stored as an
// embedding table has the rows of the table, and the first values of other rows. Checkpoint::Load()'s errors;
// FAILED_PRECONDITION for a table that takes any id.
absl::Status FillParameters(const Checkpoint& checkpoint, const nn::Model& model, absl::Span<float> into);

// The values of a checkpoint, with Checkpoint::Load()'s errors. Both LoadWeights() return OUT_OF_RANGE naming
// source and variable if a value is NaN or infinite, and RESOURCE_EXHAUSTED if there is not enough memory.
absl::StatusOr<std::vector<float>> LoadWeights(const Checkpoint& checkpoint, const nn::Model& model);
// The values of `path`: a --train_dir (its newest undamaged checkpoint), the directory of one checkpoint, a
// file that ReadWeightArrays() accepts, or Keras' .keras or .h5 (also .hdf5).
absl::StatusOr<std::vector<float>> LoadWeights(const std::string& path, const nn::Model& model);

// The values for a model whose embedding tables are on servers.
struct InitialWeights {
  std::vector<float> parameters;     // in the flat order of plan.model.model
  std::vector<TrainedTable> tables;  // [table of the plan]
};
// As LoadWeights(), for `described` with the tables of `plan`. A table begins as a table or a variable of that name,
// with its width and number of rows; a table of any id, with any number. INVALID_ARGUMENT or FAILED_PRECONDITION,
// naming `path` and the table with both sizes, otherwise.
absl::StatusOr<InitialWeights> LoadWeights(const std::string& path, const nn::Model& described,
                                           const TablePlan& plan);

struct TrainedModel {
  nn::Model model;
  std::vector<float> parameters;       // in the flat order of network()
  std::optional<int64_t> global_step;  // set if `path` is a checkpoint
  DataRecord data;                     // saved next to `path`
  // Tables that the network cannot have as variables: dynamic ones, and those of layers of keras_rs.
  std::optional<TrainedTables> tables{};

  const nn::Model& network() const { return tables.has_value() ? tables->plan.model.model : model; }
};

// Loads the values of `path`, as LoadWeights() does, for the model in `model_file`. If `model_file` is empty,
// the model is the one that the checkpoint was written with, or that the .keras file or the whole-model .h5
// file contains; INVALID_ARGUMENT if `path` has no model. `sizes` as in ReadModelFile(); those of a checkpoint's model
// are fixed.
absl::StatusOr<TrainedModel> LoadTrainedModel(const std::string& path, const std::string& model_file,
                                              const nn::InputSizes& sizes = {});

}  // namespace cairn::worker
