#include "data/tokens_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "common/core/json.h"
#include "common/core/status.h"

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
        const bool fits = entry.is_string() && !entry.get_ref<const std::string&>().empty();
        if (!fits) return refuse("vocabulary: entry ", tokens.vocabulary.size(), " is ", entry.dump());
        if (!seen.insert(entry.get<std::string>()).second) {
          return refuse("vocabulary: ", entry.dump(), " occurs twice");
        }
        tokens.vocabulary.push_back(entry.get<std::string>());
      }
    }
  }
  return tokens;
}

}  // namespace

absl::StatusOr<TokensJson> ReadTokensJson(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", kTokensFile);
  if (!FileExists(path)) return TokensJson();
  CAIRN_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  CAIRN_ASSIGN_OR_RETURN(const json document, ParseJson(text, path));
  auto tokens = ParseTokens(document);
  if (!tokens.ok()) return Annotate(tokens.status(), path);
  return tokens;
}

absl::Status WriteTokensJson(const std::string& directory, const TokensJson& tokens) {
  nlohmann::ordered_json document = {{"dtype", std::string(NameOf(tokens.dtype))}};
  if (!tokens.vocabulary.empty()) document["vocabulary"] = tokens.vocabulary;
  return WriteFileAtomically(absl::StrCat(directory, "/", kTokensFile), document.dump() + "\n");
}

absl::StatusOr<std::vector<int64_t>> TokensOf(absl::string_view text,
                                              absl::Span<const std::string> vocabulary) {
  absl::flat_hash_map<absl::string_view, int64_t> ids;
  size_t longest = 0;
  for (const std::string& entry : vocabulary) {
    ids.emplace(entry, static_cast<int64_t>(ids.size()));
    longest = std::max(longest, entry.size());
  }
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
