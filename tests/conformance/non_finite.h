// Helpers for tests of NaN and infinity. Every operation passes them on as its definition in double does,
// forward and backward: the result is NaN where the definition's is and nowhere else, and the same holds for
// infinity. One element at a time is poisoned, in what vector registers hold and in the remainder.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/conformance/backends.h"

namespace cairn::conformance {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// "nan", "inf", "-inf" or "finite".
inline std::string KindOf(double value) {
  if (std::isnan(value)) return "nan";
  return std::isfinite(value) ? "finite" : value > 0 ? "inf" : "-inf";
}

inline void ExpectKinds(const std::vector<float>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(KindOf(got[i]), KindOf(expected[i]))
        << "element " << i << ": " << got[i] << " for " << expected[i];
  }
}

struct Poison {
  double value;
  int64_t place;
};

// NaN as the first element, the last, and two between, and each infinity as one of those.
inline std::vector<Poison> PoisonsOf(const Shape& shape) {
  const int64_t last = shape.num_elements() - 1;
  return {{kNaN, 0},    {kNaN, last / 3},  {kNaN, std::min(last / 2 + 1, last)},
          {kNaN, last}, {kInfinity, last}, {-kInfinity, 0}};
}

// max(x, 0) and max(a, b), where NaN is larger than any number.
inline double Relu(double x) {
  return x < 0 ? 0 : x;
}
inline double Larger(double a, double b) {
  return std::isnan(a) || a > b ? a : b;
}

class NonFiniteTest : public ConformanceTest {
 protected:
  // Calls visit(x) for random values of this shape with one poisoned element.
  template <typename Visit>
  void ForEachPoison(const Shape& shape, const Visit& visit) {
    for (const auto& [value, place] : PoisonsOf(shape)) {
      SCOPED_TRACE(testing::Message() << value << " at element " << place << " of " << shape.ToString());
      reference::Tensor x = Rounded(RandomTensor(shape, 1), type());
      x.at(place) = value;
      visit(x);
      if (HasFatalFailure()) return;
    }
  }

  using Map = std::function<reference::Tensor(const reference::Tensor&)>;
  // Compares an op without weights with `forward`, for a poisoned x, and with `backward` (x, dy), if given,
  // for a poisoned dy.
  void CheckUnary(kernels::UnaryOp& op, const kernels::TensorDesc& desc, const Map& forward,
                  const std::function<reference::Tensor(const reference::Tensor&, const reference::Tensor&)>&
                      backward = nullptr) {
    const kernels::TensorDesc y_desc = op.output();
    ForEachPoison(desc.shape, [&](const reference::Tensor& x) {
      const auto x_memory = PutActivation(x, desc.layout), y = Poisoned(y_desc.num_floats());
      ASSERT_TRUE(op.Forward(x_memory->data(), y->data()).ok());
      ExpectKinds(GetActivation(*y, y_desc), forward(x).values);
    });
    if (backward == nullptr || HasFatalFailure()) return;
    const reference::Tensor x = Rounded(RandomTensor(desc.shape, 2), type());
    ForEachPoison(y_desc.shape, [&](const reference::Tensor& dy) {
      const auto x_memory = PutActivation(x, desc.layout), y = Poisoned(y_desc.num_floats());
      const auto dy_memory = PutActivation(dy, y_desc.layout), dx = Poisoned(desc.num_floats());
      ASSERT_TRUE(op.Forward(x_memory->data(), y->data()).ok());
      ASSERT_TRUE(op.Backward(x_memory->data(), y->data(), dy_memory->data(), dx->data()).ok());
      ExpectKinds(GetActivation(*dx, desc), backward(x, dy).values);
    });
  }
};

}  // namespace cairn::conformance
