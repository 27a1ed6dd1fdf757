// Reads a model's values from Keras' files: .keras from model.save(), .weights.h5 from save_weights(), and
// the .h5 of Keras 2. Nothing in the files is trusted. Any thread; blocks while the disk reads, and while a
// forked process reads the file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nn/model.h"

namespace cairn::worker {

bool IsKerasWeightsFile(const std::string& path);  // by its ending: .keras, .h5 or .hdf5

// The values of `path` in the model's flat order. Layers are matched by name or, if Keras generated the
// names, by class and order, as Keras does. State of optimizers and random generators is ignored.
// INVALID_ARGUMENT naming a layer that is missing, unknown or of another shape (the message has both), or
// describing the damage; NOT_FOUND; UNIMPLEMENTED without libhdf5. All errors name the file.
absl::StatusOr<std::vector<float>> LoadKerasWeights(const std::string& path, const nn::Model& model);

}  // namespace cairn::worker
