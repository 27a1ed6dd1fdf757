#include "kernels/cpu/linear/batch_sums.h"

#include <algorithm>

#include "common/core/status.h"
#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {
namespace {

constexpr int64_t kCollision = 256;      // floats
constexpr int64_t kLineFloats = 16;      // of a cache line
constexpr int64_t kRowsAtOnce = 256;     // that are copied
constexpr int64_t kFewestRows = 128;     // below which nothing was measured
constexpr int64_t kShortestSide = 1024;  // if both sides are as long, the products take most of the time

bool Collides(int64_t stride) {
  return stride % kCollision == 0;
}
int64_t PaddedWidth(int64_t width) {
  return (width + kLineFloats - 1) / kLineFloats * kLineFloats + kLineFloats;
}

}  // namespace

bool TransposedMultiplier::SpeedsUp(const onednn::TransposedProduct& product) {
  return product.k >= kFewestRows && std::min(product.m, product.n) < kShortestSide &&
         (Collides(product.a.stride) || Collides(product.b.stride));
}

TransposedMultiplier::TransposedMultiplier(onednn::Context& context, const onednn::TransposedProduct& like)
    : context_(context), like_(like) {
  const int64_t pieces = SpeedsUp(like) ? (like.k + kRowsAtOnce - 1) / kRowsAtOnce : 1;
  rows_at_once_ = (like.k + pieces - 1) / pieces;
  if (SpeedsUp(like)) context.ReserveStaging(rows_at_once_ * (PaddedWidth(like.m) + PaddedWidth(like.n)));
}

absl::Status TransposedMultiplier::Run(const float* a, const float* b, float* c) {
  for (int64_t begin = 0; begin < like_.k; begin += rows_at_once_) {
    const int64_t end = std::min(like_.k, begin + rows_at_once_);
    onednn::TransposedProduct piece = like_;
    piece.k = end - begin;
    piece.a = Rows({a, like_.a.stride}, like_.m, begin, end, 0);
    piece.b = Rows({b, like_.b.stride}, like_.n, begin, end, rows_at_once_ * PaddedWidth(like_.m));
    piece.c = {c, like_.c.stride};
    CAIRN_RETURN_IF_ERROR(Multiply(context_, piece, /*add=*/begin > 0));
  }
  return absl::OkStatus();
}

onednn::MatrixPart<const float> TransposedMultiplier::Rows(const onednn::MatrixPart<const float>& part,
                                                           int64_t width, int64_t begin, int64_t end,
                                                           int64_t offset) const {
  const float* const from = part.at + begin * part.stride;
  if (!SpeedsUp(like_) || !Collides(part.stride)) return {from, part.stride};
  const int64_t padded = PaddedWidth(width);
  float* const to = context_.staging() + offset;
  ParallelFor(context_, end - begin, std::max<int64_t>(1, kElementGrain / width),
              [&](int64_t first, int64_t last) {
                for (int64_t row = first; row < last; ++row)
                  std::copy_n(from + row * part.stride, width, to + row * padded);
              });
  return {to, padded};
}

void SumRows(const onednn::Context& context, onednn::MatrixPart<const float> from, int64_t rows,
             int64_t width, float* to) {
  constexpr int64_t kColumns = 256;  // as many bytes of a row at once as the processor fetches ahead
  ParallelFor(context, width, kColumns, [&](int64_t begin, int64_t end) {
    std::fill(to + begin, to + end, 0.0f);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t j = begin; j < end; ++j) to[j] += from.at[row * from.stride + j];
    }
  });
}

}  // namespace cairn::kernels::cpu
