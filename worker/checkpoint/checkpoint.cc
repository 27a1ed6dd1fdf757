#include "worker/checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "worker/checkpoint/file_io.h"
#include "worker/checkpoint/safetensors.h"

namespace cairn::worker {
namespace {

// The size limit for a file that is read into memory as a whole. It is far above the size of any such file
// that Cairn writes.
constexpr uint64_t kMaxTextBytes = uint64_t{1} << 28;
constexpr size_t kPiece = size_t{1} << 20;

// Turns NOT_FOUND into DATA_LOSS, for a file that state.json lists or that every checkpoint has.
absl::Status LossIfMissing(const absl::Status& status) {
  return absl::IsNotFound(status) ? absl::DataLossError(status.message()) : status;
}

// Checks that the header of a file agrees with state.json. Fills in the offsets of the tensors' values.
absl::Status CompareTensors(const FileEntry& entry, const SafetensorsFile& file,
                            std::vector<uint64_t>& offsets) {
  if (file.tensors.size() != entry.tensors.size()) {
    return absl::DataLossError(
        absl::StrCat(file.tensors.size(), " tensors, but ", kStateFile, " lists ", entry.tensors.size()));
  }
  std::map<std::string, const StoredTensor*> stored;
  for (const StoredTensor& tensor : file.tensors) stored.emplace(tensor.name, &tensor);
  for (const TensorEntry& expected : entry.tensors) {
    const auto found = stored.find(expected.name);
    if (found == stored.end()) {
      return absl::DataLossError(absl::StrCat("tensor '", expected.name, "' is missing"));
    }
    if (found->second->shape != expected.rows_shape()) {
      return absl::DataLossError(absl::StrCat("tensor '", expected.name, "' has shape ",
                                              found->second->shape.ToString(), ", but ", kStateFile, " has ",
                                              expected.rows_shape().ToString()));
    }
    if (found->second->type != expected.type) {
      return absl::DataLossError(absl::StrCat("tensor '", expected.name, "' is ", NameOf(found->second->type),
                                              ", but ", kStateFile, " has ", NameOf(expected.type)));
    }
    offsets.push_back(found->second->offset);
    stored.erase(found);  // a second entry of that name in state.json is reported as missing
  }
  return absl::OkStatus();
}

absl::Status CheckSum(uint32_t found, uint32_t expected, absl::string_view what) {
  if (found == expected) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(what, " is damaged: crc32 ", found, ", expected ", expected));
}

absl::Status ReadHead(const std::string& directory, const FileEntry& entry, std::vector<uint64_t>& offsets) {
  CAIRN_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(absl::StrCat(directory, "/", entry.name)));
  if (file.size() != entry.bytes) {
    return absl::DataLossError(absl::StrCat("it has ", file.size(), " bytes, expected ", entry.bytes));
  }
  if (entry.head_bytes > entry.bytes || entry.head_bytes > kMaxSafetensorsHeader + sizeof(uint64_t)) {
    return absl::DataLossError(absl::StrCat("its head of ", entry.head_bytes, " bytes is too long"));
  }
  std::string head(static_cast<size_t>(entry.head_bytes), '\0');
  uint32_t crc = 0;
  CAIRN_RETURN_IF_ERROR(file.ReadAt(0, absl::MakeSpan(head), crc));
  CAIRN_RETURN_IF_ERROR(CheckSum(crc, entry.head_crc32, "its head"));
  CAIRN_ASSIGN_OR_RETURN(const SafetensorsFile parsed, ParseSafetensorsHead(head, file.size()));
  return CompareTensors(entry, parsed, offsets);
}

absl::StatusOr<std::string> ReadModel(const std::string& directory, const StateFile& state) {
  auto text = ReadSmallFile(absl::StrCat(directory, "/", kModelFile), kMaxTextBytes);
  if (!text.ok()) return LossIfMissing(text.status());
  if (text->size() != state.model_bytes) {
    return absl::DataLossError(
        absl::StrCat(kModelFile, " has ", text->size(), " bytes, expected ", state.model_bytes));
  }
  CAIRN_RETURN_IF_ERROR(CheckSum(Crc32(0, *text), state.model_crc32, kModelFile));
  return text;
}

}  // namespace

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& directory) {
  if (!FileExists(directory)) return absl::NotFoundError(absl::StrCat("there is no ", directory));
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) {
    return absl::DataLossError(absl::StrCat(directory, " is not a directory"));
  }
  const auto open = [&]() -> absl::StatusOr<Checkpoint> {
    const auto text = ReadSmallFile(absl::StrCat(directory, "/", kStateFile), kMaxTextBytes);
    if (!text.ok()) return LossIfMissing(text.status());
    CAIRN_ASSIGN_OR_RETURN(StateFile state, ParseStateFile(*text));
    CAIRN_ASSIGN_OR_RETURN(std::string model_json, ReadModel(directory, state));
    Checkpoint checkpoint(directory, std::move(state), std::move(model_json));
    CAIRN_RETURN_IF_ERROR(checkpoint.ReadHeads());
    return checkpoint;
  };
  auto checkpoint = open();
  if (!checkpoint.ok()) return Annotate(checkpoint.status(), directory);
  return checkpoint;
}

absl::Status Checkpoint::ReadHeads() {
  CAIRN_ASSIGN_OR_RETURN(tensors_, MergeTensors(state_));
  std::vector<std::vector<uint64_t>> offsets(state_.files.size());  // [file][entry]
  for (size_t i = 0; i < offsets.size(); ++i) {
    const absl::Status status = ReadHead(directory_, state_.files[i], offsets[i]);
    CAIRN_RETURN_IF_ERROR(Annotate(LossIfMissing(status), state_.files[i].name));
  }
  for (TensorInfo& tensor : tensors_) {
    for (TensorRows& rows : tensor.rows) rows.offset = offsets[rows.file][rows.entry];
  }
  return absl::OkStatus();
}

uint64_t Checkpoint::bytes() const {
  uint64_t sum = 0;
  for (const FileEntry& file : state_.files) sum += file.bytes;
  return sum;
}

absl::Status TensorReader::Read(absl::Span<char> into) {
  while (!into.empty()) {
    if (left_ == 0) {
      CAIRN_CHECK(next_ < tensor_.rows.size());
      const TensorRows& rows = tensor_.rows[next_++];
      const TensorEntry& entry = checkpoint_.files()[rows.file].tensors[rows.entry];
      offset_ = rows.offset;
      left_ = static_cast<uint64_t>(entry.rows_shape().num_elements() * BytesPerElement(entry.type));
      crc_ = 0;
      CAIRN_RETURN_IF_ERROR(OpenFile(rows));
    }
    const absl::Span<char> some =
        into.subspan(0, static_cast<size_t>(std::min<uint64_t>(left_, into.size())));
    CAIRN_RETURN_IF_ERROR(ReadSome(some));
    into.remove_prefix(some.size());
  }
  return absl::OkStatus();
}

absl::Status TensorReader::OpenFile(const TensorRows& rows) {
  const FileEntry& file = checkpoint_.files()[rows.file];
  where_ = absl::StrCat(checkpoint_.directory(), ": ", file.name, ": tensor '", tensor_.name, "'");
  input_.reset();
  auto input = InputFile::Open(absl::StrCat(checkpoint_.directory(), "/", file.name));
  if (!input.ok()) return Annotate(LossIfMissing(input.status()), where_);
  input_.emplace(*std::move(input));
  return absl::OkStatus();
}

absl::Status TensorReader::ReadSome(absl::Span<char> into) {
  absl::Status status = input_->ReadAt(offset_, into, crc_);
  offset_ += into.size();
  left_ -= into.size();
  if (left_ == 0) {
    const TensorRows& rows = tensor_.rows[next_ - 1];
    status.Update(CheckSum(crc_, checkpoint_.files()[rows.file].tensors[rows.entry].crc32, "it"));
  }
  return Annotate(status, where_);
}

absl::Status Checkpoint::Load(absl::Span<const net::VariableInfo> variables,
                              absl::Span<const std::string> slots,
                              absl::Span<const absl::Span<float>> into) const {
  CAIRN_CHECK(into.size() == 1 + slots.size());
  std::map<absl::string_view, const TensorInfo*> by_name;
  for (const TensorInfo& tensor : tensors_) by_name.emplace(tensor.name, &tensor);
  for (size_t part = 0; part < into.size(); ++part) {
    for (const net::VariableInfo& variable : variables) {
      const std::string name = TensorName(variable.name, part == 0 ? "" : slots[part - 1]);
      const auto found = by_name.find(name);
      if (found == by_name.end()) {
        return absl::FailedPreconditionError(absl::StrCat(
            directory_, ": tensor '", name, "' is not in it; it was written by ", run().optimizer, " with ",
            run().slots.size(), " slots (", absl::StrJoin(run().slots, ", "), ")"));
      }
      const TensorInfo& tensor = *found->second;
      if (tensor.type != TensorType::kF32) {
        return absl::FailedPreconditionError(
            absl::StrCat(directory_, ": tensor '", name, "' is ", NameOf(tensor.type)));
      }
      if (tensor.shape != variable.shape) {
        return absl::FailedPreconditionError(absl::StrCat(directory_, ": tensor '", name, "' has shape ",
                                                          tensor.shape.ToString(), " in it and ",
                                                          variable.shape.ToString(), " here"));
      }
      CAIRN_RETURN_IF_ERROR(Annotate(CheckRows(tensor), directory_));
      const absl::Span<float> target = into[part];
      CAIRN_CHECK(variable.offset + variable.shape.num_elements() <= static_cast<int64_t>(target.size()));
      CAIRN_RETURN_IF_ERROR(TensorReader(*this, tensor)
                                .Read({reinterpret_cast<char*>(target.data() + variable.offset),
                                       static_cast<size_t>(tensor.bytes())}));
    }
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::Read(const TensorInfo& tensor,
                              absl::FunctionRef<void(absl::Span<const char>)> piece) const {
  CAIRN_RETURN_IF_ERROR(Annotate(CheckRows(tensor), directory_));
  TensorReader reader(*this, tensor);
  std::vector<char> buffer(static_cast<size_t>(std::min<uint64_t>(tensor.bytes(), kPiece)));
  for (uint64_t left = tensor.bytes(); left > 0; left -= buffer.size()) {
    buffer.resize(static_cast<size_t>(std::min<uint64_t>(left, buffer.size())));
    CAIRN_RETURN_IF_ERROR(reader.Read(absl::MakeSpan(buffer)));
    piece(buffer);
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::Verify() const {
  for (const TensorInfo& tensor : tensors_) {
    CAIRN_RETURN_IF_ERROR(Read(tensor, [](absl::Span<const char>) {}));
  }
  return absl::OkStatus();
}

absl::StatusOr<Checkpoint> OpenNewest(const std::string& train_dir,
                                      absl::FunctionRef<void(const absl::Status&)> skipped) {
  CAIRN_ASSIGN_OR_RETURN(const auto directories, ListCheckpoints(train_dir));
  for (auto directory = directories.rbegin(); directory != directories.rend(); ++directory) {
    auto checkpoint = Checkpoint::Open(*directory);
    absl::Status status = checkpoint.ok() ? checkpoint->Verify() : checkpoint.status();
    if (status.ok()) return checkpoint;
    if (!absl::IsDataLoss(status)) return status;
    skipped(status);
  }
  return absl::NotFoundError(
      absl::StrCat("there is no ", directories.empty() ? "" : "undamaged ", "checkpoint in ", train_dir));
}

absl::StatusOr<std::optional<Checkpoint>> FindNewest(const std::string& train_dir,
                                                     absl::FunctionRef<void(const absl::Status&)> skipped) {
  absl::Status damage;
  auto newest = OpenNewest(train_dir, [&](const absl::Status& status) {
    skipped(status);
    damage.Update(status);
  });
  if (absl::IsNotFound(newest.status()) && !damage.ok()) return damage;
  if (absl::IsNotFound(newest.status())) return std::nullopt;
  CAIRN_RETURN_IF_ERROR(newest.status());
  return *std::move(newest);
}

}  // namespace cairn::worker
