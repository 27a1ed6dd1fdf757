#include "data/tokens_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/core/files.h"
#include "common/core/json.h"
#include "common/core/status.h"
#include "data/byte_order_mark.h"

namespace cairn::data {
namespace {

using nlohmann::json;

absl::StatusOr<TokensJson> ParseTokens(const json& document) {
  const auto refuse = [](const auto&... text) { return absl::InvalidArgumentError(absl::StrCat(text...)); };
  if (!document.is_object()) return refuse("is not an object");
  TokensJson tokens;
  absl::flat_hash_set<std::string> seen;
  for (const auto& [field, value] : document.items()) {
    if (field == "dtype") {
      if (value == "uint32") tokens.dtype = ElementType::kUint32;
      if (value != "uint16" && value != "uint32") {
        return refuse("dtype: expected \"uint16\" or \"uint32\", got ", value.dump());
      }
    } else if (field == "vocabulary") {
      if (!value.is_array()) return refuse("vocabulary: expected a list of strings");
      for (const json& entry : value) {
        const bool fits =
            entry.is_string() && (tokens.vocabulary.empty() || !entry.get_ref<const std::string&>().empty());
        if (!fits) return refuse("vocabulary: entry ", tokens.vocabulary.size(), " is ", entry.dump());
        if (!seen.insert(entry.get<std::string>()).second) {
          return refuse("vocabulary: ", entry.dump(), " occurs twice");
        }
        tokens.vocabulary.push_back(entry.get<std::string>());
      }
    } else if (field == "separator") {
      if (value != " ") return refuse("separator: expected \" \", got ", value.dump());
      tokens.words = true;
    }
  }
  return tokens;
}

absl::StatusOr<TokensJson> ParseLines(absl::string_view text) {
  TokensJson tokens = {.words = true};
  absl::flat_hash_set<absl::string_view> seen;
  absl::ConsumeSuffix(&text, "\n");
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    absl::ConsumeSuffix(&line, "\r");
    const auto refuse = [&](const char* fault) {
      return absl::InvalidArgumentError(absl::StrCat("line ", tokens.vocabulary.size() + 1, ": '",
                                                     absl::Utf8SafeCHexEscape(line), "' ", fault));
    };
    if (!seen.insert(line).second) return refuse("occurs twice");
    if (line.empty() ? !tokens.vocabulary.empty() : absl::c_any_of(line, absl::ascii_isspace))
      return refuse("is not a word");
    tokens.vocabulary.emplace_back(line);
  }
  return tokens;
}

absl::StatusOr<std::vector<int64_t>> IdsOfWords(absl::string_view text, const TokensJson& tokens,
                                                const absl::flat_hash_map<absl::string_view, int64_t>& ids) {
  const std::optional<int64_t> unknown = IdOf(tokens, {"[UNK]"});
  std::vector<int64_t> found;
  for (const absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(" \t\r\n\v\f"), absl::SkipEmpty())) {
    const auto at = ids.find(word);
    if (at == ids.end() && !unknown.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the word '", absl::Utf8SafeCHexEscape(word), "' is not in the vocabulary"));
    }
    found.push_back(at == ids.end() ? *unknown : at->second);
  }
  return found;
}

}  // namespace

absl::StatusOr<TokensJson> ReadTokensJson(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", kTokensFile);
  return FileExists(path) ? ReadVocabulary(path) : TokensJson();
}

absl::StatusOr<TokensJson> ReadVocabulary(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const std::string file, ReadFile(path));
  const absl::string_view text = WithoutByteOrderMark(file);
  absl::StatusOr<TokensJson> tokens;
  if (absl::EndsWith(path, ".json")) {
    CAIRN_ASSIGN_OR_RETURN(const json document, ParseJson(text, path));
    tokens = ParseTokens(document);
  } else {
    tokens = ParseLines(text);
  }
  if (!tokens.ok()) return Annotate(tokens.status(), path);
  return tokens;
}

absl::Status WriteTokensJson(const std::string& directory, const TokensJson& tokens) {
  nlohmann::ordered_json document = {{"dtype", std::string(NameOf(tokens.dtype))}};
  if (!tokens.vocabulary.empty()) document["vocabulary"] = tokens.vocabulary;
  if (tokens.words) document["separator"] = " ";
  return WriteFileAtomically(absl::StrCat(directory, "/", kTokensFile), document.dump() + "\n");
}

std::optional<int64_t> IdOf(const TokensJson& tokens, absl::Span<const absl::string_view> texts) {
  for (const absl::string_view text : texts) {
    const auto found = absl::c_find(tokens.vocabulary, text);
    if (found != tokens.vocabulary.end()) return found - tokens.vocabulary.begin();
  }
  return std::nullopt;
}

absl::StatusOr<std::vector<int64_t>> TokensOf(absl::string_view text, const TokensJson& how) {
  absl::flat_hash_map<absl::string_view, int64_t> ids;
  size_t longest = 0;
  for (const std::string& entry : how.vocabulary) {
    ids.emplace(entry, static_cast<int64_t>(ids.size()));
    longest = std::max(longest, entry.size());
  }
  if (how.words) return IdsOfWords(text, how, ids);
  std::vector<int64_t> tokens;
  for (size_t at = 0; at < text.size();) {
    size_t length = std::min(longest, text.size() - at);
    auto found = ids.find(text.substr(at, length));
    while (found == ids.end() && length > 1) found = ids.find(text.substr(at, --length));
    if (found == ids.end()) {
      return absl::InvalidArgumentError(absl::StrCat("no token of the vocabulary begins at byte ", at, ", '",
                                                     absl::Utf8SafeCHexEscape(text.substr(at, 8)), "'"));
    }
    tokens.push_back(found->second);
    at += length;
  }
  return tokens;
}

}  // namespace cairn::data
