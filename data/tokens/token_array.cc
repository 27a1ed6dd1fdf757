#include "data/tokens/token_array.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "data/array/array_file.h"
#include "data/file/byte_reader.h"
#include "data/targets.h"

namespace cairn::data {
namespace {

// The position of the first token outside [0, kLargestLabel].
template <typename T>
int64_t FirstBad(const uint8_t* bytes, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const auto token = static_cast<int64_t>(ElementAt<T>(bytes, i));
    if (token < 0 || token > kLargestLabel) return i;
  }
  return count;
}

}  // namespace

absl::StatusOr<Array> ReadTokens(const std::string& path, ElementType bin_type) {
  const auto refuse = [&](const auto&... text) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", text...));
  };
  if (absl::EndsWith(path, ".npy")) {
    CAIRN_ASSIGN_OR_RETURN(Array tokens, ReadArrayFile(path));
    if (tokens.shape.rank() == 1 && IsInteger(tokens.type)) return tokens;
    return refuse("is ", NameOf(tokens.type), " ", tokens.shape.ToString(),
                  ", but ids of tokens are integers along one axis");
  }
  CAIRN_ASSIGN_OR_RETURN(SharedBytes bytes, ReadFileBytes(path));
  const auto size = static_cast<int64_t>(bytes.size()), each = SizeOf(bin_type);
  if (size % each != 0) {
    return refuse("has ", size, " bytes, not a multiple of the ", each, " of ", NameOf(bin_type), " tokens");
  }
  return Array{.type = bin_type, .shape = {size / each}, .bytes = std::move(bytes)};
}

absl::StatusOr<int64_t> LargestToken(const Array& tokens) {
  return WithType(tokens.type, [&](auto zero) -> absl::StatusOr<int64_t> {
    using T = decltype(zero);
    const uint8_t* const bytes = tokens.bytes.data();
    const int64_t count = tokens.shape.num_elements();
    T least{}, most{};  // without a branch, so that the loop takes many tokens at a time
    for (int64_t i = 0; i < count; ++i) {
      const T token = ElementAt<T>(bytes, i);
      least = token < least ? token : least;
      most = token > most ? token : most;
    }
    if (!(least < T{}) && static_cast<double>(most) <= static_cast<double>(kLargestLabel)) {
      return static_cast<int64_t>(most);
    }
    const int64_t bad = FirstBad<T>(bytes, count);
    return absl::InvalidArgumentError(absl::StrCat("token ", bad, " is ", +ElementAt<T>(bytes, bad),
                                                   ", not an id from 0 to ", kLargestLabel));
  });
}

}  // namespace cairn::data
