// tokens.json, beside files of tokens or a model of them: how the files store ids, and the text of each id.
//
//   {"dtype": "uint16", "vocabulary": ["\n", " ", "a", "b"]}
//   {"vocabulary": ["[PAD]", "[START]", "[END]", "dado", "keti"], "separator": " "}
//
// All fields may be left out: ids are uint16 then, and have no text. Other fields are ignored. Any thread; blocks on
// the disk.
#pragma once

#include <cstdint>
#include <optional>
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
  std::vector<std::string>
      vocabulary{};    // [id] distinct texts, of which only the first may be empty; empty: unknown
  bool words = false;  // the tokens are words: white space divides a text into them, and a space joins them

  friend bool operator==(const TokensJson&, const TokensJson&) = default;
};

// Reads `directory`/tokens.json; the defaults if it does not exist. INVALID_ARGUMENT naming the file and the field.
absl::StatusOr<TokensJson> ReadTokensJson(const std::string& directory);
// Reads a file of that form or, if its name does not end in .json, a file with the text of an id in each line: words,
// in the order of the ids, of which that of the padding, 0, may be empty. INVALID_ARGUMENT naming the file and the
// entry.
absl::StatusOr<TokensJson> ReadVocabulary(const std::string& path);
absl::Status WriteTokensJson(const std::string& directory, const TokensJson& tokens);

// The id of the first of `texts` that is a token.
std::optional<int64_t> IdOf(const TokensJson& tokens, absl::Span<const absl::string_view> texts);

// Ids of `text`. An unknown word has the id of [UNK], if that is a token. If the tokens are no words, each id is that
// of the longest text in the vocabulary that comes next: for a vocabulary of characters this is the only way to divide
// a text, and other tokenizers may divide it otherwise. INVALID_ARGUMENT with a word that is unknown, or the position
// of a byte at which no entry begins.
absl::StatusOr<std::vector<int64_t>> TokensOf(absl::string_view text, const TokensJson& how);

}  // namespace cairn::data
