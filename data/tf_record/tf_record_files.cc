#include "data/tf_record/tf_record_files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/core/status.h"
#include "data/file/byte_reader.h"
#include "data/file_sets.h"
#include "data/tf_record/tf_record.h"

namespace cairn::data {
namespace {

constexpr const char* kSuffixes[] = {".tfrecord", ".tfrecords"};
constexpr const char* kValidationSets[] = {"test", "validation", "valid", "val"};

// Removes a trailing "-00000-of-00004" or "_00000-of-00004" from `name`. Returns false if there is none.
bool TakePiece(absl::string_view& name) {
  const auto digits_end = [&name](absl::string_view text) {
    const size_t last = text.find_last_not_of("0123456789");
    return last == absl::string_view::npos || last + 1 == text.size() ? absl::string_view::npos : last + 1;
  };
  const size_t total = digits_end(name);
  if (total == absl::string_view::npos || !absl::EndsWith(name.substr(0, total), "-of-")) return false;
  const absl::string_view before = name.substr(0, total - 4);
  const size_t number = digits_end(before);
  if (number == absl::string_view::npos || number == 0 ||
      (before[number - 1] != '-' && before[number - 1] != '_')) {
    return false;
  }
  name = before.substr(0, number - 1);
  return true;
}

// The name without suffixes and piece number: "mnist-train" for "mnist-train.tfrecord-00000-of-00001.gz".
// Empty if `name` is not the name of a TFRecord file.
absl::string_view StemOf(absl::string_view name) {
  absl::ConsumeSuffix(&name, ".gz");
  bool named = TakePiece(name);
  for (const char* suffix : {".tfrecords", ".tfrecord"}) {
    if (absl::ConsumeSuffix(&name, suffix)) {
      named = true;
      break;
    }
  }
  TakePiece(name);
  return named ? name : absl::string_view();
}

// Reduces `stem`, such as "mnist-train", to the data set's name: "mnist". Returns false if `stem` does not
// end in a separator and `set`.
bool TakeSet(absl::string_view& stem, absl::string_view set) {
  if (!absl::ConsumeSuffix(&stem, set) || stem.size() < 2) return false;
  return absl::ConsumeSuffix(&stem, "-") || absl::ConsumeSuffix(&stem, "_") ||
         absl::ConsumeSuffix(&stem, ".");
}

// The files of `set` whose names begin with the name of a data set, by that name.
std::map<std::string, std::vector<std::string>> FindNamedFiles(const std::string& directory,
                                                               absl::string_view set) {
  std::map<std::string, std::vector<std::string>> found;
  std::error_code error;  // a directory that cannot be read counts as empty
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    absl::string_view stem = StemOf(name);
    if (TakeSet(stem, set)) found[std::string(stem)].push_back(absl::StrCat(directory, "/", name));
  }
  for (auto& [name, files] : found) std::sort(files.begin(), files.end());
  return found;
}

// Pieces without a suffix: "train-00000-of-00004".
std::vector<std::string> FindBarePieces(const std::string& directory, absl::string_view set) {
  std::vector<std::string> files = FindFiles(directory, set, "");
  std::erase_if(files, [](const std::string& file) { return !absl::StrContains(file, "-of-"); });
  return files;
}

absl::StatusOr<SetFiles> FindOfNamedSet(const std::string& directory) {
  const auto training = FindNamedFiles(directory, "train");
  if (training.empty()) return SetFiles();
  if (training.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory, ": has the training files of '", training.begin()->first, "' and of '",
                     training.rbegin()->first, "'; give each data set its own directory"));
  }
  SetFiles files = {.train = training.begin()->second};
  for (const char* set : kValidationSets) {
    const auto validation = FindNamedFiles(directory, set);
    const auto found = validation.find(training.begin()->first);
    if (found == validation.end()) continue;
    files.validation = found->second;
    break;
  }
  return files;
}

// Checks zlib's header (RFC 1950): deflate, a window of at most 32 KiB, and a checksum of both bytes.
bool IsZlib(absl::Span<const uint8_t> bytes) {
  return bytes.size() > 2 && (bytes[0] & 0x0F) == 8 && (bytes[0] >> 4) <= 7 &&
         (bytes[0] * 256 + bytes[1]) % 31 == 0;
}

}  // namespace

absl::StatusOr<SetFiles> FindTfRecordFiles(const std::string& path) {
  if (IsTfRecordFile(path)) return SetFiles{.train = {path}};
  CAIRN_ASSIGN_OR_RETURN(SetFiles files, FindSets(path, kSuffixes));
  if (!files.train.empty()) return files;
  files.train = FindBarePieces(path, "train");
  if (files.train.empty()) {
    CAIRN_ASSIGN_OR_RETURN(files, FindOfNamedSet(path));
  } else {
    for (const char* set : kValidationSets) {
      if (files.validation.empty()) files.validation = FindBarePieces(path, set);
    }
  }
  for (const auto* set : {&files.train, &files.validation}) {
    if (set->empty()) continue;
    CAIRN_ASSIGN_OR_RETURN(std::string remark, CheckPieces(*set));
    if (!remark.empty()) files.remarks.push_back(std::move(remark));
  }
  return files;
}

bool IsTfRecordFile(const std::string& path) {
  if (IsFileNamed(path, ".tfrecord")) return true;
  const std::string name = std::filesystem::path(path).filename().string();
  return !StemOf(name).empty() && !absl::StrContains(name, ".") && IsFileNamed(path, "-of-");
}

absl::StatusOr<SharedBytes> ReadTfRecordFile(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(SharedBytes bytes, ReadFileBytes(path));
  // A plain file may begin with bytes that look like zlib's header, but then the checksum of its first length
  // is valid.
  if (!IsZlib(bytes.span()) || !absl::IsDataLoss(TfRecordReader(bytes.span()).Next().status())) return bytes;
  auto unpacked = InflateZlib(bytes.span());
  if (!unpacked.ok()) return Annotate(unpacked.status(), path);
  return unpacked;
}

}  // namespace cairn::data
