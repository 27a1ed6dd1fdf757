// Lines of libsvm files and of libffm files. Blanks or tabs separate the fields; '#' begins a comment.
//
//   libsvm:  label [qid:N] index:value index:value ...
//   libffm:  label field:index:value field:index:value ...
//
// Indices and fields are whole numbers from 0 on, in any order. A line may have none.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cairn::data {

struct LibsvmEntry {
  int64_t field = 0;  // 0 in libsvm files
  int64_t index = 0;
  float value = 0;
};

struct LibsvmLine {
  bool has_label = false;  // the first field is a number without a colon
  double label = 0;
  bool has_fields = false;  // whether the entries have fields: libffm
  std::vector<LibsvmEntry> entries;
};

// Removes a comment and the blanks around a line. Empty: the line has no example.
absl::string_view WithoutComment(absl::string_view line);

// Parses a line without a comment. INVALID_ARGUMENT describes the fault: "'3:x' holds ...".
absl::Status ParseLibsvmLine(absl::string_view line, LibsvmLine& parsed);

}  // namespace cairn::data
