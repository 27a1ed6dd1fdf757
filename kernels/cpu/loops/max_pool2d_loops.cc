#include "kernels/cpu/loops/max_pool2d_loops.h"

#include <type_traits>

namespace cairn::kernels::cpu::CAIRN_ISA {
namespace {

// The part of one window that is inside the image.
struct Clipped {
  int64_t top, left;  // position of the whole window in the image; may be negative
  int64_t first_row, last_row, first_column, last_column;  // positions within the window
};

inline __attribute__((always_inline)) Clipped Clip(const PoolSlab& slab, int64_t out_row,
                                                   int64_t out_column) {
  const int64_t top = out_row * slab.stride_height - slab.pad_top;
  const int64_t left = out_column * slab.stride_width - slab.pad_left;
  const int64_t rows = slab.height - top, columns = slab.width - left;
  return {top,
          left,
          top < 0 ? -top : 0,
          rows < slab.window_height ? rows : slab.window_height,
          left < 0 ? -left : 0,
          columns < slab.window_width ? columns : slab.window_width};
}

// Takes the maximum of one window for kLanes adjacent channels. Of equal values, the first is the maximum.
// NaN counts as larger than every number.
template <int kLanes>
inline __attribute__((always_inline)) void ForwardWindow(const PoolSlab& slab, const Clipped& window,
                                                         const float* x, float* y, WindowIndex* argmax) {
  Floats<kLanes> largest = Floats<kLanes>{} - __builtin_inff();
  Ints<kLanes> where =
      Ints<kLanes>{} + static_cast<int32_t>(window.first_row * slab.window_width + window.first_column);
  for (int64_t row = window.first_row; row < window.last_row; ++row) {
    const float* from =
        x + ((window.top + row) * slab.width + window.left + window.first_column) * slab.lanes;
    for (int64_t column = window.first_column; column < window.last_column; ++column, from += slab.lanes) {
      Floats<kLanes> value;
      Load(from, value);
      const Ints<kLanes> larger = (value > largest) | (value != value);
      const Ints<kLanes> here = Ints<kLanes>{} + static_cast<int32_t>(row * slab.window_width + column);
      largest = larger ? value : largest;
      where = larger ? here : where;
    }
  }
  Store(largest, y);
  Store(__builtin_convertvector(where, WindowIndices<kLanes>), argmax);
}

// Adds dy to dx at the positions of the maxima.
template <int kLanes>
inline __attribute__((always_inline)) void BackwardWindow(const PoolSlab& slab, const Clipped& window,
                                                          const float* dy, const WindowIndex* argmax,
                                                          float* dx) {
  Floats<kLanes> gradient;
  WindowIndices<kLanes> narrow;
  Load(dy, gradient);
  Load(argmax, narrow);
  const auto where = __builtin_convertvector(narrow, Ints<kLanes>);
  for (int64_t row = window.first_row; row < window.last_row; ++row) {
    float* to = dx + ((window.top + row) * slab.width + window.left + window.first_column) * slab.lanes;
    for (int64_t column = window.first_column; column < window.last_column; ++column, to += slab.lanes) {
      const Ints<kLanes> here = Ints<kLanes>{} + static_cast<int32_t>(row * slab.window_width + column);
      Floats<kLanes> sum;
      Load(to, sum);
      sum += where == here ? gradient : Floats<kLanes>{};
      Store(sum, to);
    }
  }
}

// Calls visit(number of lanes, window, lane, offset in the output) for all windows of a slab: first for as
// many lanes as fill a register, then for 8, then for 1.
template <typename Visit>
inline __attribute__((always_inline)) void ForEachWindow(const PoolSlab& slab, const Visit& visit) {
  constexpr int kLanes = CAIRN_LANES;
  int64_t out = 0;
  for (int64_t row = 0; row < slab.out_height; ++row) {
    for (int64_t column = 0; column < slab.out_width; ++column, out += slab.lanes) {
      const Clipped window = Clip(slab, row, column);
      int64_t lane = 0;
      for (; lane + kLanes <= slab.lanes; lane += kLanes)
        visit(std::integral_constant<int, kLanes>(), window, lane, out + lane);
      for (; lane + 8 <= slab.lanes; lane += 8)
        visit(std::integral_constant<int, 8>(), window, lane, out + lane);
      for (; lane < slab.lanes; ++lane) visit(std::integral_constant<int, 1>(), window, lane, out + lane);
    }
  }
}

void Forward(const PoolSlab& slab, const float* x, float* y, WindowIndex* argmax) {
  ForEachWindow(
      slab, [&](auto lanes, const Clipped& window, int64_t lane, int64_t out) __attribute__((always_inline)) {
        ForwardWindow<decltype(lanes)::value>(slab, window, x + lane, y + out, argmax + out);
      });
}

void Backward(const PoolSlab& slab, const float* dy, const WindowIndex* argmax, float* dx) {
  std::memset(dx, 0, static_cast<size_t>(slab.in_floats()) * sizeof(float));
  ForEachWindow(
      slab, [&](auto lanes, const Clipped& window, int64_t lane, int64_t out) __attribute__((always_inline)) {
        BackwardWindow<decltype(lanes)::value>(slab, window, dy + out, argmax + out, dx + lane);
      });
}

}  // namespace

MaxPoolCode MaxPoolLoops() {
  return {.forward = Forward, .backward = Backward};
}

}  // namespace cairn::kernels::cpu::CAIRN_ISA
