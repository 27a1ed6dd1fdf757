#include "kernels/cpu/loops/activation_loops.h"

#include "kernels/cpu/loops/vector_math.h"

namespace cairn::kernels::cpu::CAIRN_ISA {
namespace {

constexpr int kLanes = CAIRN_LANES;
using Vector = Floats<kLanes>;

// Copied from formulas.h. A *_loops.cc must not include that header, because other sources also compile its
// functions.
constexpr float kSeluAlpha = 1.6732632423543772f, kSeluScale = 1.0507009873554805f;
constexpr float kInverseSqrt2Pi = 0.39894228040143268f;
constexpr float kGeluTanhScale = 0.79788456080286536f, kGeluTanhCubic = 0.044715f;

// Each function has a Value(), and either a Derivative() or a Gradient(). Gradient() computes the gradient
// with respect to x from dy, the gradient with respect to the value.

struct Linear {
  inline __attribute__((always_inline)) void Value(const Vector& x, Vector& y) const { y = x; }
  inline __attribute__((always_inline)) void Derivative(const Vector&, Vector& d) const {
    d = Vector{} + 1.0f;
  }
};

// max(x, 0), computed by a comparison because the processor's maximum of NaN and 0 is 0.
struct PlainRelu {
  inline __attribute__((always_inline)) void Value(const Vector& x, Vector& y) const {
    y = x < 0.0f ? Vector{} : x;
  }
  inline __attribute__((always_inline)) void Gradient(const Vector& x, const Vector& dy, Vector& dx) const {
    dx = x > 0.0f ? dy : Vector{};
  }
};

struct Relu {
  float slope, limit, threshold;
  inline __attribute__((always_inline)) void Value(const Vector& x, Vector& y) const {
    const Vector most = Vector{} + limit;
    const Vector below = slope == 0 ? Vector{} : slope * (x - threshold);  // avoids 0 * infinity
    y = x < threshold ? below : (x > most ? most : x);
  }
  inline __attribute__((always_inline)) void Gradient(const Vector& x, const Vector& dy, Vector& dx) const {
    const Vector most = Vector{} + limit;
    const Vector below = slope == 0 ? Vector{} : slope * dy;
    const Vector above = limit == __builtin_inff() ? dy : (x < most ? dy : Vector{});
    dx = x > threshold ? above : (x < threshold ? below : Vector{});
    if (limit == __builtin_inff() && threshold == 0) dx = x == 0.0f ? below : dx;
  }
};

// The other functions multiply dy by the derivative.
template <typename Function>
struct ByDerivative : Function {
  inline __attribute__((always_inline)) void Gradient(const Vector& x, const Vector& dy, Vector& dx) const {
    Vector derivative;
    this->Derivative(x, derivative);
    dx = dy * derivative;
  }
};

// scale * (x > 0 ? x : alpha * (exp(x) - 1))
struct Elu {
  float scale, alpha;
  inline __attribute__((always_inline)) void Value(const Vector& x, Vector& y) const {
    Vector e;
    Expm1OfNegative<kLanes>(x > 0.0f ? Vector{} : x, e);
    y = scale * (x > 0.0f ? x : alpha * e);
  }
  inline __attribute__((always_inline)) void Derivative(const Vector& x, Vector& d) const {
    Vector e;
    Exp<kLanes>(x, e);
    d = x > 0.0f ? Vector{} + scale : (scale * alpha) * e;
  }
};

struct SigmoidFunction {
  inline __attribute__((always_inline)) void Value(const Vector& x, Vector& y) const {
    Vector rest;
    Sigmoid<kLanes>(x, y, rest);
  }
  inline __attribute__((always_inline)) void Derivative(const Vector& x, Vector& d) const {
    Vector rest;
    Sigmoid<kLanes>(x, d, rest);
    d *= rest;
  }
};

struct TanhFunction {
  inline __attribute__((always_inline)) void Value(const Vector& x, Vector& y) const { Tanh<kLanes>(x, y); }
  inline __attribute__((always_inline)) void Derivative(const Vector& x, Vector& d) const {
    Vector y;
    Tanh<kLanes>(x, y);
    d = 1.0f - y * y;
  }
};

struct SoftplusFunction {
  inline __attribute__((always_inline)) void Value(const Vector& x, Vector& y) const {
    Softplus<kLanes>(x, y);
  }
  inline __attribute__((always_inline)) void Derivative(const Vector& x, Vector& d) const {
    Vector rest;
    Sigmoid<kLanes>(x, d, rest);
  }
};

struct Silu {
  inline __attribute__((always_inline)) void Value(const Vector& x, Vector& y) const {
    Vector rest;
    Sigmoid<kLanes>(x, y, rest);
    y *= x;
  }
  inline __attribute__((always_inline)) void Derivative(const Vector& x, Vector& d) const {
    Vector sigmoid, rest;
    Sigmoid<kLanes>(x, sigmoid, rest);
    d = sigmoid * (1.0f + x * rest);
  }
};

struct Gelu {
  inline __attribute__((always_inline)) void Value(const Vector& x, Vector& y) const {
    NormalCdf<kLanes>(x, y);
    y *= x;
  }
  inline __attribute__((always_inline)) void Derivative(const Vector& x, Vector& d) const {
    Vector cdf, density;
    NormalCdf<kLanes>(x, cdf);
    Exp<kLanes>(-0.5f * x * x, density);
    d = cdf + x * kInverseSqrt2Pi * density;
  }
};

// (1 + tanh(u)) / 2 is sigmoid(2 u).
struct GeluTanh {
  inline __attribute__((always_inline)) void Value(const Vector& x, Vector& y) const {
    Vector rest;
    Sigmoid<kLanes>(2 * kGeluTanhScale * (x + kGeluTanhCubic * x * x * x), y, rest);
    y *= x;
  }
  inline __attribute__((always_inline)) void Derivative(const Vector& x, Vector& d) const {
    Vector sigmoid, rest;
    Sigmoid<kLanes>(2 * kGeluTanhScale * (x + kGeluTanhCubic * x * x * x), sigmoid, rest);
    const Vector slope = 2 * kGeluTanhScale * (1.0f + 3 * kGeluTanhCubic * x * x);
    d = sigmoid + x * sigmoid * rest * slope;
  }
};

struct HardSigmoid {
  inline __attribute__((always_inline)) void Value(const Vector& x, Vector& y) const {
    const Vector one = Vector{} + 1.0f;
    const Vector line = x * (1.0f / 6) + 0.5f;
    y = line < 0.0f ? Vector{} : (line > 1.0f ? one : line);
  }
  inline __attribute__((always_inline)) void Derivative(const Vector& x, Vector& d) const {
    const Vector slope = Vector{} + 1.0f / 6;
    d = x > -3.0f ? (x < 3.0f ? slope : Vector{}) : Vector{};
  }
};

struct HardSilu {
  inline __attribute__((always_inline)) void Value(const Vector& x, Vector& y) const {
    HardSigmoid().Value(x, y);
    y *= x;
  }
  inline __attribute__((always_inline)) void Derivative(const Vector& x, Vector& d) const {
    const Vector one = Vector{} + 1.0f;
    const Vector line = x * (1.0f / 3) + 0.5f;
    d = x <= -3.0f ? Vector{} : (x >= 3.0f ? one : line);
  }
};

struct ExpFunction {
  inline __attribute__((always_inline)) void Value(const Vector& x, Vector& y) const { Exp<kLanes>(x, y); }
  inline __attribute__((always_inline)) void Derivative(const Vector& x, Vector& d) const {
    Exp<kLanes>(x, d);
  }
};

// The C library's functions, lane by lane.
template <typename Scalar>
inline __attribute__((always_inline)) void EachLane(const Vector& x, const Scalar& scalar, Vector& y) {
  for (int lane = 0; lane < kLanes; ++lane) y[lane] = scalar(x[lane]);
}

struct LogFunction {
  inline __attribute__((always_inline)) void Value(const Vector& x, Vector& y) const {
    EachLane(x, [](float v) { return __builtin_logf(v); }, y);
  }
  inline __attribute__((always_inline)) void Derivative(const Vector& x, Vector& d) const { d = 1.0f / x; }
};

struct Log1pFunction {
  inline __attribute__((always_inline)) void Value(const Vector& x, Vector& y) const {
    EachLane(x, [](float v) { return __builtin_log1pf(v); }, y);
  }
  inline __attribute__((always_inline)) void Derivative(const Vector& x, Vector& d) const {
    d = 1.0f / (1.0f + x);
  }
};

struct SqrtFunction {
  inline __attribute__((always_inline)) void Value(const Vector& x, Vector& y) const {
    EachLane(x, [](float v) { return __builtin_sqrtf(v); }, y);
  }
  inline __attribute__((always_inline)) void Derivative(const Vector& x, Vector& d) const {
    Vector y;
    Value(x, y);
    d = 0.5f / y;
  }
};

struct RsqrtFunction {
  inline __attribute__((always_inline)) void Value(const Vector& x, Vector& y) const {
    Vector root;
    SqrtFunction().Value(x, root);
    y = 1.0f / root;
  }
  inline __attribute__((always_inline)) void Derivative(const Vector& x, Vector& d) const {
    Vector root;
    SqrtFunction().Value(x, root);
    d = -0.5f / root / x;
  }
};

struct ReciprocalFunction {
  inline __attribute__((always_inline)) void Value(const Vector& x, Vector& y) const { y = 1.0f / x; }
  inline __attribute__((always_inline)) void Derivative(const Vector& x, Vector& d) const {
    const Vector y = 1.0f / x;
    d = -y * y;
  }
};

struct SinFunction {
  inline __attribute__((always_inline)) void Value(const Vector& x, Vector& y) const {
    EachLane(x, [](float v) { return __builtin_sinf(v); }, y);
  }
  inline __attribute__((always_inline)) void Derivative(const Vector& x, Vector& d) const {
    EachLane(x, [](float v) { return __builtin_cosf(v); }, d);
  }
};

struct CosFunction {
  inline __attribute__((always_inline)) void Value(const Vector& x, Vector& y) const {
    EachLane(x, [](float v) { return __builtin_cosf(v); }, y);
  }
  inline __attribute__((always_inline)) void Derivative(const Vector& x, Vector& d) const {
    EachLane(x, [](float v) { return -__builtin_sinf(v); }, d);
  }
};

// A function whose gradient is 0 whatever dy is.
template <typename Function>
struct StepFunction {
  Function of_element;
  inline __attribute__((always_inline)) void Value(const Vector& x, Vector& y) const {
    EachLane(x, of_element, y);
  }
  inline __attribute__((always_inline)) void Gradient(const Vector&, const Vector&, Vector& dx) const {
    dx = Vector{};
  }
};
template <typename Function>
StepFunction(Function) -> StepFunction<Function>;

// Calls visit(index of the first element, count) for whole vectors, then for the rest.
template <typename Visit>
inline __attribute__((always_inline)) void ForEachVector(int64_t count, const Visit& visit) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) visit(i, kLanes);
  if (i < count) visit(i, static_cast<int>(count - i));
}
// Loads the first `count` lanes; the others become 0.
inline __attribute__((always_inline)) void LoadSome(const float* from, int count, Vector& to) {
  if (count == kLanes) {
    Load(from, to);
    return;
  }
  float lanes[kLanes];
  Store(Vector{}, lanes);
  for (int lane = 0; lane < count; ++lane) lanes[lane] = from[lane];
  Load(lanes, to);
}
inline __attribute__((always_inline)) void StoreSome(const Vector& from, int count, float* to) {
  if (count == kLanes) {
    Store(from, to);
    return;
  }
  float lanes[kLanes];
  Store(from, lanes);
  for (int lane = 0; lane < count; ++lane) to[lane] = lanes[lane];
}

struct ForwardLoop {
  const float* x;
  int64_t count;
  float* y;
  template <typename Function>
  void operator()(const Function& f) const {
    ForEachVector(count, [&](int64_t i, int lanes) __attribute__((always_inline)) {
      Vector in, out;
      LoadSome(x + i, lanes, in);
      f.Value(in, out);
      StoreSome(out, lanes, y + i);
    });
  }
};

struct BackwardLoop {
  const float* x;
  const float* dy;
  int64_t count;
  float* dx;
  template <typename Function>
  void operator()(const Function& f) const {
    ForEachVector(count, [&](int64_t i, int lanes) __attribute__((always_inline)) {
      Vector in, gradient, out;
      LoadSome(x + i, lanes, in);
      LoadSome(dy + i, lanes, gradient);
      f.Gradient(in, gradient, out);
      StoreSome(out, lanes, dx + i);
    });
  }
};

template <typename Loop>
void Run(const ActivationParams& f, const Loop& loop) {
  switch (f.kind) {
    case Activation::kLinear:
      return loop(ByDerivative<Linear>());
    case Activation::kRelu:
      if (f.is_plain_relu()) return loop(PlainRelu());
      return loop(Relu{.slope = f.slope, .limit = f.limit, .threshold = f.threshold});
    case Activation::kElu:
      return loop(ByDerivative<Elu>{{.scale = 1, .alpha = f.slope}});
    case Activation::kSelu:
      return loop(ByDerivative<Elu>{{.scale = kSeluScale, .alpha = kSeluAlpha}});
    case Activation::kSigmoid:
      return loop(ByDerivative<SigmoidFunction>());
    case Activation::kTanh:
      return loop(ByDerivative<TanhFunction>());
    case Activation::kSoftplus:
      return loop(ByDerivative<SoftplusFunction>());
    case Activation::kSilu:
      return loop(ByDerivative<Silu>());
    case Activation::kGelu:
      return loop(ByDerivative<Gelu>());
    case Activation::kGeluTanh:
      return loop(ByDerivative<GeluTanh>());
    case Activation::kHardSigmoid:
      return loop(ByDerivative<HardSigmoid>());
    case Activation::kHardSilu:
      return loop(ByDerivative<HardSilu>());
    case Activation::kExp:
      return loop(ByDerivative<ExpFunction>());
    case Activation::kLog:
      return loop(ByDerivative<LogFunction>());
    case Activation::kLog1p:
      return loop(ByDerivative<Log1pFunction>());
    case Activation::kSqrt:
      return loop(ByDerivative<SqrtFunction>());
    case Activation::kRsqrt:
      return loop(ByDerivative<RsqrtFunction>());
    case Activation::kReciprocal:
      return loop(ByDerivative<ReciprocalFunction>());
    case Activation::kSin:
      return loop(ByDerivative<SinFunction>());
    case Activation::kCos:
      return loop(ByDerivative<CosFunction>());
    case Activation::kSign:
      return loop(StepFunction{[](float v) { return v > 0 ? 1.0f : v < 0 ? -1.0f : v == 0 ? 0.0f : v; }});
    case Activation::kFloor:
      return loop(StepFunction{[](float v) { return __builtin_floorf(v); }});
    case Activation::kCeil:
      return loop(StepFunction{[](float v) { return __builtin_ceilf(v); }});
    case Activation::kRound:
      return loop(StepFunction{[](float v) { return __builtin_rintf(v); }});
    case Activation::kTruncate:
      return loop(StepFunction{[](float v) { return __builtin_truncf(v); }});
  }
}

void Forward(const ActivationParams& f, const float* x, int64_t count, float* y) {
  Run(f, ForwardLoop{x, count, y});
}

void Backward(const ActivationParams& f, const float* x, const float* dy, int64_t count, float* dx) {
  Run(f, BackwardLoop{x, dy, count, dx});
}

// The C library computes the elements that do not fill a register, and therefore all elements of a row with
// few classes.
RowSum Exponentials(const float* x, int64_t count, float* e) {
  const int64_t whole = count / kLanes * kLanes;
  float largest = x[0];
  if (whole > 0) {
    Vector most = Vector{} + largest;
    for (int64_t i = 0; i < whole; i += kLanes) {
      Vector in;
      Load(x + i, in);
      most = in > most ? in : most;
    }
    for (int lane = 0; lane < kLanes; ++lane) largest = most[lane] > largest ? most[lane] : largest;
  }
  for (int64_t i = whole; i < count; ++i) largest = x[i] > largest ? x[i] : largest;

  float sum = 0;
  if (whole > 0) {
    Vector sums = {};
    for (int64_t i = 0; i < whole; i += kLanes) {
      Vector in, out;
      Load(x + i, in);
      Exp<kLanes>(in - largest, out);
      Store(out, e + i);
      sums += out;
    }
    for (int lane = 0; lane < kLanes; ++lane) sum += sums[lane];
  }
  for (int64_t i = whole; i < count; ++i) {
    e[i] = __builtin_expf(x[i] - largest);
    sum += e[i];
  }
  return {largest, sum};
}

}  // namespace

ActivationCode ActivationLoops() {
  return {.forward = Forward, .backward = Backward, .exponentials = Exponentials};
}

}  // namespace cairn::kernels::cpu::CAIRN_ISA
