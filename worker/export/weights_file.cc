#include "worker/export/weights_file.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"
#include "data/array/npz.h"
#include "worker/checkpoint/file_io.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/tensors.h"
#include "worker/embedding/trained_tables.h"
#include "worker/export/table_files.h"

namespace cairn::worker {
namespace {

absl::StatusOr<WeightsFile> ReadSafetensors(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  uint32_t crc = 0;
  char length[8];
  CAIRN_RETURN_IF_ERROR(file.ReadAt(0, length, crc));
  uint64_t header = 0;
  for (int i = 7; i >= 0; --i) header = header << 8 | static_cast<unsigned char>(length[i]);
  if (header > kMaxSafetensorsHeader || header + sizeof(length) > file.size()) {
    return absl::DataLossError(
        absl::StrCat("its header has ", header, " bytes, the file only ", file.size()));
  }
  std::string head(header + sizeof(length), '\0');
  CAIRN_RETURN_IF_ERROR(file.ReadAt(0, absl::MakeSpan(head), crc));
  CAIRN_ASSIGN_OR_RETURN(SafetensorsFile tensors, ParseSafetensorsHead(head, file.size()));
  WeightsFile weights = {.metadata = std::move(tensors.metadata)};
  for (const StoredTensor& tensor : tensors.tensors) {
    const auto read = [&](auto& values) {
      return file.ReadAt(
          tensor.offset,
          absl::Span<char>(reinterpret_cast<char*>(values.data()), values.size() * sizeof(values[0])), crc);
    };
    if (tensor.type == TensorType::kI64) {
      std::vector<int64_t>& ids = weights.ids[tensor.name];
      ids.resize(static_cast<size_t>(tensor.shape.num_elements()));
      CAIRN_RETURN_IF_ERROR(read(ids));
      continue;
    }
    WeightArray& array = weights.arrays[tensor.name];
    array.shape = tensor.shape;
    array.values = FloatVector(tensor.shape.num_elements(), absl::StrCat("tensor '", tensor.name, "'"));
    CAIRN_RETURN_IF_ERROR(read(array.values));
  }
  return weights;
}

absl::StatusOr<WeightArrays> ReadNpz(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const data::NpzFile file, data::NpzFile::Open(path));
  WeightArrays arrays;
  for (const std::string& name : file.Names()) {
    CAIRN_ASSIGN_OR_RETURN(const data::Array array, file.Read(name));
    if (data::IsInteger(array.type)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", name, ": is ", data::NameOf(array.type), ", not floating point"));
    }
    WeightArray& weights = arrays[name];
    weights.shape = array.shape;
    const int64_t elements = array.shape.num_elements();
    weights.values.reserve(static_cast<size_t>(elements));
    data::WithType(array.type, [&](auto type) {
      for (int64_t i = 0; i < elements; ++i) {
        weights.values.push_back(static_cast<float>(data::ElementAt<decltype(type)>(array.bytes.data(), i)));
      }
    });
  }
  return arrays;
}

absl::StatusOr<WeightsFile> ReadArrays(const std::string& path) {
  if (absl::EndsWith(path, ".npz")) {
    CAIRN_ASSIGN_OR_RETURN(WeightArrays arrays, ReadNpz(path));
    return WeightsFile{.arrays = std::move(arrays)};
  }
  if (absl::EndsWith(path, ".safetensors")) {
    auto file = ReadSafetensors(path);
    if (!file.ok() && !absl::StrContains(file.status().message(), path)) return Annotate(file.status(), path);
    return file;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", path, "' is neither a directory with checkpoints nor .safetensors, .npz, .keras, .h5 or .hdf5"));
}

// Replaces the ids and the rows of a table of fixed size, which `description` describes, by an array of all rows.
absl::Status Unpack(TableRun description, const std::string& path, WeightsFile& file) {
  const auto rows = file.arrays.find(RowsName(description.name));
  auto ids = file.ids.extract(IdsName(description.name));
  if (rows == file.arrays.end() || ids.empty() || rows->second.shape.rank() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": does not have ids and rows of table '", description.name, "'"));
  }
  WeightArray whole;
  description.dim = rows->second.shape.dim(1);
  whole.shape = Shape({description.vocabulary_size, description.dim});
  const std::string name = description.name;
  auto table =
      TrainedTable::Create(std::move(description), std::move(ids.mapped()), std::move(rows->second.values));
  if (!table.ok()) return Annotate(table.status(), path);
  whole.values = FloatVector(whole.shape.num_elements(), absl::StrCat("table '", name, "'"));
  table->ReadAll(absl::MakeSpan(whole.values));
  file.arrays.erase(rows);
  file.arrays[name] = std::move(whole);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WeightsFile> ReadFileOfWeights(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(WeightsFile file, ReadArrays(path));
  for (const auto& [key, text] : file.metadata) {
    const std::string table = TableOfDescription(key);
    if (table.empty()) continue;
    CAIRN_ASSIGN_OR_RETURN(TableRun description, ParseDescription(text, path));
    description.name = table;
    if (description.vocabulary_size > 0) CAIRN_RETURN_IF_ERROR(Unpack(std::move(description), path, file));
  }
  return file;
}

}  // namespace cairn::worker
