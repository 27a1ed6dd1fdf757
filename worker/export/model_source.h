// A model's description out of a file, in each of Keras' formats: JSON, a .keras archive, the .h5 of a whole
// model. They are told apart by their first bytes. Nothing in the files is trusted. Any thread; blocks while
// the disk reads, and of an .h5 while another process, forked for it, looks into the file.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "worker/data/array.h"
#include "worker/data/byte_reader.h"
#include "worker/data/zip_file.h"
#include "worker/nn/model.h"

namespace cairn::worker {

inline constexpr char kConfigMember[] = "config.json";        // of a .keras archive
inline constexpr char kWeightsMember[] = "model.weights.h5";  // of a .keras archive

enum class ModelFileKind { kText, kKerasArchive, kHdf5 };

// By the file's first bytes; text where they say nothing, and of what is no regular file. NOT_FOUND or the
// system's reason, naming the file.
absl::StatusOr<ModelFileKind> KindOfModelFile(const std::string& path);

// A member of `archive`, which was opened from `path`, with its checksum compared. INVALID_ARGUMENT naming
// both where it is missing, damaged or larger than `max_bytes`.
absl::StatusOr<data::SharedBytes> ReadMember(const data::ZipFile& archive, const std::string& path,
                                             const std::string& member,
                                             int64_t max_bytes = data::kMaxArrayBytes);

// The network that `path` describes, with what compile() said where the file has it. Model::FromJson()'s
// errors; INVALID_ARGUMENT for a damaged file, and for an .h5 that holds weights alone; all name the file.
absl::StatusOr<nn::Model> ReadModelFile(const std::string& path);

// Whether a file that ReadModelFile() reads also holds values for the model's variables.
bool HasWeights(const std::string& path);

}  // namespace cairn::worker
