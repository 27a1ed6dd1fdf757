#include "cli/cluster_files/quote.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace cairn::cli {
namespace {

// Whether the text has no special meaning in a shell or, as a flag, in YAML.
bool IsPlain(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("-_=./", c);
  });
}

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;
};

// The first character of `text`, which must not be empty; nullopt if its bytes are not UTF-8 (RFC 3629).
std::optional<Character> FirstCharacter(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return Character{lead, 1};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return std::nullopt;
  uint32_t code = lead & (0x7Fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0u) != 0x80u) return std::nullopt;
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  const bool shorter = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  if (shorter || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return std::nullopt;
  return Character{code, bytes};
}

// False for control characters, Unicode line breaks, and other characters that YAML requires to be escaped.
bool IsPrintable(uint32_t code) {
  return code >= 0x20 && (code < 0x7F || code > 0x9F) && code != 0x2028 && code != 0x2029 && code != 0xFEFF &&
         code != 0xFFFE && code != 0xFFFF;
}

bool AllPrintable(absl::string_view text) {
  while (!text.empty()) {
    const auto character = FirstCharacter(text);
    if (!character.has_value() || !IsPrintable(character->code)) return false;
    text.remove_prefix(character->bytes);
  }
  return true;
}

// Words that YAML 1.1 reads as a boolean or as null, case-insensitively.
bool IsWordOfYaml(absl::string_view text) {
  constexpr absl::string_view kWords[] = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"};
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [text](absl::string_view word) { return absl::EqualsIgnoreCase(text, word); });
}

}  // namespace

std::string QuoteForShell(absl::string_view text) {
  if (IsPlain(text)) return std::string(text);
  if (AllPrintable(text)) return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", R"('\'')"}}), "'");
  std::string quoted = "$'";
  while (!text.empty()) {
    const auto character = FirstCharacter(text);
    const absl::string_view bytes = text.substr(0, character.has_value() ? character->bytes : 1);
    if (bytes == "'" || bytes == "\\") {
      absl::StrAppend(&quoted, "\\", bytes);
    } else if (character.has_value() && IsPrintable(character->code)) {
      absl::StrAppend(&quoted, bytes);
    } else {  // three octal digits, so that a following digit is not part of the escape
      for (const char c : bytes) absl::StrAppendFormat(&quoted, "\\%03o", static_cast<unsigned char>(c));
    }
    text.remove_prefix(bytes.size());
  }
  return absl::StrCat(quoted, "'");
}

std::string QuoteForYaml(absl::string_view text) {
  if (IsPlain(text) && absl::StartsWith(text, "--")) return std::string(text);
  if (AllPrintable(text)) return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "''"}}), "'");
  std::string quoted = "\"";
  while (!text.empty()) {
    const Character character = FirstCharacter(text).value_or(Character{0xFFFD, 1});
    const absl::string_view bytes = text.substr(0, character.bytes);
    if (bytes == "\"" || bytes == "\\") {
      absl::StrAppend(&quoted, "\\", bytes);
    } else if (IsPrintable(character.code)) {
      absl::StrAppend(&quoted, bytes);
    } else {
      absl::StrAppendFormat(&quoted, "\\u%04X", character.code);
    }
    text.remove_prefix(bytes.size());
  }
  return absl::StrCat(quoted, "\"");
}

std::string NameForYaml(absl::string_view name) {
  const bool starts_as_string = !name.empty() && absl::ascii_isalpha(static_cast<unsigned char>(name[0]));
  return starts_as_string && IsPlain(name) && !absl::StrContains(name, '=') && !IsWordOfYaml(name)
             ? std::string(name)
             : QuoteForYaml(name);
}

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const auto character = FirstCharacter(text);
    if (!character.has_value()) return false;
    text.remove_prefix(character->bytes);
  }
  return true;
}

bool IsPlainText(absl::string_view text) {
  return AllPrintable(absl::StrReplaceAll(text, {{"\n", ""}}));
}

std::string EscapeDollars(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"$", "$$"}});
}

}  // namespace cairn::cli
