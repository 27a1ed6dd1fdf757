#include "kernels/pair_dots.h"

#include "absl/strings/str_cat.h"

namespace cairn::kernels {

absl::StatusOr<PairDots> MakePairs(const PairDotsParams& params) {
  const Shape& shape = params.input.shape;
  const auto refuse = [&](absl::string_view fault) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot multiply pairs of rows of ", params.input.ToString(), ": ", fault));
  };
  if (shape.rank() != 3 || shape.num_elements() < 1 || params.input.layout != Layout::kRowMajor ||
      IsInteger(params.input.type)) {
    return refuse("expected row-major [n, rows, width]");
  }
  PairDots pairs = {.batch = shape[0],
                    .rows = shape[1],
                    .width = shape[2],
                    .first_rows = params.first_rows,
                    .self = params.self,
                    .square = params.square};
  if (params.first_rows < 0 || params.first_rows >= pairs.rows) return refuse("too few rows");
  if (params.first_rows > 0) {
    pairs.outputs = params.first_rows * (pairs.rows - params.first_rows);
  } else if (params.square) {
    pairs.outputs = pairs.rows * pairs.rows;
  } else {
    pairs.outputs = pairs.rows * (params.self ? pairs.rows + 1 : pairs.rows - 1) / 2;
  }
  if (pairs.outputs < 1) return refuse("there are no pairs");
  return pairs;
}

TensorDesc OutputDesc(const PairDotsParams& params, const PairDots& pairs) {
  if (params.first_rows == 0) return params.input.WithShape({pairs.batch, pairs.outputs});
  return params.input.WithShape({pairs.batch, params.first_rows, pairs.rows - params.first_rows});
}

}  // namespace cairn::kernels
