// tokens.json, beside files of tokens or a model of them: how the files store ids, and the text of each id.
//
//   {"dtype": "uint16", "vocabulary": ["\n", " ", "a", "b"]}
//
// Both fields may be left out: ids are uint16 then, and have no text. Other fields are ignored. Any thread; blocks on
// the disk.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "data/array.h"

namespace cairn::data {

inline constexpr char kTokensFile[] = "tokens.json";

struct TokensJson {
  ElementType dtype = ElementType::kUint16;  // or kUint32: that of .bin files
  std::vector<std::string> vocabulary{};     // [id] distinct texts, none of which is empty; empty: unknown

  friend bool operator==(const TokensJson&, const TokensJson&) = default;
};

// Reads `directory`/tokens.json; the defaults if it does not exist. INVALID_ARGUMENT naming the file and the field.
absl::StatusOr<TokensJson> ReadTokensJson(const std::string& directory);
absl::Status WriteTokensJson(const std::string& directory, const TokensJson& tokens);

// Ids of `text`, from its beginning: each is that of the longest text in the vocabulary that comes next. For a
// vocabulary of characters this is the only way to divide a text; other tokenizers may divide it otherwise.
// INVALID_ARGUMENT with the position of a byte at which no entry begins.
absl::StatusOr<std::vector<int64_t>> TokensOf(absl::string_view text,
                                              absl::Span<const std::string> vocabulary);

}  // namespace cairn::data
