#include "data/text/text_lines.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/core/status.h"
#include "data/file/byte_reader.h"

namespace cairn::data {
namespace {

// The line of `text` that begins at `at`, without its end.
absl::string_view LineAt(absl::string_view text, size_t at) {
  const absl::string_view rest = text.substr(at);
  return rest.substr(0, rest.find('\n'));
}

}  // namespace

absl::Status TextLines::ReadFile(const std::string& path, BadRows& bad,
                                 absl::FunctionRef<absl::StatusOr<bool>(absl::string_view line)> take) {
  CAIRN_ASSIGN_OR_RETURN(SharedBytes bytes, ReadFileBytes(path));
  parts_.push_back({path, size()});
  files_.push_back(std::move(bytes));
  const absl::string_view text = TextOf(files_.size() - 1);
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const absl::string_view whole = LineAt(text, at);
    const absl::string_view line = absl::StripSuffix(whole, "\r");
    ++number;
    if (!line.empty()) {
      const absl::StatusOr<bool> taken = take(line);
      if (!taken.ok()) {
        CAIRN_RETURN_IF_ERROR(bad.Skip(Annotate(taken.status(), absl::StrCat(path, ": line ", number))));
      } else if (*taken) {
        offsets_.push_back(at);
      }
    }
    at += whole.size() + 1;
  }
  return absl::OkStatus();
}

absl::string_view TextLines::operator[](int64_t example) const {
  return absl::StripSuffix(LineAt(TextOf(FileOf(example)), offsets_[static_cast<size_t>(example)]), "\r");
}

std::string TextLines::Place(int64_t example) const {
  const size_t file = FileOf(example);
  const absl::string_view before = TextOf(file).substr(0, offsets_[static_cast<size_t>(example)]);
  return absl::StrCat(parts_[file].path, ": line ", std::count(before.begin(), before.end(), '\n') + 1);
}

absl::Span<const uint8_t> TextLines::BytesOf(int64_t example) const {
  constexpr size_t kUsualLine = 512;
  return files_[FileOf(example)].span().subspan(offsets_[static_cast<size_t>(example)], kUsualLine);
}

void TextLines::PrefetchMemory(int64_t example) const {
  constexpr size_t kCacheLine = 64, kUsualLine = 320;
  const absl::Span<const uint8_t> bytes = BytesOf(example).subspan(0, kUsualLine);
  for (size_t at = 0; at < bytes.size(); at += kCacheLine) __builtin_prefetch(bytes.data() + at);
}

size_t TextLines::FileOf(int64_t example) const {
  const auto after = std::upper_bound(parts_.begin(), parts_.end(), example,
                                      [](int64_t index, const FilePart& part) { return index < part.first; });
  return static_cast<size_t>(after - parts_.begin()) - 1;
}

}  // namespace cairn::data
