// Exponentials and related functions on vectors, for the *_loops.cc. Errors are relative to the exact value,
// in units in the last place (ulp), over all floats; without fused multiply-add they are about one larger.
// NaN gives NaN.
#pragma once

#include "kernels/cpu/loops/vectors.h"

namespace cairn::kernels::cpu::CAIRN_ISA {

#define CAIRN_MATH      \
  template <int kLanes> \
  inline __attribute__((always_inline))

// GCC cannot deduce kLanes from an argument of type Floats<kLanes>, so calls name it. Functions take and
// return vectors by reference, which keeps vectors out of calling conventions that depend on the instruction
// set.

// x = n log(2) + r, |r| <= log(2) / 2, for |x| < 2^22. 0x4B400000 are the bits of 1.5 * 2^23, where floats
// are the whole numbers.
CAIRN_MATH void Reduce(const Floats<kLanes>& x, Ints<kLanes>& n, Floats<kLanes>& r) {
  const Floats<kLanes> shifted = x * 1.44269504088896341f + 12582912.0f;
  n = reinterpret_cast<Ints<kLanes>>(shifted) - 0x4B400000;
  const Floats<kLanes> whole = shifted - 12582912.0f;
  r = x - whole * 0.693359375f;
  r -= whole * -2.12194440e-4f;
}

// exp(r) - 1 for |r| <= log(2) / 2. Moshier, Cephes, single/expf.c.
CAIRN_MATH void Expm1OfReduced(const Floats<kLanes>& r, Floats<kLanes>& e) {
  Floats<kLanes> p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  e = p * (r * r) + r;
}

// 2^n for -126 <= n <= 127.
CAIRN_MATH void PowerOfTwo(const Ints<kLanes>& n, Floats<kLanes>& power) {
  const Ints<kLanes> bits = (n + 127) << 23;
  power = reinterpret_cast<Floats<kLanes>>(bits);
}

// exp(x): 1 ulp, denormal results included.
CAIRN_MATH void Exp(const Floats<kLanes>& x, Floats<kLanes>& y) {
  Floats<kLanes> clamped = x > 89.0f ? Floats<kLanes>{} + 89.0f : x;  // exp(89) overflows
  clamped = clamped < -104.0f ? Floats<kLanes>{} - 104.0f : clamped;  // exp(-104) is 0
  Ints<kLanes> n;
  Floats<kLanes> r, e, half, rest;
  Reduce<kLanes>(clamped, n, r);
  Expm1OfReduced<kLanes>(r, e);
  // In two steps, because 2^n alone may not be a normal number.
  PowerOfTwo<kLanes>(n >> 1, half);
  PowerOfTwo<kLanes>(n - (n >> 1), rest);
  y = (e + 1.0f) * half * rest;
}

// exp(x) - 1 for x <= 0: 2 ulp.
CAIRN_MATH void Expm1OfNegative(const Floats<kLanes>& x, Floats<kLanes>& y) {
  const Floats<kLanes> clamped = x < -20.0f ? Floats<kLanes>{} - 20.0f : x;  // exp(-20) - 1 rounds to -1
  Ints<kLanes> n;
  Floats<kLanes> r, e, power;
  Reduce<kLanes>(clamped, n, r);
  Expm1OfReduced<kLanes>(r, e);
  PowerOfTwo<kLanes>(n, power);
  y = e * power + (power - 1.0f);
}

CAIRN_MATH void Abs(const Floats<kLanes>& x, Floats<kLanes>& y) {
  const Ints<kLanes> bits = reinterpret_cast<Ints<kLanes>>(x) & 0x7FFFFFFF;
  y = reinterpret_cast<Floats<kLanes>>(bits);
}
// |x| with the sign of `sign`.
CAIRN_MATH void CopySign(const Floats<kLanes>& x, const Floats<kLanes>& sign, Floats<kLanes>& y) {
  const Ints<kLanes> bits =
      (reinterpret_cast<Ints<kLanes>>(x) & 0x7FFFFFFF) | (reinterpret_cast<Ints<kLanes>>(sign) & ~0x7FFFFFFF);
  y = reinterpret_cast<Floats<kLanes>>(bits);
}

// log(1 + e) for 0 <= e <= 1: 1 ulp. Moshier, Cephes, single/logf.c. The argument of its polynomial is e or,
// if e > sqrt(2) - 1, (1 + e) / 2 - 1.
CAIRN_MATH void Log1p(const Floats<kLanes>& e, Floats<kLanes>& y) {
  const Ints<kLanes> large = e > 0.41421356237f;
  const Floats<kLanes> f = large ? (e - 1.0f) * 0.5f : e;
  Floats<kLanes> p = f * 7.0376836292e-2f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  const Floats<kLanes> square = f * f;
  y = f - (square * 0.5f - square * f * p);
  y = large ? y + 0.693147180559945f : y;
}

// y = 1 / (1 + exp(-x)) and rest = 1 - y, without cancellation: 2.5 ulp.
CAIRN_MATH void Sigmoid(const Floats<kLanes>& x, Floats<kLanes>& y, Floats<kLanes>& rest) {
  Floats<kLanes> size, e;
  Abs<kLanes>(x, size);
  Exp<kLanes>(-size, e);
  const Floats<kLanes> one = Floats<kLanes>{} + 1.0f;
  y = (x < 0.0f ? e : one) / (one + e);  // a division for each result, also where only one is used
  rest = (x < 0.0f ? one : e) / (one + e);
}

// tanh(x): 3 ulp.
CAIRN_MATH void Tanh(const Floats<kLanes>& x, Floats<kLanes>& y) {
  Floats<kLanes> size, e;
  Abs<kLanes>(x, size);
  Expm1OfNegative<kLanes>(size * -2.0f, e);
  CopySign<kLanes>(e / (2.0f + e), x, y);
}

// log(1 + exp(x)): 2 ulp.
CAIRN_MATH void Softplus(const Floats<kLanes>& x, Floats<kLanes>& y) {
  Floats<kLanes> size, e, log;
  Abs<kLanes>(x, size);
  Exp<kLanes>(-size, e);
  Log1p<kLanes>(e, log);
  y = (x < 0.0f ? Floats<kLanes>{} : x) + log;
}

// The normal distribution function, erfc(-x / sqrt(2)) / 2: 1 ulp of 1. N. Juffa's polynomials,
// stackoverflow.com/questions/35148198, approximate erf(t) near 0 and log(1 - erf(t)) elsewhere.
CAIRN_MATH void NormalCdf(const Floats<kLanes>& x, Floats<kLanes>& y) {
  const Floats<kLanes> a = x * 0.70710678118654752f, s = a * a;
  Floats<kLanes> t;
  Abs<kLanes>(a, t);
  Floats<kLanes> near = s * -5.96761703e-4f + 4.99119423e-3f;
  near = near * s - 2.67681349e-2f;
  near = near * s + 1.12819925e-1f;
  near = near * s - 3.76125336e-1f;
  near = near * s + 1.28379166e-1f;
  near = near * a + a;
  Floats<kLanes> far = t * -1.72853470e-5f + 3.83197126e-4f;
  far = far * s + (t * -3.88396438e-3f + 2.42546219e-2f);
  far = far * t - 1.06777877e-1f;
  far = far * t - 6.34846687e-1f;
  far = far * t - 1.28717512e-1f;
  far = far * t - t;
  Floats<kLanes> tail;
  Exp<kLanes>(far, tail);
  tail *= 0.5f;
  y = t > 0.927734375f ? (x < 0.0f ? tail : 1.0f - tail) : 0.5f + 0.5f * near;
}

#undef CAIRN_MATH

}  // namespace cairn::kernels::cpu::CAIRN_ISA
