// The contents of a file of weights: arrays by their names. Nothing in the files is trusted. Any thread; blocks while
// the disk reads.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/core/shape.h"

namespace cairn::worker {

// One array in a file of weights.
struct WeightArray {
  Shape shape;
  std::vector<float> values;  // [shape], row-major
};
using WeightArrays = std::map<std::string, WeightArray>;  // by name: "conv2d/kernel"

// Only a .safetensors file has tables of ids, and metadata.
struct WeightsFile {
  WeightArrays arrays{};
  std::map<std::string, std::vector<int64_t>> ids{};  // by name: "table/users/embeddings/ids"
  std::map<std::string, std::string> metadata{};
};

// Reads PATH.safetensors or PATH.npz. A table of fixed size that is stored as ids and rows becomes an array of all its
// rows. INVALID_ARGUMENT for other kinds of files and for integer arrays; DATA_LOSS or INVALID_ARGUMENT for damaged
// files; NOT_FOUND. All errors name the file.
absl::StatusOr<WeightsFile> ReadFileOfWeights(const std::string& path);

}  // namespace cairn::worker
