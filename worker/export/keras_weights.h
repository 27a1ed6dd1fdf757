// A model's values as Keras keeps them: model.save() as .keras, save_weights() as .weights.h5, and the .h5 of
// Keras 2. Nothing in the files is trusted. Any thread; blocks while the disk reads, and
// while another process, forked for it, looks into the file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/nn/model.h"

namespace cairn::worker {

bool IsKerasWeightsFile(const std::string& path);  // by its ending: .keras, .h5 or .hdf5

// Of `path` in the model's flat order. Layers are found by their names, or, where Keras made up other ones,
// by class and order as Keras itself does. What an optimizer or a random generator keeps there is passed
// over. INVALID_ARGUMENT naming the layer that is missing, too much, or of other shapes (both are told), or
// saying what is damaged; NOT_FOUND; UNIMPLEMENTED without libhdf5. All name the file.
absl::StatusOr<std::vector<float>> LoadKerasWeights(const std::string& path, const nn::Model& model);

}  // namespace cairn::worker
