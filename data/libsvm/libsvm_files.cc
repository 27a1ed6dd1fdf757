#include "data/libsvm/libsvm_files.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "data/file/byte_reader.h"
#include "data/libsvm/libsvm_line.h"

namespace cairn::data {
namespace {

constexpr const char* kSuffixes[] = {".libsvm", ".svm", ".libffm", ".ffm"};

// Whether the first example of the file is a line of pairs. Reads the beginning of the file.
bool BeginsWithPairs(const std::string& path) {
  std::array<uint8_t, 65536> begin;
  const auto reader = OpenPlainOrGzip(path);
  if (!reader.ok()) return false;
  const auto read = (*reader)->Read(absl::MakeSpan(begin));
  if (!read.ok()) return false;
  absl::string_view text(reinterpret_cast<const char*>(begin.data()), *read);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    absl::string_view line = WithoutComment(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    // A line that is longer than the buffer loses its last field, which may be cut off.
    if (text.empty() && *read == begin.size()) line = line.substr(0, std::min(line.rfind(' '), line.size()));
    LibsvmLine parsed;
    return ParseLibsvmLine(line, parsed).ok() && !parsed.entries.empty();
  }
  return false;
}

bool HasSuffix(absl::string_view path) {
  return std::any_of(std::begin(kSuffixes), std::end(kSuffixes), [&](const char* suffix) {
    return absl::EndsWith(absl::StripSuffix(path, ".gz"), suffix);
  });
}

}  // namespace

bool IsLibsvmFile(const std::string& path) {
  return IsFileNamed(path, "") && (HasSuffix(path) || BeginsWithPairs(path));
}

absl::StatusOr<SetFiles> FindLibsvmFiles(const std::string& path) {
  if (IsFileNamed(path, "")) {
    SetFiles files;
    if (!IsLibsvmFile(path)) return files;
    files.train = {path};
    if (const std::string test = absl::StrCat(path, ".t"); FileExists(test)) files.validation = {test};
    return files;
  }
  for (const char* suffix : kSuffixes) {
    CAIRN_ASSIGN_OR_RETURN(SetFiles files, FindSets(path, {suffix}));
    if (!files.train.empty()) return files;
  }
  const std::vector<std::string> texts = FindFiles(path, "train", ".txt");
  if (texts.empty() || !BeginsWithPairs(texts.front())) return SetFiles();
  return FindSets(path, {".txt"});
}

}  // namespace cairn::data
