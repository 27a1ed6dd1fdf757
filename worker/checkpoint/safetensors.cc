#include "worker/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "common/core/json.h"
#include "common/core/status.h"
#include "worker/checkpoint/file_io.h"

namespace cairn::worker {
namespace {

using Json = nlohmann::json;

constexpr char kMetadata[] = "__metadata__";
constexpr size_t kLengthBytes = sizeof(uint64_t);

// The list of non-negative integers under `key`; nullopt if there is no such list.
std::optional<std::vector<int64_t>> ReadNumbers(const Json& entry, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array()) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const Json& number : *found) {
    if (!number.is_number_unsigned() || number.get<uint64_t>() > uint64_t{INT64_MAX}) return std::nullopt;
    numbers.push_back(number.get<int64_t>());
  }
  return numbers;
}

struct Entry {
  StoredTensor tensor;
  uint64_t begin = 0, end = 0;  // in bytes from the first value
};

absl::StatusOr<Entry> ReadEntry(const std::string& name, const Json& json) {
  const auto fault = [&](const auto&... what) {
    return absl::DataLossError(absl::StrCat("tensor '", name, "': ", what...));
  };
  if (!json.is_object()) return fault("its description is not an object");
  const auto dims = ReadNumbers(json, "shape");
  if (!dims.has_value()) return fault("its shape is not a list of sizes");
  const auto shape = Shape::FromUntrusted(*dims);
  if (!shape.ok()) return fault(shape.status().message());
  const auto offsets = ReadNumbers(json, "data_offsets");
  if (!offsets.has_value() || offsets->size() != 2) return fault("data_offsets are not two numbers");
  const auto dtype = json.find("dtype");
  if (dtype == json.end() || !dtype->is_string()) return fault("its dtype is not a string");
  const std::string type_name = dtype->get<std::string>();
  const TensorType type = type_name == NameOf(TensorType::kI64) ? TensorType::kI64 : TensorType::kF32;
  if (type_name != NameOf(type)) {
    return absl::FailedPreconditionError(
        absl::StrCat("tensor '", name, "': its dtype is ", type_name,
                     ", only F32 and, for the ids of tables, I64 are supported"));
  }
  Entry entry = {{.name = name, .shape = *shape, .type = type},
                 static_cast<uint64_t>(offsets->front()),
                 static_cast<uint64_t>(offsets->back())};
  const auto bytes = static_cast<uint64_t>(shape->num_elements() * BytesPerElement(type));  // 2^43 at most
  if (entry.end < entry.begin || entry.end - entry.begin != bytes) {
    return fault("shape ", shape->ToString(), " takes ", bytes, " bytes, data_offsets are [", entry.begin,
                 ",", entry.end, "]");
  }
  return entry;
}

absl::Status WriteContents(const NamedTensor& tensor,
                           absl::FunctionRef<absl::Status(absl::string_view piece)> write) {
  return tensor.contents != nullptr ? tensor.contents(write) : write(BytesOf(tensor.values));
}

// Writes to a device, a pipe or a socket, which a rename would replace.
absl::Status WriteSpecialFile(const std::string& path, std::string contents,
                              absl::Span<const NamedTensor> tensors) {
  for (const NamedTensor& tensor : tensors) {
    CAIRN_RETURN_IF_ERROR(WriteContents(tensor, [&](absl::string_view piece) {
      absl::StrAppend(&contents, piece);
      return absl::OkStatus();
    }));
  }
  return WriteFileAtomically(path, contents);
}

}  // namespace

absl::string_view NameOf(TensorType type) {
  return type == TensorType::kI64 ? "I64" : "F32";
}

int64_t BytesPerElement(TensorType type) {
  return type == TensorType::kI64 ? sizeof(int64_t) : sizeof(float);
}

absl::StatusOr<std::string> SafetensorsHead(absl::Span<const NamedTensor> tensors,
                                            const std::map<std::string, std::string>& metadata) {
  Json header = {{kMetadata, metadata}};
  uint64_t end = 0;
  for (const NamedTensor& tensor : tensors) {
    const uint64_t begin = end;
    end += static_cast<uint64_t>(tensor.shape.num_elements() * BytesPerElement(tensor.type));
    Json entry = {
        {"dtype", NameOf(tensor.type)}, {"shape", tensor.shape.dims()}, {"data_offsets", {begin, end}}};
    if (!header.emplace(tensor.name, std::move(entry)).second) {
      return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor.name, "': the name is taken"));
    }
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception&) {
    return absl::InvalidArgumentError("the name of a tensor, or the metadata, is not UTF-8");
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  if (length > kMaxSafetensorsHeader) {
    return absl::InvalidArgumentError(
        absl::StrCat("a header of ", length, " bytes exceeds the format's limit of ", kMaxSafetensorsHeader));
  }
  std::string head(kLengthBytes, '\0');
  std::memcpy(head.data(), &length, kLengthBytes);
  return head + text;
}

absl::Status WriteSafetensors(const std::string& path, absl::Span<const NamedTensor> tensors,
                              const std::map<std::string, std::string>& metadata) {
  CAIRN_ASSIGN_OR_RETURN(const std::string head, SafetensorsHead(tensors, metadata));
  std::error_code error;
  if (std::filesystem::is_other(path, error)) return WriteSpecialFile(path, head, tensors);
  return WriteByRename(path, [&](const std::string& temporary) -> absl::Status {
    CAIRN_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(temporary));
    CAIRN_RETURN_IF_ERROR(file.Write(head));
    for (const NamedTensor& tensor : tensors) {
      CAIRN_RETURN_IF_ERROR(
          WriteContents(tensor, [&](absl::string_view piece) { return file.Write(piece); }));
    }
    return file.Sync();
  });
}

absl::StatusOr<SafetensorsFile> ParseSafetensorsHead(absl::string_view head, uint64_t file_bytes) {
  uint64_t length = 0;
  if (head.size() < kLengthBytes || file_bytes < head.size()) {
    return absl::DataLossError(absl::StrCat("not a safetensors file: ", file_bytes, " bytes"));
  }
  std::memcpy(&length, head.data(), kLengthBytes);
  const absl::string_view text = head.substr(kLengthBytes);
  if (length > kMaxSafetensorsHeader || length != text.size() || text.empty() || text[0] != '{') {
    return absl::DataLossError(
        absl::StrCat("not a safetensors file: its header would have ", length, " bytes"));
  }
  const auto document = ParseJson(text, "header");
  if (!document.ok()) return absl::DataLossError(document.status().message());

  SafetensorsFile file;
  std::vector<Entry> entries;
  for (const auto& [name, json] : document->items()) {
    if (name == kMetadata) {
      if (!json.is_object()) return absl::DataLossError("header: __metadata__ is not an object");
      for (const auto& [key, value] : json.items()) {
        if (!value.is_string()) {
          return absl::DataLossError(absl::StrCat("header: __metadata__: '", key, "' is not a string"));
        }
        file.metadata.emplace(key, value.get<std::string>());
      }
      continue;
    }
    CAIRN_ASSIGN_OR_RETURN(Entry entry, ReadEntry(name, json));
    entries.push_back(std::move(entry));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t end = 0;
  for (Entry& entry : entries) {
    if (entry.begin != end) {
      return absl::DataLossError(absl::StrCat("tensor '", entry.tensor.name, "': its values begin at ",
                                              entry.begin, ", the previous ones end at ", end));
    }
    end = entry.end;
    entry.tensor.offset = head.size() + entry.begin;
    file.tensors.push_back(std::move(entry.tensor));
  }
  if (end != file_bytes - head.size()) {
    return absl::DataLossError(
        absl::StrCat("it has ", file_bytes, " bytes, its header describes ", head.size() + end));
  }
  return file;
}

}  // namespace cairn::worker
