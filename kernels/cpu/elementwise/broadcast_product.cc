// Products of two inputs of which one is repeated: an image and a factor for each of its channels, as in networks with
// squeeze and excitation, or for each example, as in stochastic depth.
#include "kernels/cpu/elementwise/broadcast_product.h"

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {
namespace {

// An image x [outer, rows, inner] and its factors [outer, inner].
struct Repetition {
  int64_t outer, rows, inner;
};

std::optional<Repetition> RepetitionOf(const Broadcast& b, int image, int factors) {
  // Axes along which both have one element, or are alike, do not exist: MakeBroadcast() merges them.
  const int64_t* const extents = b.extents;
  const int64_t* const strides = b.strides[factors];
  if (b.inputs != 2 || b.repeats(image)) return std::nullopt;
  if (b.axes == 3 && strides[0] == extents[2] && strides[1] == 0 && strides[2] == 1)
    return Repetition{extents[0], extents[1], extents[2]};
  if (b.axes == 2 && strides[0] == 1 && strides[1] == 0) return Repetition{extents[0], extents[1], 1};
  if (b.axes == 2 && strides[0] == 0 && strides[1] == 1) return Repetition{1, extents[0], extents[1]};
  return std::nullopt;
}

class CpuBroadcastProduct final : public NaryOp {
 public:
  CpuBroadcastProduct(onednn::Context& context, const Repetition& repetition, size_t image, TensorDesc output)
      : context_(context), s_(repetition), image_(image), output_(std::move(output)) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(absl::Span<const float* const> xs, float* y) override {
    WithInner([&](auto inner) {
      ForRows(kElementGrain, [&](int64_t outer, int64_t at, int64_t rows) {
        Scale(inner, xs[image_] + at, xs[1 - image_] + outer * s_.inner, rows, y + at);
      });
    });
    return absl::OkStatus();
  }

  absl::Status Backward(absl::Span<const float* const> xs, const float* dy,
                        absl::Span<float* const> dxs) override {
    WithInner([&](auto inner) {
      if (dxs[1 - image_] == nullptr) {
        if (dxs[image_] == nullptr) return;
        ForRows(kElementGrain, [&](int64_t outer, int64_t at, int64_t rows) {
          Scale(inner, dy + at, xs[1 - image_] + outer * s_.inner, rows, dxs[image_] + at);
        });
        return;
      }
      ParallelFor(context_, s_.outer, 1,
                  [&](int64_t outer, int64_t) { BackwardOfFactors(inner, outer, xs, dy, dxs); });
    });
    return absl::OkStatus();
  }

 private:
  // Calls body with the number of inner elements, as a constant if it is that of a block of channels: their loop then
  // stays in registers.
  template <typename Body>
  void WithInner(const Body& body) const {
    switch (s_.inner) {
      case 1:
        return body(std::integral_constant<int64_t, 1>());
      case 8:
        return body(std::integral_constant<int64_t, 8>());
      case 16:
        return body(std::integral_constant<int64_t, 16>());
      default:
        return body(s_.inner);
    }
  }

  // Calls body(outer, offset in the image, rows) for pieces of about `grain` elements.
  template <typename Body>
  void ForRows(int64_t grain, const Body& body) const {
    const int64_t at_once = std::clamp<int64_t>(grain / s_.inner, 1, s_.rows);
    const int64_t pieces = (s_.rows + at_once - 1) / at_once;
    ParallelFor(context_, s_.outer * pieces, std::max<int64_t>(1, grain / (at_once * s_.inner)),
                [&](int64_t begin, int64_t end) {
                  for (int64_t piece = begin; piece < end; ++piece) {
                    const int64_t outer = piece / pieces, first = piece % pieces * at_once;
                    body(outer, (outer * s_.rows + first) * s_.inner, std::min(at_once, s_.rows - first));
                  }
                });
  }

  template <typename Inner>
  static void Scale(Inner inner, const float* x, const float* factors, int64_t rows, float* y) {
    const int64_t count = inner;
    for (int64_t row = 0; row < rows; ++row, x += count, y += count) {
      for (int64_t i = 0; i < count; ++i) y[i] = x[i] * factors[i];
    }
  }

  // Both gradients, or only that of the factors, a few rows at a time, which stay in the cache.
  template <typename Inner>
  void BackwardOfFactors(Inner inner, int64_t outer, absl::Span<const float* const> xs, const float* dy,
                         absl::Span<float* const> dxs) const {
    const float* const factors = xs[1 - image_] + outer * s_.inner;
    float* const to = dxs[1 - image_] + outer * s_.inner;
    std::fill_n(to, s_.inner, 0.0f);
    const int64_t at_once = std::clamp<int64_t>(kCached / s_.inner, 1, s_.rows);
    for (int64_t first = 0; first < s_.rows; first += at_once) {
      const int64_t at = (outer * s_.rows + first) * s_.inner, rows = std::min(at_once, s_.rows - first);
      AddProducts(inner, xs[image_] + at, dy + at, rows, to);
      if (dxs[image_] != nullptr) Scale(inner, dy + at, factors, rows, dxs[image_] + at);
    }
  }
  static constexpr int64_t kCached = 2048;  // elements

  static void AddProducts(int64_t inner, const float* x, const float* dy, int64_t rows, float* to) {
    for (int64_t row = 0; row < rows; ++row, x += inner, dy += inner) {
      for (int64_t i = 0; i < inner; ++i) to[i] += x[i] * dy[i];
    }
  }
  template <int64_t kInner>
  static void AddProducts(std::integral_constant<int64_t, kInner>, const float* x, const float* dy,
                          int64_t rows, float* to) {
    // A local array stays in registers. With one factor, products of 16 rows are added independently.
    constexpr int64_t kSums = kInner == 1 ? 16 : kInner;
    float sums[kSums] = {};
    const int64_t count = rows * kInner;
    int64_t at = 0;
    for (; at + kSums <= count; at += kSums) {
      for (int64_t i = 0; i < kSums; ++i) sums[i] += x[at + i] * dy[at + i];
    }
    for (int64_t i = 0; at + i < count; ++i) sums[i] += x[at + i] * dy[at + i];
    for (int64_t i = 0; i < kSums; ++i) to[i % kInner] += sums[i];
  }

  onednn::Context& context_;
  const Repetition s_;
  const size_t image_;  // which input is not repeated
  const TensorDesc output_;
};

}  // namespace

std::unique_ptr<NaryOp> MakeBroadcastProduct(onednn::Context& context, const Broadcast& broadcast,
                                             const TensorDesc& output) {
  for (const int image : {0, 1}) {
    if (const auto repetition = RepetitionOf(broadcast, image, 1 - image))
      return std::make_unique<CpuBroadcastProduct>(context, *repetition, static_cast<size_t>(image), output);
  }
  return nullptr;
}

}  // namespace cairn::kernels::cpu
