#include "common/core/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cairn {

absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, absl::string_view source) {
  std::vector<std::set<std::string>> open_objects;
  std::string duplicate;
  const auto watch = [&](int /*depth*/, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
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

}  // namespace cairn
