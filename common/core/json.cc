#include "common/core/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

// Far beyond any file of ours. The library's writer, and our readers, call themselves for each level.
constexpr int kDeepestNesting = 200;

}  // namespace

absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, absl::string_view source) {
  std::vector<std::set<std::string>> open_objects;
  std::string duplicate;
  bool too_deep = false;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    too_deep |= depth > kDeepestNesting;
    if (too_deep) return false;  // nothing more is kept
    if (event == Event::object_start) open_objects.emplace_back();
    if (event == Event::object_end) open_objects.pop_back();
    if (event == Event::key && duplicate.empty()) {
      auto key = value.get<std::string>();
      if (!open_objects.back().insert(key).second) duplicate = key;
    }
    return true;
  };
  try {
    auto document = nlohmann::json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/true,
                                          /*ignore_comments=*/true);
    if (too_deep) {
      return absl::InvalidArgumentError(
          absl::StrCat(source, ": values nested more than ", kDeepestNesting, " deep"));
    }
    if (!duplicate.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(source, ": key \"", duplicate, "\" appears twice"));
    }
    return document;
  } catch (const nlohmann::json::parse_error& error) {
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(error.byte, text.size()));
    const auto line = 1 + std::count(text.begin(), end, '\n');
    // "[json.exception.parse_error.101] parse error at line 1, column 3: syntax error ..." -> the last part
    absl::string_view reason = error.what();
    if (const size_t colon = reason.find(": "); colon != absl::string_view::npos)
      reason.remove_prefix(colon + 2);
    return absl::InvalidArgumentError(absl::StrCat(source, ":", line, ": not valid JSON: ", reason));
  } catch (const nlohmann::json::exception& error) {  // a number beyond double
    return absl::InvalidArgumentError(absl::StrCat(source, ": not valid JSON: ", error.what()));
  }
}

std::map<std::string, int64_t> LinesOfElements(absl::string_view text) {
  struct Container {
    bool array;
    int64_t index = 0;  // of an array's current element
    std::string key{};  // of an object's current member
    bool expects_key = true;
  };
  std::vector<Container> open;
  std::map<std::string, int64_t> lines;
  int64_t line = 1;
  const auto begin_value = [&] {
    if (open.empty() || !open.back().array) return;
    std::string pointer;
    for (const Container& outer : open) {
      absl::StrAppend(&pointer, "/", outer.array ? absl::StrCat(outer.index) : outer.key);
    }
    lines.emplace(std::move(pointer), line);
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (c == '/' && i + 1 < text.size() && (text[i + 1] == '/' || text[i + 1] == '*')) {
      const absl::string_view end = text[i + 1] == '/' ? "\n" : "*/";
      const size_t found = text.find(end, i + 2);
      const size_t stop = found == absl::string_view::npos ? text.size() : found;
      line += std::count(text.begin() + static_cast<std::ptrdiff_t>(i),
                         text.begin() + static_cast<std::ptrdiff_t>(stop), '\n');
      i = text[i + 1] == '/' ? stop - 1 : stop + 1;
    } else if (c == '"') {
      begin_value();
      std::string content;
      for (++i; i < text.size() && text[i] != '"'; ++i) {
        if (text[i] == '\\') ++i;
        content += text[std::min(i, text.size() - 1)];
      }
      if (!open.empty() && !open.back().array && std::exchange(open.back().expects_key, false)) {
        open.back().key = std::move(content);
      }
    } else if (c == '{' || c == '[') {
      begin_value();
      open.push_back({.array = c == '['});
    } else if ((c == '}' || c == ']') && !open.empty()) {
      open.pop_back();
    } else if (c == ',' && !open.empty()) {
      ++open.back().index;
      open.back().expects_key = true;
    } else if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-') {
      begin_value();  // of its later letters nothing new comes
    }
  }
  return lines;
}

}  // namespace cairn
