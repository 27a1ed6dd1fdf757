// Max pooling by loops of our own, in whatever layout the input has: in each of them the channels of a block
// lie together, and the loops run over those. The seed network at batch 64 on one thread of a Xeon (Sapphire
// Rapids, other load on the machine): 5,300-5,500 images/s in the best step with oneDNN's pooling, 7,000 with
// this (step_bench).
#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/ops.h"
#include "kernels/window.h"

namespace cairn::kernels::cpu {
namespace {

// A slab is [h, w, lanes] floats: one example and one block of channels, or all channels where they are not
// blocked.
struct Slab {
  int64_t height, width, lanes;
  int64_t out_height, out_width;
  int64_t window_height, window_width, stride_height, stride_width;
  int64_t pad_top, pad_left;

  int64_t in_floats() const { return height * width * lanes; }
  int64_t out_floats() const { return out_height * out_width * lanes; }
};

// Which place of its window a maximum came from: row * window_width + column.
using Place = uint16_t;

// The part of one window that is inside the image.
struct Clipped {
  int64_t top, left;  // of the whole window, in the image; may be negative
  int64_t first_row, last_row, first_column, last_column;  // within the window
};

inline __attribute__((always_inline)) Clipped Clip(const Slab& slab, int64_t out_row, int64_t out_column) {
  const int64_t top = out_row * slab.stride_height - slab.pad_top;
  const int64_t left = out_column * slab.stride_width - slab.pad_left;
  return {top,
          left,
          std::max<int64_t>(0, -top),
          std::min(slab.window_height, slab.height - top),
          std::max<int64_t>(0, -left),
          std::min(slab.window_width, slab.width - left)};
}

// GCC's and clang's vectors: arithmetic on all lanes at once, on whatever registers the processor has. (GCC
// 12 leaves the same loops over arrays scalar.)
template <typename Element, int kLanes>
struct VectorOf {
  typedef Element Type __attribute__((vector_size(kLanes * sizeof(Element))));
};
template <int kLanes>
using Floats = typename VectorOf<float, kLanes>::Type;
template <int kLanes>
using Ints = typename VectorOf<int32_t, kLanes>::Type;
template <int kLanes>
using Places = typename VectorOf<Place, kLanes>::Type;

// kLanes neighbouring channels of one window; of equal values the first stays.
template <int kLanes>
inline __attribute__((always_inline)) void ForwardWindow(const Slab& slab, const Clipped& window,
                                                         const float* x, float* y, Place* places) {
  Floats<kLanes> largest = Floats<kLanes>{} - std::numeric_limits<float>::infinity();
  Ints<kLanes> where =
      Ints<kLanes>{} + static_cast<int32_t>(window.first_row * slab.window_width + window.first_column);
  for (int64_t row = window.first_row; row < window.last_row; ++row) {
    const float* from =
        x + ((window.top + row) * slab.width + window.left + window.first_column) * slab.lanes;
    for (int64_t column = window.first_column; column < window.last_column; ++column, from += slab.lanes) {
      Floats<kLanes> value;
      std::memcpy(&value, from, sizeof(value));
      const Ints<kLanes> larger = value > largest;
      const Ints<kLanes> here = Ints<kLanes>{} + static_cast<int32_t>(row * slab.window_width + column);
      largest = larger ? value : largest;
      where = larger ? here : where;
    }
  }
  const auto narrow = __builtin_convertvector(where, Places<kLanes>);
  std::memcpy(y, &largest, sizeof(largest));
  std::memcpy(places, &narrow, sizeof(narrow));
}

// Adds dy to the places that the maxima came from.
template <int kLanes>
inline __attribute__((always_inline)) void BackwardWindow(const Slab& slab, const Clipped& window,
                                                          const float* dy, const Place* places, float* dx) {
  Floats<kLanes> gradient;
  Places<kLanes> narrow;
  std::memcpy(&gradient, dy, sizeof(gradient));
  std::memcpy(&narrow, places, sizeof(narrow));
  const auto where = __builtin_convertvector(narrow, Ints<kLanes>);
  for (int64_t row = window.first_row; row < window.last_row; ++row) {
    float* to = dx + ((window.top + row) * slab.width + window.left + window.first_column) * slab.lanes;
    for (int64_t column = window.first_column; column < window.last_column; ++column, to += slab.lanes) {
      const Ints<kLanes> here = Ints<kLanes>{} + static_cast<int32_t>(row * slab.window_width + column);
      Floats<kLanes> sum;
      std::memcpy(&sum, to, sizeof(sum));
      sum += where == here ? gradient : Floats<kLanes>{};
      std::memcpy(to, &sum, sizeof(sum));
    }
  }
}

// Calls visit(window, lane, places' and output's offset, number of lanes) for all windows of a slab, in
// pieces of 16 lanes, then 8, then 1.
template <typename Visit>
inline __attribute__((always_inline)) void ForEachWindow(const Slab& slab, const Visit& visit) {
  int64_t out = 0;
  for (int64_t row = 0; row < slab.out_height; ++row) {
    for (int64_t column = 0; column < slab.out_width; ++column, out += slab.lanes) {
      const Clipped window = Clip(slab, row, column);
      int64_t lane = 0;
      for (; lane + 16 <= slab.lanes; lane += 16)
        visit(std::integral_constant<int, 16>(), window, lane, out + lane);
      for (; lane + 8 <= slab.lanes; lane += 8)
        visit(std::integral_constant<int, 8>(), window, lane, out + lane);
      for (; lane < slab.lanes; ++lane) visit(std::integral_constant<int, 1>(), window, lane, out + lane);
    }
  }
}

inline __attribute__((always_inline)) void ForwardSlab(const Slab& slab, const float* x, float* y,
                                                       Place* places) {
  ForEachWindow(
      slab, [&](auto lanes, const Clipped& window, int64_t lane, int64_t out) __attribute__((always_inline)) {
        ForwardWindow<decltype(lanes)::value>(slab, window, x + lane, y + out, places + out);
      });
}

inline __attribute__((always_inline)) void BackwardSlab(const Slab& slab, const float* dy,
                                                        const Place* places, float* dx) {
  std::memset(dx, 0, static_cast<size_t>(slab.in_floats()) * sizeof(float));
  ForEachWindow(
      slab, [&](auto lanes, const Clipped& window, int64_t lane, int64_t out) __attribute__((always_inline)) {
        BackwardWindow<decltype(lanes)::value>(slab, window, dy + out, places + out, dx + lane);
      });
}

// The same loops, compiled for the instruction sets that differ in what they gain.
struct Code {
  void (*forward)(const Slab& slab, const float* x, float* y, Place* places);
  void (*backward)(const Slab& slab, const float* dy, const Place* places, float* dx);
};

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) void ForwardAvx512(const Slab& slab,
                                                                                 const float* x, float* y,
                                                                                 Place* places) {
  ForwardSlab(slab, x, y, places);
}
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) void BackwardAvx512(const Slab& slab,
                                                                                  const float* dy,
                                                                                  const Place* places,
                                                                                  float* dx) {
  BackwardSlab(slab, dy, places, dx);
}
__attribute__((target("avx2"))) void ForwardAvx2(const Slab& slab, const float* x, float* y, Place* places) {
  ForwardSlab(slab, x, y, places);
}
__attribute__((target("avx2"))) void BackwardAvx2(const Slab& slab, const float* dy, const Place* places,
                                                  float* dx) {
  BackwardSlab(slab, dy, places, dx);
}
#endif
void ForwardPortable(const Slab& slab, const float* x, float* y, Place* places) {
  ForwardSlab(slab, x, y, places);
}
void BackwardPortable(const Slab& slab, const float* dy, const Place* places, float* dx) {
  BackwardSlab(slab, dy, places, dx);
}

Code ChooseCode() {
#if defined(__x86_64__)
  switch (onednn::AvailableInstructionSet()) {
    case onednn::InstructionSet::kAvx512:
      return {ForwardAvx512, BackwardAvx512};
    case onednn::InstructionSet::kAvx2:
      return {ForwardAvx2, BackwardAvx2};
    case onednn::InstructionSet::kBasic:
      break;
  }
#endif
  return {ForwardPortable, BackwardPortable};
}

class CpuMaxPool2D final : public UnaryOp {
 public:
  CpuMaxPool2D(onednn::Context& context, TensorDesc output, int64_t slabs, const Slab& slab)
      : context_(context),
        output_(std::move(output)),
        slabs_(slabs),
        slab_(slab),
        places_(static_cast<size_t>(slabs * slab.out_floats())) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    context_.UseThreads();
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < slabs_; ++i) {
      const int64_t out = i * slab_.out_floats();
      code_.forward(slab_, x + i * slab_.in_floats(), y + out, places_.data() + out);
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const float* /*x*/, const float* /*y*/, const float* dy, float* dx) override {
    context_.UseThreads();
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < slabs_; ++i) {
      const int64_t out = i * slab_.out_floats();
      code_.backward(slab_, dy + out, places_.data() + out, dx + i * slab_.in_floats());
    }
    return absl::OkStatus();
  }

 private:
  onednn::Context& context_;
  const TensorDesc output_;
  const int64_t slabs_;
  const Slab slab_;
  const Code code_ = ChooseCode();
  std::vector<Place> places_;  // [output, padding channels included]
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeMaxPool2D(onednn::Context& context, const Pool2DParams& params) {
  CAIRN_ASSIGN_OR_RETURN(const Shape output, OutputShape(params));
  if (params.pool_height * params.pool_width > std::numeric_limits<Place>::max()) {
    return absl::UnimplementedError(
        absl::StrCat("a pooling window of ", params.pool_height, "x", params.pool_width, " is too large"));
  }
  const Shape& input = params.input.shape;
  const Window rows = MakeWindow(input[1], params.pool_height, params.stride_height, params.padding);
  const Window columns = MakeWindow(input[2], params.pool_width, params.stride_width, params.padding);
  const bool blocked = params.input.layout != Layout::kRowMajor;
  const int64_t lanes = blocked ? BlockOf(params.input.layout) : input[3];
  const int64_t blocks = blocked ? (input[3] + lanes - 1) / lanes : 1;
  const Slab slab = {.height = input[1],
                     .width = input[2],
                     .lanes = lanes,
                     .out_height = output[1],
                     .out_width = output[2],
                     .window_height = params.pool_height,
                     .window_width = params.pool_width,
                     .stride_height = params.stride_height,
                     .stride_width = params.stride_width,
                     .pad_top = rows.pad_before,
                     .pad_left = columns.pad_before};
  return std::make_unique<CpuMaxPool2D>(context, TensorDesc{.shape = output, .layout = params.input.layout},
                                        input[0] * blocks, slab);
}

}  // namespace cairn::kernels::cpu
