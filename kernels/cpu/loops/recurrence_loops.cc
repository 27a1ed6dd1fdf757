#include "kernels/cpu/loops/recurrence_loops.h"

#include "kernels/cpu/loops/vector_math.h"

namespace cairn::kernels::cpu::CAIRN_ISA {
namespace {

constexpr int kLanes = CAIRN_LANES;
using Vector = Floats<kLanes>;

#define CAIRN_INLINE inline __attribute__((always_inline))

// --- Products ---

// A tile of kMaxRows times a panel stays in registers. More than eight rows, which often are a multiple of 4 KiB apart,
// would compete for the same eight ways of the first cache.
constexpr int kVectors = 2, kPanel = kVectors * kLanes;
#if defined(__AVX512F__)
constexpr int kMaxRows = 8;
#elif defined(__AVX2__)
constexpr int kMaxRows = 6;
#else
constexpr int kMaxRows = 2;
#endif

int64_t PackedFloats(int64_t depth, int64_t width) {
  return (width + kPanel - 1) / kPanel * kPanel * depth;
}

void Pack(const float* matrix, int64_t row_stride, int64_t column_stride, int64_t depth, int64_t width,
          float* packed) {
  for (int64_t first = 0; first < width; first += kPanel) {
    const int64_t columns = width - first < kPanel ? width - first : kPanel;
    for (int64_t k = 0; k < depth; ++k, packed += kPanel) {
      const float* const from = matrix + k * row_stride + first * column_stride;
      for (int64_t j = 0; j < columns; ++j) packed[j] = from[j * column_stride];
      for (int64_t j = columns; j < kPanel; ++j) packed[j] = 0;
    }
  }
}

struct Product {
  const float* a;
  int64_t a_stride, depth;
  bool adds;
  float* c;
  int64_t c_stride;
};

// kRows rows of c, and the columns of one panel, all of which c has.
template <int kRows>
CAIRN_INLINE void MultiplyTile(const Product& p, const float* panel) {
  Vector sums[kRows][kVectors] = {};
  if (p.adds) {
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) Load(p.c + row * p.c_stride + v * kLanes, sums[row][v]);
    }
  }
  for (int64_t k = 0; k < p.depth; ++k, panel += kPanel) {
    Vector b[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) Load(panel + v * kLanes, b[v]);
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const float factor = p.a[row * p.a_stride + k];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[row][v] += factor * b[v];
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) Store(sums[row][v], p.c + row * p.c_stride + v * kLanes);
  }
}

// The last columns of c, fewer than a panel has.
template <int kRows>
CAIRN_INLINE void MultiplyEdge(const Product& p, const float* panel, int64_t columns) {
  float edge[kRows][kPanel] = {};
  for (int row = 0; row < kRows && p.adds; ++row) {
    for (int64_t j = 0; j < columns; ++j) edge[row][j] = p.c[row * p.c_stride + j];
  }
  Product whole = p;
  whole.c = edge[0];
  whole.c_stride = kPanel;
  MultiplyTile<kRows>(whole, panel);
  for (int row = 0; row < kRows; ++row) {
    for (int64_t j = 0; j < columns; ++j) p.c[row * p.c_stride + j] = edge[row][j];
  }
}

template <int kRows>
void MultiplyRows(const Product& p, const float* packed, int64_t first, int64_t width) {
  Product part = p;
  part.c += first;
  if (width - first >= kPanel) {
    MultiplyTile<kRows>(part, packed + first * p.depth);
  } else {
    MultiplyEdge<kRows>(part, packed + first * p.depth, width - first);
  }
}

// Rows in tiles of about equal height, each of at most kMaxRows. A panel is read from the cache for all tiles.
void Multiply(const float* a, int64_t a_stride, const float* packed, int64_t count, int64_t depth,
              int64_t width, bool adds, float* c, int64_t c_stride) {
  const int64_t tiles = (count + kMaxRows - 1) / kMaxRows;
  for (int64_t first = 0; first < width; first += kPanel) {
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t begin = count * tile / tiles, rows = count * (tile + 1) / tiles - begin;
      const Product p = {a + begin * a_stride, a_stride, depth, adds, c + begin * c_stride, c_stride};
      switch (rows) {
#define CAIRN_ROWS(n)                                                      \
  case n:                                                                  \
    if constexpr (n <= kMaxRows) MultiplyRows<n>(p, packed, first, width); \
    break
        CAIRN_ROWS(1);
        CAIRN_ROWS(2);
        CAIRN_ROWS(3);
        CAIRN_ROWS(4);
        CAIRN_ROWS(5);
        CAIRN_ROWS(6);
        CAIRN_ROWS(7);
        CAIRN_ROWS(8);
#undef CAIRN_ROWS
        default:
          break;
      }
    }
  }
}

// --- Activations: Value() and, from the value, Derivative() ---

struct TanhOfGate {
  explicit TanhOfGate(const ActivationParams&) {}
  CAIRN_INLINE void Value(const Vector& x, Vector& y) const { Tanh<kLanes>(x, y); }
  CAIRN_INLINE void Derivative(const Vector& y, Vector& d) const { d = 1.0f - y * y; }
};

struct SigmoidOfGate {
  explicit SigmoidOfGate(const ActivationParams&) {}
  CAIRN_INLINE void Value(const Vector& x, Vector& y) const {
    Vector rest;
    Sigmoid<kLanes>(x, y, rest);
  }
  CAIRN_INLINE void Derivative(const Vector& y, Vector& d) const { d = y * (1.0f - y); }
};

// Any other function, as kernels/recurrence.h defines its derivative.
struct AnyOfGate {
  explicit AnyOfGate(const ActivationParams& params) : f(params) {}
  const ActivationParams& f;

  CAIRN_INLINE void Value(const Vector& x, Vector& y) const {
    constexpr float kSeluAlpha = 1.6732632423543772f, kSeluScale = 1.0507009873554805f;
    Vector e;
    switch (f.kind) {
      case Activation::kRelu:
        y = x < 0.0f ? (f.slope == 0 ? Vector{} : f.slope * x) : (x > f.limit ? Vector{} + f.limit : x);
        return;
      case Activation::kElu:
        Expm1OfNegative<kLanes>(x > 0.0f ? Vector{} : x, e);
        y = x > 0.0f ? x : f.slope * e;
        return;
      case Activation::kSelu:
        Expm1OfNegative<kLanes>(x > 0.0f ? Vector{} : x, e);
        y = kSeluScale * (x > 0.0f ? x : kSeluAlpha * e);
        return;
      case Activation::kSigmoid:
        return SigmoidOfGate(f).Value(x, y);
      case Activation::kTanh:
        return TanhOfGate(f).Value(x, y);
      case Activation::kSoftplus:
        return Softplus<kLanes>(x, y);
      case Activation::kHardSigmoid:
        e = x * (1.0f / 6) + 0.5f;
        y = e < 0.0f ? Vector{} : (e > 1.0f ? Vector{} + 1.0f : e);
        return;
      default:
        y = x;
    }
  }
  CAIRN_INLINE void Derivative(const Vector& y, Vector& d) const {
    constexpr float kSeluAlpha = 1.6732632423543772f, kSeluScale = 1.0507009873554805f;
    const Vector one = Vector{} + 1.0f;
    Vector e;
    switch (f.kind) {
      case Activation::kRelu:
        d = f.limit == __builtin_inff() ? one : (y < f.limit ? one : Vector{});
        d = y > 0.0f ? d : (y < 0.0f ? Vector{} + f.slope : Vector{});
        if (f.limit == __builtin_inff()) d = y == 0.0f ? Vector{} + f.slope : d;
        return;
      case Activation::kElu:
        d = y > 0.0f ? one : y + f.slope;
        return;
      case Activation::kSelu:
        d = y > 0.0f ? Vector{} + kSeluScale : y + kSeluScale * kSeluAlpha;
        return;
      case Activation::kSigmoid:
        return SigmoidOfGate(f).Derivative(y, d);
      case Activation::kTanh:
        return TanhOfGate(f).Derivative(y, d);
      case Activation::kSoftplus:
        Exp<kLanes>(-y, e);
        d = 1.0f - e;
        return;
      case Activation::kHardSigmoid:
        e = Vector{} + 1.0f / 6;
        d = y > 0.0f ? (y < 1.0f ? e : Vector{}) : Vector{};
        return;
      default:
        d = one;
    }
  }
};

// --- Rows, vector by vector ---

CAIRN_INLINE void LoadSome(const float* from, int count, Vector& to) {
  if (count == kLanes) return Load(from, to);
  float lanes[kLanes];
  Store(Vector{}, lanes);
  for (int lane = 0; lane < count; ++lane) lanes[lane] = from[lane];
  Load(lanes, to);
}
CAIRN_INLINE void StoreSome(const Vector& from, int count, float* to) {
  if (count == kLanes) return Store(from, to);
  float lanes[kLanes];
  Store(from, lanes);
  for (int lane = 0; lane < count; ++lane) to[lane] = lanes[lane];
}

// A part of a row: `count` lanes from element j on.
struct Part {
  int64_t j;
  int count;
  CAIRN_INLINE Vector Of(const float* row) const {
    Vector values = {};
    if (row != nullptr) LoadSome(row + j, count, values);
    return values;
  }
  CAIRN_INLINE void Put(const Vector& values, float* row) const { StoreSome(values, count, row + j); }
};

template <typename Visit>
CAIRN_INLINE void ForEachPart(int64_t units, const Visit& visit) {
  int64_t j = 0;
  for (; j + kLanes <= units; j += kLanes) visit(Part{j, kLanes});
  if (j < units) visit(Part{j, static_cast<int>(units - j)});
}

// One example of a step.
struct ExampleRows {
  CAIRN_INLINE ExampleRows(const StepRows& rows, int64_t gates, int64_t i)
      : z(rows.z + i * gates * rows.stride),
        state(rows.state + i * rows.stride),
        carry(rows.carry == nullptr ? nullptr : rows.carry + i * rows.carry_stride),
        next_carry(rows.next_carry == nullptr ? nullptr : rows.next_carry + i * rows.stride),
        inner(rows.inner == nullptr ? nullptr : rows.inner + i * rows.stride),
        scale(rows.state_scale == nullptr ? nullptr : rows.state_scale + i * rows.units),
        is_masked(rows.mask != nullptr && rows.mask[i * rows.mask_stride] == 0) {}
  float* z;
  const float *state, *carry;
  float *next_carry, *inner;
  const float* scale;
  bool is_masked;
};

CAIRN_INLINE Vector ScaledState(const ExampleRows& rows, const Part& part) {
  const Vector state = part.Of(rows.state);
  return rows.scale == nullptr ? state : state * part.Of(rows.scale);
}

// --- Cells ---

template <typename Function, typename Gate>
void ForwardStep(const RecurrenceParams& params, const StepRows& step, float* next, int64_t next_stride) {
  const Function f(params.activation);
  const Gate s(params.recurrent_activation);
  const int64_t units = step.units;
  const RecurrentCell cell = params.cell;
  for (int64_t i = 0; i < step.count; ++i, next += next_stride) {
    const ExampleRows rows(step, params.gates(), i);
    ForEachPart(units, [&](const Part& part) __attribute__((always_inline)) {
      if (rows.is_masked) {
        part.Put(part.Of(rows.state), next);
        if (cell == RecurrentCell::kLstm) part.Put(part.Of(rows.carry), rows.next_carry);
        return;
      }
      if (cell == RecurrentCell::kLstm) {
        Vector input, forget, candidate, output, activated;
        s.Value(part.Of(rows.z), input);
        s.Value(part.Of(rows.z + units), forget);
        f.Value(part.Of(rows.z + 2 * units), candidate);
        s.Value(part.Of(rows.z + 3 * units), output);
        const Vector carry = forget * part.Of(rows.carry) + input * candidate;
        f.Value(carry, activated);
        part.Put(input, rows.z);
        part.Put(forget, rows.z + units);
        part.Put(candidate, rows.z + 2 * units);
        part.Put(output, rows.z + 3 * units);
        part.Put(carry, rows.next_carry);
        part.Put(output * activated, next);
      } else if (cell == RecurrentCell::kGru) {
        Vector update, candidate, z = part.Of(rows.z + 2 * units);
        if (params.reset_after) {
          Vector reset;
          s.Value(part.Of(rows.z), update);
          s.Value(part.Of(rows.z + units), reset);
          z += reset * part.Of(rows.inner);
          part.Put(update, rows.z);
          part.Put(reset, rows.z + units);
        } else {
          update = part.Of(rows.z);
        }
        f.Value(z, candidate);
        part.Put(candidate, rows.z + 2 * units);
        part.Put(update * part.Of(rows.state) + (1.0f - update) * candidate, next);
      } else {
        Vector value;
        f.Value(part.Of(rows.z), value);
        part.Put(value, rows.z);
        part.Put(value, next);
      }
    });
  }
}

template <typename Gate>
void ResetStep(const RecurrenceParams& params, const StepRows& step) {
  const Gate s(params.recurrent_activation);
  for (int64_t i = 0; i < step.count; ++i) {
    const ExampleRows rows(step, params.gates(), i);
    ForEachPart(step.units, [&](const Part& part) __attribute__((always_inline)) {
      Vector update, reset;
      s.Value(part.Of(rows.z), update);
      s.Value(part.Of(rows.z + step.units), reset);
      part.Put(update, rows.z);
      part.Put(reset, rows.z + step.units);
      part.Put(reset * ScaledState(rows, part), rows.inner);
    });
  }
}

// The gradients of a masked step's gates are 0, and its states pass dh and dc on.
CAIRN_INLINE void ClearMasked(const RecurrenceParams& params, const ExampleRows& rows, const Part& part) {
  for (int64_t gate = 0; gate < params.gates(); ++gate) part.Put(Vector{}, rows.z + gate * params.units);
  if (rows.inner != nullptr && params.reset_after) part.Put(Vector{}, rows.inner);
}

template <typename Function, typename Gate>
void BackwardStep(const RecurrenceParams& params, const StepRows& step, float* dh, float* dc) {
  const Function f(params.activation);
  const Gate s(params.recurrent_activation);
  const int64_t units = step.units;
  for (int64_t i = 0; i < step.count; ++i, dh += units, dc += dc == nullptr ? 0 : units) {
    const ExampleRows rows(step, params.gates(), i);
    ForEachPart(units, [&](const Part& part) __attribute__((always_inline)) {
      if (rows.is_masked) return ClearMasked(params, rows, part);
      const Vector gradient = part.Of(dh);
      Vector slope;
      if (params.cell == RecurrentCell::kLstm) {
        const Vector input = part.Of(rows.z), forget = part.Of(rows.z + units);
        const Vector candidate = part.Of(rows.z + 2 * units), output = part.Of(rows.z + 3 * units);
        Vector activated;
        f.Value(part.Of(rows.next_carry), activated);
        f.Derivative(activated, slope);
        const Vector of_carry = part.Of(dc) + gradient * output * slope;
        s.Derivative(input, slope);
        part.Put(of_carry * candidate * slope, rows.z);
        s.Derivative(forget, slope);
        part.Put(of_carry * part.Of(rows.carry) * slope, rows.z + units);
        f.Derivative(candidate, slope);
        part.Put(of_carry * input * slope, rows.z + 2 * units);
        s.Derivative(output, slope);
        part.Put(gradient * activated * slope, rows.z + 3 * units);
        part.Put(of_carry * forget, dc);
        part.Put(Vector{}, dh);
      } else if (params.cell == RecurrentCell::kGru) {
        const Vector update = part.Of(rows.z), candidate = part.Of(rows.z + 2 * units);
        f.Derivative(candidate, slope);
        const Vector of_candidate = gradient * (1.0f - update) * slope;
        s.Derivative(update, slope);
        part.Put(gradient * (part.Of(rows.state) - candidate) * slope, rows.z);
        part.Put(of_candidate, rows.z + 2 * units);
        if (params.reset_after) {
          const Vector reset = part.Of(rows.z + units);
          s.Derivative(reset, slope);
          part.Put(of_candidate * part.Of(rows.inner) * slope, rows.z + units);
          part.Put(of_candidate * reset, rows.inner);
        }
        part.Put(gradient * update, dh);
      } else {
        f.Derivative(part.Of(rows.z), slope);
        part.Put(gradient * slope, rows.z);
        part.Put(Vector{}, dh);
      }
    });
  }
}

template <typename Gate>
void BackwardResetStep(const RecurrenceParams& params, const StepRows& step, float* dscaled) {
  const Gate s(params.recurrent_activation);
  const int64_t units = step.units;
  for (int64_t i = 0; i < step.count; ++i, dscaled += units) {
    const ExampleRows rows(step, params.gates(), i);
    ForEachPart(units, [&](const Part& part) __attribute__((always_inline)) {
      if (rows.is_masked) return part.Put(Vector{}, dscaled);
      const Vector of_product = part.Of(dscaled), reset = part.Of(rows.z + units);
      Vector slope;
      s.Derivative(reset, slope);
      part.Put(of_product * ScaledState(rows, part) * slope, rows.z + units);
      part.Put(of_product * reset, dscaled);
    });
  }
}

// Keras' defaults have code of their own.
bool IsUsual(const RecurrenceParams& params) {
  return params.activation.kind == Activation::kTanh &&
         params.recurrent_activation.kind == Activation::kSigmoid;
}

void Forward(const RecurrenceParams& params, const StepRows& rows, float* next, int64_t next_stride) {
  IsUsual(params) ? ForwardStep<TanhOfGate, SigmoidOfGate>(params, rows, next, next_stride)
                  : ForwardStep<AnyOfGate, AnyOfGate>(params, rows, next, next_stride);
}
void Reset(const RecurrenceParams& params, const StepRows& rows) {
  IsUsual(params) ? ResetStep<SigmoidOfGate>(params, rows) : ResetStep<AnyOfGate>(params, rows);
}
void Backward(const RecurrenceParams& params, const StepRows& rows, float* dh, float* dc) {
  IsUsual(params) ? BackwardStep<TanhOfGate, SigmoidOfGate>(params, rows, dh, dc)
                  : BackwardStep<AnyOfGate, AnyOfGate>(params, rows, dh, dc);
}
void BackwardReset(const RecurrenceParams& params, const StepRows& rows, float* dscaled) {
  IsUsual(params) ? BackwardResetStep<SigmoidOfGate>(params, rows, dscaled)
                  : BackwardResetStep<AnyOfGate>(params, rows, dscaled);
}

#undef CAIRN_INLINE

}  // namespace

RecurrenceCode RecurrenceLoops() {
  return {.panel_columns = kPanel,
          .packed_floats = PackedFloats,
          .pack = Pack,
          .multiply = Multiply,
          .forward = Forward,
          .reset = Reset,
          .backward = Backward,
          .backward_reset = BackwardReset};
}

}  // namespace cairn::kernels::cpu::CAIRN_ISA
