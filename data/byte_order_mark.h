#pragma once

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace cairn::data {

// The text without the mark of UTF-8 that programs of Windows write before it.
inline absl::string_view WithoutByteOrderMark(absl::string_view text) {
  absl::ConsumePrefix(&text, "\xEF\xBB\xBF");
  return text;
}

}  // namespace cairn::data
