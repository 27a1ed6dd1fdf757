#include "common/core/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

// No file of Cairn is nested nearly as deeply. The library's writer and our readers recurse once per level.
constexpr size_t kDeepestNesting = 200;

// Finds what the library accepts and Cairn refuses: duplicate keys and deep nesting. Syntax errors are left
// to the parser.
class Watch final : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool too_deep() const { return too_deep_; }
  const std::string& duplicate() const { return duplicate_; }  // the first duplicate key; empty if none

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return Open(); }
  bool start_array(size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& key) override {
    if (duplicate_.empty() && !open_.back().insert(key).second) duplicate_ = key;
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

 private:
  bool Open() {
    open_.emplace_back();
    too_deep_ = open_.size() > kDeepestNesting;
    return !too_deep_;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  std::vector<std::set<std::string>> open_;  // the keys of each open object; empty sets for open arrays
  std::string duplicate_;
  bool too_deep_ = false;
};

}  // namespace

absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, absl::string_view source) {
  // A separate pass: with the library's own callback, parsing takes time quadratic in the length of an array.
  Watch watch;
  nlohmann::json::sax_parse(text.begin(), text.end(), &watch, nlohmann::json::input_format_t::json,
                            /*strict=*/true,
                            /*ignore_comments=*/true);
  try {
    if (watch.too_deep()) {
      return absl::InvalidArgumentError(
          absl::StrCat(source, ": values nested more than ", kDeepestNesting, " deep"));
    }
    auto document = nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/true,
                                          /*ignore_comments=*/true);
    if (!watch.duplicate().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(source, ": key \"", watch.duplicate(), "\" appears twice"));
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
  } catch (const nlohmann::json::exception& error) {  // a number beyond the range of double
    return absl::InvalidArgumentError(absl::StrCat(source, ": not valid JSON: ", error.what()));
  }
}

std::string WithFiniteNumbers(absl::string_view text) {
  constexpr absl::string_view kInfinity = "Infinity", kLargest = "1.7976931348623157e308";
  std::string written;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escapes = in_string && text[i] == '\\' && i + 1 < text.size();
    if (!in_string && absl::StartsWith(text.substr(i), kInfinity)) {
      absl::StrAppend(&written, kLargest);
      i += kInfinity.size() - 1;
      continue;
    }
    if (text[i] == '"') in_string = !in_string;
    written.push_back(text[i]);
    if (escapes) written.push_back(text[++i]);
  }
  return written;
}

std::map<std::string, int64_t> LinesOfElements(absl::string_view text) {
  struct Container {
    bool array;
    int64_t index = 0;  // of the current element, in an array
    std::string key{};  // of the current member, in an object
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
      begin_value();  // further characters of the same value change nothing: the line is already recorded
    }
  }
  return lines;
}

}  // namespace cairn
