// The vocabularies of StringLookup, IntegerLookup and TextVectorization that are not in a model's config: Keras writes
// them to files of their own beside it. Nothing in the files is trusted. Any thread; blocks while the disk reads.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/array/zip_file.h"

namespace cairn::worker {

// Whether a model's JSON may have such layers.
bool MayHaveVocabularies(absl::string_view json);

// Adds the vocabularies and idf_weights of `archive`, which was opened from `path`, to the config of the layers that
// have none. Layers that the archive has none for, or only special tokens, are left as they are. INVALID_ARGUMENT
// naming the member that is damaged.
absl::Status AddVocabularies(const data::ZipFile& archive, const std::string& path, nlohmann::json& model);

// Replaces vocabularies that are names of text files, relative to the folder of the model file `path`, by the tokens in
// these files, one in each line. Returns whether there are any. Errors name the file.
absl::StatusOr<bool> ReadVocabularyFiles(const std::string& path, nlohmann::json& model);

}  // namespace cairn::worker
