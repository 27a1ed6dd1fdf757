// Splits a child's output into lines and prefixes each with the child's name, except JSON objects and log
// lines, which contain the name already. The lines of a program that is not Cairn's are all prefixed.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cairn::cli {

class OutputLines {
 public:
  static constexpr size_t kLongest = 16 * 1024;  // bytes; a longer line is split

  OutputLines(absl::string_view name, bool foreign)
      : prefix_(absl::StrCat("[", name, "] ")), foreign_(foreign) {}

  // Appends bytes, which may end within a line. Returns the complete lines, prefixed.
  std::string Add(absl::string_view bytes);
  // Returns the unfinished last line, prefixed, at the end of the output; empty if there is none.
  std::string Finish();

 private:
  std::string TakeLine();
  bool SaysWhose() const;  // whether the unfinished line contains the task's name

  const std::string prefix_;
  const bool foreign_;
  std::string partial_;
};

}  // namespace cairn::cli
