#include "kernels/cpu/loops/pair_dots_loops.h"

namespace cairn::kernels::cpu::CAIRN_ISA {
namespace {

constexpr int64_t kParts = 4;  // of the sum of a product
using Lanes = Floats<CAIRN_LANES>;
using Four = Floats<kParts>;

void Pack(const float* rows, int64_t count, int64_t width, float* packed) {
  for (int64_t row = 0; row < count; ++row) {
    float* const to = packed + row / CAIRN_LANES * CAIRN_LANES * width + row % CAIRN_LANES;
    for (int64_t column = 0; column < width; ++column) to[column * CAIRN_LANES] = rows[row * width + column];
  }
}

// Stores the first `count` lanes.
inline __attribute__((always_inline)) void StoreFirst(const Lanes& from, int64_t count, float* to) {
  if (count >= CAIRN_LANES) return Store(from, to);
  float lanes[CAIRN_LANES];
  Store(from, lanes);
  int64_t i = 0;
  for (; i + kParts <= count; i += kParts) std::memcpy(to + i, lanes + i, sizeof(Four));
  for (; i < count; ++i) to[i] = lanes[i];
}

// Lane j has row j of a group.
void Products(const float* row, const float* packed, int64_t count, int64_t width, float* y) {
  const int64_t parted = width / kParts * kParts;
  for (int64_t first = 0; first < count; first += CAIRN_LANES) {
    Lanes parts[kParts] = {};
    int64_t column = 0;
    for (; column < parted; column += kParts) {
      for (int64_t part = 0; part < kParts; ++part, packed += CAIRN_LANES) {
        Lanes others;
        Load(packed, others);
        parts[part] += row[column + part] * others;
      }
    }
    for (; column < width; ++column, packed += CAIRN_LANES) {
      Lanes others;
      Load(packed, others);
      parts[0] += row[column] * others;
    }
    StoreFirst(parts[0] + parts[1] + parts[2] + parts[3], count - first, y + first);
  }
}

// Several rows at once, since each addition waits for the one before it in the same row.
template <int kRows>
inline __attribute__((always_inline)) void SquaresOfRows(const float* rows, int64_t width, float* y) {
  const int64_t columns = width / kParts * kParts;
  Four parts[kRows] = {};
  for (int64_t column = 0; column < columns; column += kParts) {
    for (int i = 0; i < kRows; ++i) {
      Four four;
      Load(rows + i * width + column, four);
      parts[i] += four * four;
    }
  }
  for (int i = 0; i < kRows; ++i) {
    const float* const row = rows + i * width;
    float first = parts[i][0];
    for (int64_t column = columns; column < width; ++column) first += row[column] * row[column];
    y[i] = first + parts[i][1] + parts[i][2] + parts[i][3];
  }
}

void Squares(const float* rows, int64_t count, int64_t width, float* y) {
  constexpr int kAtOnce = 8;
  int64_t row = 0;
  for (; row + kAtOnce <= count; row += kAtOnce) SquaresOfRows<kAtOnce>(rows + row * width, width, y + row);
  for (; row < count; ++row) SquaresOfRows<1>(rows + row * width, width, y + row);
}

// Adds the columns from `column` on, as many as `kVectors` vectors have. The sums stay in registers.
template <typename Vector, int kVectors>
inline __attribute__((always_inline)) void AddColumns(const WeightedRow* terms, int64_t count, int64_t column,
                                                      float* sum) {
  Vector sums[kVectors] = {};
  for (int64_t term = 0; term < count; ++term) {
    const float* const from = terms[term].row + column;
    for (int i = 0; i < kVectors; ++i) {
      Vector values;
      std::memcpy(&values, from + i * static_cast<int64_t>(sizeof(Vector) / sizeof(float)), sizeof(values));
      sums[i] += terms[term].weight * values;
    }
  }
  std::memcpy(sum + column, sums, sizeof(sums));
}

void Add(const WeightedRow* terms, int64_t count, int64_t width, float* sum) {
  constexpr int kVectors = 64 / CAIRN_LANES;
  int64_t column = 0;
  for (; column + 64 <= width; column += 64) AddColumns<Lanes, kVectors>(terms, count, column, sum);
  for (; column + 16 <= width; column += 16) AddColumns<Lanes, 16 / CAIRN_LANES>(terms, count, column, sum);
  for (; column + kParts <= width; column += kParts) AddColumns<Four, 1>(terms, count, column, sum);
  for (; column < width; ++column) AddColumns<float, 1>(terms, count, column, sum);
}

}  // namespace

PairDotsCode PairDotsLoops() {
  return {.lanes = CAIRN_LANES, .pack = Pack, .products = Products, .squares = Squares, .add = Add};
}

}  // namespace cairn::kernels::cpu::CAIRN_ISA
