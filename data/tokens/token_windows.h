// Windows of tokens: the examples of a language model. Window i has the `length` tokens from i * length on as its
// input, and as its target the tokens one position later.
//
//   tokens      a b c d e f g h        length 3: two windows, and h is in none
//   window 0    a b c > b c d
//   window 1          d e f > e f g
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/array.h"
#include "data/row_source.h"

namespace cairn::data {

// The number of windows in `tokens` tokens: the last ones are left out if they are not length + 1.
constexpr int64_t CountWindows(int64_t tokens, int64_t length) {
  return tokens > length ? (tokens - 1) / length : 0;
}

// The windows of several files, one file after the other; none reaches into the next file. The rows are the inputs, or
// with an `offset` of 1 the targets. `files`: integers [tokens] that LargestToken() accepts.
std::unique_ptr<RowSource> MakeTokenWindows(std::vector<Array> files, int64_t length, int64_t offset);

}  // namespace cairn::data
