// Reads a model's description from a file in any of Keras' formats: JSON, a .keras archive, the .h5 of a
// whole model. The file's first bytes determine the format. Nothing in the files is trusted. Any thread.
// Blocks while the disk reads, and for an .h5 file while a process forked for this reads the file.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "data/array.h"
#include "data/array/zip_file.h"
#include "data/file/byte_reader.h"
#include "nn/input_sizes.h"
#include "nn/model.h"

namespace cairn::worker {

inline constexpr char kConfigMember[] = "config.json";        // in a .keras archive
inline constexpr char kWeightsMember[] = "model.weights.h5";  // in a .keras archive

enum class ModelFileKind { kText, kKerasArchive, kHdf5 };

// Detects the kind from the file's first bytes. kText if no other kind matches, and for a file that is not
// regular. Returns NOT_FOUND or the system's error, naming the file.
absl::StatusOr<ModelFileKind> KindOfModelFile(const std::string& path);

// Reads a member of `archive`, which was opened from `path`, and verifies its checksum. INVALID_ARGUMENT
// naming both if the member is missing, damaged or larger than `max_bytes`.
absl::StatusOr<data::SharedBytes> ReadMember(const data::ZipFile& archive, const std::string& path,
                                             const std::string& member,
                                             int64_t max_bytes = data::kMaxArrayBytes);

// The JSON of the model in the .keras archive `path`, with the vocabularies that the archive has for its layers. Errors
// name the archive and the member.
absl::StatusOr<std::string> ReadArchiveText(const std::string& path);

// The network that `path` describes, with the settings of compile() if the file has them. Returns
// Model::FromJson()'s errors, and INVALID_ARGUMENT for a damaged file or an .h5 that holds only weights. All
// errors name the file. `sizes` fix those of the inputs that the file leaves open.
absl::StatusOr<nn::Model> ReadModelFile(const std::string& path, const nn::InputSizes& sizes = {});

// Whether a file that ReadModelFile() reads also holds values for the model's variables.
bool HasWeights(const std::string& path);

}  // namespace cairn::worker
