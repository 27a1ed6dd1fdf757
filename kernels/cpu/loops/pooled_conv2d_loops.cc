#include "kernels/cpu/loops/pooled_conv2d_loops.h"

#include <type_traits>

namespace cairn::kernels::cpu::CAIRN_ISA {
namespace {

// --- Forward: the kPixel floats of a pixel are adjacent (kPixel: 1 if planar, kLanes if blocked) ---

// Computes kWindows adjacent windows for kBlocks blocks of filters. `offsets` [taps] are the offsets of the
// taps in the image. kernel [blocks, taps, lanes]; y and argmax [blocks, windows, lanes].
template <int kLanes, int kPixel, int kBlocks, int kWindows>
inline __attribute__((always_inline)) void ForwardTile(const PooledShape& s, const float* corner,
                                                       const int64_t* offsets, const float* kernel,
                                                       const float* bias, float* y, WindowIndex* argmax) {
  constexpr int kColumns = 2 * kWindows;
  Floats<kLanes> sums[kBlocks][2][kColumns] = {};
  const int64_t taps = s.taps();
  for (int64_t tap = 0; tap < taps; ++tap) {
    const float* const top = corner + offsets[tap];
    const float* const bottom = top + s.columns * kPixel;
    Floats<kLanes> factors[kBlocks];
    for (int b = 0; b < kBlocks; ++b) Load(kernel + (b * taps + tap) * kLanes, factors[b]);
#pragma GCC unroll 8
    for (int column = 0; column < kColumns; ++column) {
#pragma GCC unroll 2
      for (int b = 0; b < kBlocks; ++b) {
        sums[b][0][column] += top[column * kPixel] * factors[b];
        sums[b][1][column] += bottom[column * kPixel] * factors[b];
      }
    }
  }
#pragma GCC unroll 2
  for (int b = 0; b < kBlocks; ++b) {
    Floats<kLanes> addend;
    Load(bias + b * kLanes, addend);
#pragma GCC unroll 4
    for (int window = 0; window < kWindows; ++window) {
      Floats<kLanes> largest = sums[b][0][2 * window];
      Ints<kLanes> where = {};
#pragma GCC unroll 4
      for (int place = 1; place < 4; ++place) {
        const Floats<kLanes> value = sums[b][place / 2][2 * window + place % 2];
        const Ints<kLanes> larger = value > largest;
        largest = larger ? value : largest;
        where = larger ? Ints<kLanes>{} + place : where;
      }
      // A comparison with NaN is false, so a NaN among the four sums may have been skipped. Only y must be
      // corrected: no gradient passes a relu whose output is NaN.
#pragma GCC unroll 4
      for (int place = 0; place < 3; ++place) {
        const Floats<kLanes> value = sums[b][place / 2][2 * window + place % 2];
        largest = value != value ? value : largest;
      }
      largest += addend;
      largest = largest < 0.0f ? Floats<kLanes>{} : largest;  // keeps a NaN
      const int64_t to = (b * s.windows() + window) * kLanes;
      Store(largest, y + to);
      Store(__builtin_convertvector(where, WindowIndices<kLanes>), argmax + to);
    }
  }
}

template <int kLanes, int kPixel, int kBlocks, int kWindows>
inline __attribute__((always_inline)) void ForwardBlocks(const PooledShape& s, const float* image,
                                                         const int64_t* offsets, const float* kernel,
                                                         const float* bias, float* y, WindowIndex* argmax) {
  for (int64_t row = 0; row < s.out_height; ++row) {
    const float* const corner = image + 2 * row * s.columns * kPixel;
    int64_t column = 0;
    for (; column + kWindows <= s.out_width; column += kWindows) {
      const int64_t to = (row * s.out_width + column) * kLanes;
      ForwardTile<kLanes, kPixel, kBlocks, kWindows>(s, corner + 2 * column * kPixel, offsets, kernel, bias,
                                                     y + to, argmax + to);
    }
    if (kWindows > 2 && column + 2 <= s.out_width) {
      const int64_t to = (row * s.out_width + column) * kLanes;
      ForwardTile<kLanes, kPixel, kBlocks, 2>(s, corner + 2 * column * kPixel, offsets, kernel, bias, y + to,
                                              argmax + to);
      column += 2;
    }
    for (; column < s.out_width; ++column) {
      const int64_t to = (row * s.out_width + column) * kLanes;
      ForwardTile<kLanes, kPixel, kBlocks, 1>(s, corner + 2 * column * kPixel, offsets, kernel, bias, y + to,
                                              argmax + to);
    }
  }
}

// Computes y and argmax [blocks, windows, lanes] of one image.
template <int kLanes, int kPixel, int kBlocks, int kWindows>
void ForwardImage(const PooledShape& s, const float* image, const int64_t* offsets, const float* kernel,
                  const float* bias, float* y, WindowIndex* argmax) {
  int64_t block = 0;
  for (; block + kBlocks <= s.blocks; block += kBlocks) {
    const int64_t to = block * s.windows() * kLanes;
    ForwardBlocks<kLanes, kPixel, kBlocks, kWindows>(s, image, offsets, kernel + block * s.taps() * kLanes,
                                                     bias + block * kLanes, y + to, argmax + to);
  }
  for (; block < s.blocks; ++block) {
    const int64_t to = block * s.windows() * kLanes;
    ForwardBlocks<kLanes, kPixel, 1, kWindows>(s, image, offsets, kernel + block * s.taps() * kLanes,
                                               bias + block * kLanes, y + to, argmax + to);
  }
}

// --- Backward with lanes along the filters, for few taps: the image is planar ---

// Adds the gradients of the taps with these offsets to dkernel [kTaps, lanes].
template <int kLanes, int kTaps>
inline __attribute__((always_inline)) void KernelGradientOfTaps(const PooledShape& s, const float* image,
                                                                const int64_t* offsets, const float* y,
                                                                const float* dy, const WindowIndex* argmax,
                                                                float* dkernel) {
  Floats<kLanes> sums[kTaps];
#pragma GCC unroll 16
  for (int tap = 0; tap < kTaps; ++tap) Load(dkernel + tap * kLanes, sums[tap]);
  int64_t from = 0;
  for (int64_t row = 0; row < s.out_height; ++row) {
    const float* corner = image + 2 * row * s.columns;
    for (int64_t column = 0; column < s.out_width; ++column, corner += 2, from += kLanes) {
      Floats<kLanes> value, gradient;
      WindowIndices<kLanes> narrow;
      Load(y + from, value);
      Load(dy + from, gradient);
      Load(argmax + from, narrow);
      gradient = value > 0.0f ? gradient : Floats<kLanes>{};
      const Ints<kLanes> where = __builtin_convertvector(narrow, Ints<kLanes>);
      Floats<kLanes> at[4];
#pragma GCC unroll 4
      for (int place = 0; place < 4; ++place) at[place] = where == place ? gradient : Floats<kLanes>{};
#pragma GCC unroll 16
      for (int tap = 0; tap < kTaps; ++tap) {
        const float* const top = corner + offsets[tap];
        const float* const bottom = top + s.columns;
        sums[tap] += top[0] * at[0];
        sums[tap] += top[1] * at[1];
        sums[tap] += bottom[0] * at[2];
        sums[tap] += bottom[1] * at[3];
      }
    }
  }
#pragma GCC unroll 16
  for (int tap = 0; tap < kTaps; ++tap) Store(sums[tap], dkernel + tap * kLanes);
}

// Adds the gradients of all taps to dkernel [blocks, taps, lanes].
template <int kLanes>
void KernelGradientImage(const PooledShape& s, const float* image, const int64_t* offsets, const float* y,
                         const float* dy, const WindowIndex* argmax, float* dkernel) {
  for (int64_t block = 0; block < s.blocks; ++block) {
    const int64_t from = block * s.windows() * kLanes;
    float* const to = dkernel + block * s.taps() * kLanes;
    int64_t tap = 0;
    for (; tap + 9 <= s.taps(); tap += 9) {
      KernelGradientOfTaps<kLanes, 9>(s, image, offsets + tap, y + from, dy + from, argmax + from,
                                      to + tap * kLanes);
    }
    for (; tap < s.taps(); ++tap) {
      KernelGradientOfTaps<kLanes, 1>(s, image, offsets + tap, y + from, dy + from, argmax + from,
                                      to + tap * kLanes);
    }
  }
}

// Adds the bias's gradient to dbias [blocks, lanes].
template <int kLanes>
void BiasGradientImage(const PooledShape& s, const float* y, const float* dy, float* dbias) {
  for (int64_t block = 0; block < s.blocks; ++block) {
    Floats<kLanes> sum;
    Load(dbias + block * kLanes, sum);
    for (int64_t window = 0; window < s.windows(); ++window) {
      const int64_t from = (block * s.windows() + window) * kLanes;
      Floats<kLanes> value, gradient;
      Load(y + from, value);
      Load(dy + from, gradient);
      sum += value > 0.0f ? gradient : Floats<kLanes>{};
    }
    Store(sum, dbias + block * kLanes);
  }
}

// --- Backward with lanes along a row of the kernel: the image is [rows, columns, channels] ---

// Collects the selected gradients of a block of filters and some rows of windows in passed [lanes, windows].
// counts [lanes] receives their number.
template <int kLanes>
inline __attribute__((always_inline)) void Gather(const PooledShape& s, int64_t first_row, int64_t last_row,
                                                  const float* y, const float* dy, const WindowIndex* argmax,
                                                  Passed* passed, int64_t* counts) {
  const int64_t in_row = s.columns * s.channels, windows = s.windows();
  const int64_t of_place[4] = {0, s.channels, in_row, in_row + s.channels};
  for (int lane = 0; lane < kLanes; ++lane) counts[lane] = 0;
  int64_t from = first_row * s.out_width * kLanes;
  for (int64_t row = first_row; row < last_row; ++row) {
    for (int64_t column = 0; column < s.out_width; ++column, from += kLanes) {
      const int64_t corner = 2 * row * in_row + 2 * column * s.channels;
      for (int lane = 0; lane < kLanes; ++lane) {
        // The gradient is always written, but counted only if the relu passed it: a branch would be
        // unpredictable and slower.
        passed[lane * windows + counts[lane]] = {corner + of_place[argmax[from + lane]], dy[from + lane]};
        counts[lane] += y[from + lane] > 0 ? 1 : 0;
      }
    }
  }
}

// Hides the pointer's origin from the compiler. Otherwise the compiler would compute each vector's address
// separately, from more numbers than there are registers, which costs a quarter of the backward pass.
template <typename Pointer>
inline __attribute__((always_inline)) void KeepOnePointer(Pointer& pointer) {
  asm("" : "+r"(pointer));
}

// For each element of `passed`, adds the product of its gradient and its part of the image to dkernel [kRows,
// kVectors * lanes], whose rows are `span` apart.
template <int kLanes, int kRows, int kVectors>
inline __attribute__((always_inline)) void KernelGradientTile(const Passed* passed, int64_t count,
                                                              const float* image, int64_t in_row,
                                                              int64_t span, float* dkernel) {
  Floats<kLanes> sums[kRows][kVectors];
#pragma GCC unroll 4
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) Load(dkernel + row * span + v * kLanes, sums[row][v]);
  }
  for (int64_t i = 0; i < count; ++i) {
    const float* seen = image + passed[i].corner;
    const float gradient = passed[i].gradient;
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row, seen += in_row) {
      KeepOnePointer(seen);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        Floats<kLanes> values;
        Load(seen + v * kLanes, values);
        sums[row][v] += gradient * values;
      }
    }
  }
#pragma GCC unroll 4
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) Store(sums[row][v], dkernel + row * span + v * kLanes);
  }
}

// For each element of `passed`, adds the product of its gradient and the kernel to its part of dimage.
template <int kLanes, int kRows, int kVectors>
inline __attribute__((always_inline)) void ImageGradientTile(const Passed* passed, int64_t count,
                                                             const float* kernel, int64_t in_row,
                                                             int64_t span, float* dimage) {
  Floats<kLanes> factors[kRows][kVectors];
#pragma GCC unroll 4
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) Load(kernel + row * span + v * kLanes, factors[row][v]);
  }
  for (int64_t i = 0; i < count; ++i) {
    float* seen = dimage + passed[i].corner;
    const float gradient = passed[i].gradient;
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row, seen += in_row) {
      KeepOnePointer(seen);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        Floats<kLanes> sum;
        Load(seen + v * kLanes, sum);
        sum += gradient * factors[row][v];
        Store(sum, seen + v * kLanes);
      }
    }
  }
}

// Calls visit(rows, vectors, row, vector) for tiles of a kernel that has kernel_height rows of `vectors`
// vectors: first for tiles that fill the registers, then for the rest.
template <int kRows, int kVectors, typename Visit>
inline __attribute__((always_inline)) void ForEachTile(int64_t kernel_height, int64_t vectors,
                                                       const Visit& visit) {
  const auto visit_rows = [&](auto rows, int64_t row) __attribute__((always_inline)) {
    int64_t v = 0;
    for (; v + kVectors <= vectors; v += kVectors)
      visit(rows, std::integral_constant<int, kVectors>(), row, v);
    for (; v < vectors; ++v) visit(rows, std::integral_constant<int, 1>(), row, v);
  };
  int64_t row = 0;
  for (; row + kRows <= kernel_height; row += kRows) visit_rows(std::integral_constant<int, kRows>(), row);
  for (; row < kernel_height; ++row) visit_rows(std::integral_constant<int, 1>(), row);
}

// Adds the kernel's gradient to dkernel [blocks, lanes, kernel_height, span], where span = vectors * lanes.
// Adds the image's gradient to dimage [rows, columns, channels], unless it is null. Both images are followed
// by kLanes floats of slack. `kernel` has dkernel's shape, with zeros after the kernel_width * channels
// floats of a row. passed [lanes, windows] is working memory.
template <int kLanes, int kRows, int kVectors>
void PassedGradientImage(const PooledShape& s, const float* image, const float* kernel, const float* y,
                         const float* dy, const WindowIndex* argmax, int64_t vectors, int64_t rows_at_once,
                         Passed* passed, float* dkernel, float* dimage) {
  const int64_t in_row = s.columns * s.channels, span = vectors * kLanes;
  int64_t counts[kLanes];
  for (int64_t first = 0; first < s.out_height; first += rows_at_once) {
    const int64_t last = first + rows_at_once < s.out_height ? first + rows_at_once : s.out_height;
    for (int64_t block = 0; block < s.blocks; ++block) {
      const int64_t from = block * s.windows() * kLanes;
      Gather<kLanes>(s, first, last, y + from, dy + from, argmax + from, passed, counts);
      for (int lane = 0; lane < kLanes; ++lane) {
        const int64_t filter = (block * kLanes + lane) * s.kernel_height * span;
        const Passed* const of_lane = passed + lane * s.windows();
        ForEachTile<kRows, kVectors>(
            s.kernel_height, vectors,
            [&](auto rows, auto tile, int64_t row, int64_t v) __attribute__((always_inline)) {
              const int64_t to = filter + row * span + v * kLanes, at = row * in_row + v * kLanes;
              KernelGradientTile<kLanes, decltype(rows)::value, decltype(tile)::value>(
                  of_lane, counts[lane], image + at, in_row, span, dkernel + to);
              if (dimage == nullptr) return;
              ImageGradientTile<kLanes, decltype(rows)::value, decltype(tile)::value>(
                  of_lane, counts[lane], kernel + to, in_row, span, dimage + at);
            });
      }
    }
  }
}

constexpr int kLanes = CAIRN_LANES;
// Tiles that fit 32 registers, or 16.
constexpr bool kManyRegisters = CAIRN_LANES == 16;
constexpr int kBlocks = kManyRegisters ? 2 : 1, kWindows = 3;
constexpr int kRows = 3, kVectors = kManyRegisters ? 6 : 4;

}  // namespace

PooledCode PooledLoops() {
  return {.lanes = kLanes,
          .forward_planar = ForwardImage<kLanes, 1, kBlocks, kWindows>,
          .forward_blocked = ForwardImage<kLanes, kLanes, kBlocks, kWindows>,
          .bias_gradient = BiasGradientImage<kLanes>,
          .kernel_gradient = KernelGradientImage<kLanes>,
          .passed_gradient = PassedGradientImage<kLanes, kRows, kVectors>};
}

}  // namespace cairn::kernels::cpu::CAIRN_ISA
