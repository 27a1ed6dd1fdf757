// The numbers that the generator of a data set accepts.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cairn::data {

struct NumberRange {
  absl::string_view verb, noun;  // for messages: "write", "reviews"
  int64_t least = 1, most = 0;

  // INVALID_ARGUMENT unless `given` is in [least, most]: "cannot write 0 reviews; 1 to 100".
  absl::Status Check(int64_t given) const {
    if (given >= least && given <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("cannot ", verb, " ", given, " ", noun, "; ", least, " to ", most));
  }
};

}  // namespace cairn::data
