#include "nn/layers/text_division.h"

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

constexpr int64_t kMaxNgram = 100;  // adjacent pieces

}  // namespace

TextDivision ReadTextDivision(ConfigReader& config) {
  TextDivision division;
  const auto choice = [&](absl::string_view field, std::initializer_list<absl::string_view> allowed) {
    if (config.Has(field) && config.Raw(field).is_null()) return std::string();  // Python's None
    return config.Choice(field, allowed, *allowed.begin());
  };
  const std::string simplified =
      choice("standardize", {"lower_and_strip_punctuation", "lower", "strip_punctuation"});
  division.lower = absl::StartsWith(simplified, "lower");
  division.strip_punctuation = absl::EndsWith(simplified, "strip_punctuation");
  const std::string split = choice("split", {"whitespace", "character"});
  division.split = split == "whitespace"  ? TextDivision::Split::kWhitespace
                   : split == "character" ? TextDivision::Split::kCharacter
                                          : TextDivision::Split::kNone;
  if (const json& ngrams = config.Raw("ngrams"); ngrams.is_number_integer()) {
    const int64_t most = config.PositiveInt("ngrams");
    for (int64_t width = 1; width <= most && most <= kMaxNgram; ++width) division.ngrams.push_back(width);
    if (most > kMaxNgram) config.Fail("ngrams", absl::StrCat(most, "; at most ", kMaxNgram));
  } else {
    division.ngrams = config.Ints("ngrams", std::vector<int64_t>());
    for (const int64_t width : division.ngrams) {
      if (width < 1 || width > kMaxNgram)
        config.Fail("ngrams", absl::StrCat("holds ", width, "; expected 1 to ", kMaxNgram));
    }
  }
  if (!config.Raw("output_sequence_length").is_null())
    division.length = config.PositiveInt("output_sequence_length");
  return division;
}

}  // namespace cairn::nn
