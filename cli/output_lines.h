// The lines of a child's output: each is passed on with the child's name before it, but for JSON objects and
// lines of the log, which say whose they are.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cairn::cli {

class OutputLines {
 public:
  static constexpr size_t kLongest = 16 * 1024;  // bytes; a longer line is cut in two

  explicit OutputLines(absl::string_view name) : prefix_(absl::StrCat("[", name, "] ")) {}

  // Takes bytes as they come, perhaps ending inside a line; returns the lines that are complete, prefixed.
  std::string Add(absl::string_view bytes);
  // The unfinished last line, prefixed, at the end of the output; empty when there is none.
  std::string Finish();

 private:
  std::string TakeLine();
  bool SaysWhose() const;  // the unfinished line

  const std::string prefix_;
  std::string partial_;
};

}  // namespace cairn::cli
