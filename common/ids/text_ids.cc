#include "common/ids/text_ids.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"

namespace cairn {
namespace {

// The number of bytes of the UTF-8 character that begins with `first`.
size_t BytesOfCharacter(char first) {
  const auto byte = static_cast<uint8_t>(first);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : byte < 0xF8 ? 4 : 1;
}

std::vector<std::string> CharactersOf(absl::string_view text) {
  std::vector<std::string> characters;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = BytesOfCharacter(text[at]);
    size_t end = at + 1;
    while (end < at + bytes && end < text.size() && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) ++end;
    if (end != at + bytes) end = at + 1;
    characters.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return characters;
}

std::vector<std::string> NgramsOf(const std::vector<std::string>& pieces, absl::Span<const int64_t> widths) {
  std::vector<std::string> ngrams;
  for (const int64_t width : widths) {
    const auto each = static_cast<size_t>(width);
    for (size_t i = 0; i + each <= pieces.size(); ++i)
      ngrams.push_back(absl::StrJoin(absl::MakeConstSpan(pieces).subspan(i, each), " "));
  }
  return ngrams;
}

class TextIds final : public IdMap {
 public:
  TextIds(TextDivision division, std::shared_ptr<const IdMap> vocabulary)
      : IdMap(vocabulary->layer()), division_(std::move(division)), vocabulary_(std::move(vocabulary)) {}

  bool Takes(ValueKind kind) const override { return kind == ValueKind::kText; }
  std::optional<int64_t> ids_per_text() const override { return division_.length; }
  void AppendIds(absl::string_view text, std::vector<int64_t>& ids) const override {
    const size_t begin = ids.size(), length = static_cast<size_t>(division_.length);
    for (const std::string& piece : DivideText(text, division_)) {
      if (length > 0 && ids.size() == begin + length) break;
      ids.push_back(vocabulary_->OfText(piece).value_or(0));
    }
    if (length > 0) ids.resize(begin + length, 0);
  }
  absl::StatusOr<IdTable> AsTable() const override {
    return absl::UnimplementedError("ONNX has no operation that divides texts");
  }
  std::string Describe() const override {
    const char* const pieces = division_.split == TextDivision::Split::kWhitespace  ? "words"
                               : division_.split == TextDivision::Split::kCharacter ? "characters"
                                                                                    : "whole texts";
    return absl::StrCat(pieces, division_.ngrams.empty() ? "" : ", n-grams", ", ", vocabulary_->Describe());
  }

 private:
  const TextDivision division_;
  const std::shared_ptr<const IdMap> vocabulary_;
};

}  // namespace

std::vector<std::string> DivideText(absl::string_view text, const TextDivision& division) {
  std::string simple(text);
  if (division.lower) absl::AsciiStrToLower(&simple);
  if (division.strip_punctuation) {
    simple.erase(std::remove_if(simple.begin(), simple.end(),
                                [](char c) { return absl::ascii_ispunct(static_cast<unsigned char>(c)); }),
                 simple.end());
  }
  std::vector<std::string> pieces;
  switch (division.split) {
    case TextDivision::Split::kWhitespace:
      pieces = absl::StrSplit(simple, absl::ByAnyChar(" \t\n\v\f\r"), absl::SkipEmpty());
      break;
    case TextDivision::Split::kCharacter:
      pieces = CharactersOf(simple);
      break;
    case TextDivision::Split::kNone:
      pieces.push_back(std::move(simple));
      break;
  }
  return division.ngrams.empty() ? pieces : NgramsOf(pieces, division.ngrams);
}

std::shared_ptr<const IdMap> MakeTextIds(TextDivision division, std::shared_ptr<const IdMap> vocabulary) {
  return std::make_shared<TextIds>(std::move(division), std::move(vocabulary));
}

}  // namespace cairn
