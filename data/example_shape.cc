#include "data/example_shape.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cairn::data {
namespace {

Shape WithoutOnes(const Shape& shape) {
  Shape longer;
  for (const int64_t extent : shape.dims()) {
    if (extent != 1) longer.Append(extent);
  }
  return longer;
}

// [channels, ...spatial] for a shape [...spatial, channels].
Shape ChannelsFirst(const Shape& channels_last) {
  const absl::Span<const int64_t> dims = channels_last.dims();
  if (dims.empty()) return channels_last;
  Shape shape = {dims.back()};
  for (const int64_t extent : dims.first(dims.size() - 1)) shape.Append(extent);
  return shape;
}

}  // namespace

bool IsFlat(const Shape& shape) {
  return WithoutOnes(shape).rank() <= 1;
}

bool IsCompatible(const Shape& given, const Shape& wanted) {
  if (IsFlat(given) || wanted.rank() <= 1) return given.num_elements() == wanted.num_elements();
  return WithoutOnes(given) == WithoutOnes(wanted);
}

std::string MismatchHint(const Shape& given, const Shape& wanted) {
  const Shape here = WithoutOnes(given), there = WithoutOnes(wanted);
  if (here == there || here.num_elements() != there.num_elements()) return "";
  if (here == ChannelsFirst(there) && there.rank() >= 3) {
    return "; the examples are channels first, the model takes channels last: transpose them";
  }
  const bool permuted = here.rank() == there.rank() &&
                        std::is_permutation(here.dims().begin(), here.dims().end(), there.dims().begin());
  return permuted ? "; the axes are in another order: transpose the examples" : "";
}

absl::Status NotRagged(const std::string& name, const std::string& input) {
  return absl::InvalidArgumentError(absl::StrCat(
      name, ": input '", input,
      "' of the model is ragged, but all examples of this file have the same number of values: give "
      "values and row splits in two arrays (NAME and NAME_row_splits), an int64_list of TFRecord, "
      "or several numbers in a field of CSV"));
}

}  // namespace cairn::data
