#include "worker/nn/model.h"

#include <zip.h>

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "common/core/out_of_memory.h"
#include "common/core/status.h"

namespace cairn::nn {
namespace {

constexpr absl::string_view kZipMagic = "PK\x03\x04";
constexpr uint64_t kLargestConfigBytes = 64 << 20;

// The text of `member` in a zip archive that is in memory.
absl::StatusOr<std::string> ReadZipMember(const std::string& archive, const char* member) {
  const auto fault = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("no ", member, " in the .keras archive: ", what));
  };
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* source = zip_source_buffer_create(archive.data(), archive.size(), 0, &error);
  if (source == nullptr) return fault(zip_error_strerror(&error));
  const std::unique_ptr<zip_t, void (*)(zip_t*)> zip(zip_open_from_source(source, ZIP_RDONLY, &error),
                                                     [](zip_t* open) {
                                                       if (open != nullptr) zip_discard(open);
                                                     });
  if (zip == nullptr) {
    zip_source_free(source);  // an opened archive would own it
    return fault(zip_error_strerror(&error));
  }
  zip_stat_t stat;
  if (zip_stat(zip.get(), member, 0, &stat) != 0) return fault(zip_strerror(zip.get()));
  if ((stat.valid & ZIP_STAT_SIZE) == 0 || stat.size > kLargestConfigBytes)
    return fault("larger than 64 MiB");
  const std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> file(zip_fopen(zip.get(), member, 0), zip_fclose);
  if (file == nullptr) return fault(zip_strerror(zip.get()));
  std::string text(stat.size, '\0');
  const zip_int64_t read = zip_fread(file.get(), text.data(), text.size());
  if (read < 0 || static_cast<uint64_t>(read) != stat.size) return fault("truncated");
  return text;
}

}  // namespace

absl::StatusOr<Model> Model::FromFile(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  if (!absl::StartsWith(text, kZipMagic)) return FromJson(text, path);
  auto config = ReadZipMember(text, "config.json");
  if (!config.ok()) return Annotate(config.status(), path);
  return FromJson(*config, absl::StrCat(path, "/config.json"));
}

Shape Model::input_shape() const {
  if (inputs_.size() == 1) return inputs_[0].shape;
  int64_t elements = 0;
  for (const ModelInput& input : inputs_) elements += input.shape.num_elements();
  return {elements};
}

std::vector<float> Model::InitialParameters(uint64_t seed) const {
  std::vector<float> parameters = FloatVector(num_parameters_, "the model's variables");
  for (const ModelVariable& variable : variables_) {
    Initialize(variable.initializer, variable.shape, seed, variable.name,
               absl::MakeSpan(parameters)
                   .subspan(static_cast<size_t>(variable.offset),
                            static_cast<size_t>(variable.shape.num_elements())));
  }
  return parameters;
}

}  // namespace cairn::nn
