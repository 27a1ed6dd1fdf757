#include "worker/adapt/text_keys.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cairn::worker {

TextKeys::TextKeys(std::string layer, std::optional<TextDivision> division)
    : IdMap(std::move(layer)), division_(std::move(division)) {}

std::optional<int64_t> TextKeys::OfText(absl::string_view value) const {
  const absl::MutexLock lock(&mutex_);
  const auto [found, inserted] = key_of_.try_emplace(value, static_cast<int64_t>(texts_.size()));
  if (inserted) texts_.emplace_back(value);
  return found->second;
}

std::optional<int64_t> TextKeys::ids_per_text() const {
  return division_ ? std::optional<int64_t>(0) : std::nullopt;
}

void TextKeys::AppendIds(absl::string_view text, std::vector<int64_t>& ids) const {
  for (const std::string& piece : DivideText(text, *division_)) ids.push_back(*OfText(piece));
}

absl::StatusOr<IdTable> TextKeys::AsTable() const {
  return absl::UnimplementedError("a model is adapted before it is exported");
}

std::string TextKeys::Describe() const {
  const absl::MutexLock lock(&mutex_);
  return absl::StrCat(texts_.size(), " texts");
}

}  // namespace cairn::worker
