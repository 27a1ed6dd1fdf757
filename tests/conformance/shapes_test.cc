// Transpositions, larger images, windows of volumes and rows of norm 1: forward against definitions, backward against
// central differences.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "tests/conformance/backends.h"
#include "tests/conformance/numerical.h"
#include "tests/conformance/unary.h"

namespace cairn::conformance {
namespace {

using kernels::Interpolation;
using kernels::Layout;
using kernels::TensorDesc;
using reference::Tensor;

class ShapesConformance : public UnaryOpTest {
 protected:
  void CheckShape(absl::StatusOr<std::unique_ptr<kernels::UnaryOp>> made, const Shape& shape, Layout layout,
                  const std::function<Tensor(const Tensor&)>& forward) {
    Check(std::move(made), RandomTensor(shape, 1), layout, forward);
  }
};

Tensor Transposed(const Tensor& x, const std::vector<int>& axes) {
  Shape shape;
  for (const int axis : axes) shape.Append(x.shape[axis]);
  Tensor y(shape);
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    std::vector<int64_t> place(axes.size());
    int64_t rest = i, from = 0;
    for (size_t axis = axes.size(); axis-- > 0;) {
      place[static_cast<size_t>(axes[axis])] = rest % shape[static_cast<int>(axis)];
      rest /= shape[static_cast<int>(axis)];
    }
    for (size_t axis = 0; axis < axes.size(); ++axis)
      from = from * x.shape[static_cast<int>(axis)] + place[axis];
    y.at(i) = x.at(from);
  }
  return y;
}

TEST_P(ShapesConformance, EveryOrderOfAxes) {
  for (const Shape& shape : {Shape{3, 5}, Shape{40, 33}, Shape{2, 3, 4}, Shape{3, 35, 18}, Shape{2, 1, 4, 3},
                             Shape{2, 3, 17, 8}, Shape{2, 3, 2, 3, 2}}) {
    std::vector<int> axes;
    for (int axis = 0; axis < shape.rank(); ++axis) axes.push_back(axis);
    do {
      SCOPED_TRACE(testing::Message() << shape.ToString() << " to " << testing::PrintToString(axes));
      CheckShape(device().ops().MakeTranspose({.input = ActivationDesc(shape), .axes = axes}), shape,
                 Layout::kRowMajor, [&](const Tensor& x) { return Transposed(x, axes); });
      if (HasFatalFailure()) return;
    } while (std::next_permutation(axes.begin(), axes.end()));
  }
}

// Variables lie side by side in memory.
TEST_P(ShapesConformance, UnalignedVariablesAreTransposed) {
  const Tensor x = RandomTensor({2, 3, 8}, 1);
  auto op = device().ops().MakeTranspose({.input = {.shape = x.shape}, .axes = {1, 0, 2}}).value();
  Tensor shifted({1 + x.shape.num_elements()});
  std::copy(x.values.begin(), x.values.end(), shifted.values.begin() + 1);
  const auto x_memory = Put(shifted), y_memory = Put(Tensor(shifted.shape));
  ASSERT_TRUE(op->Forward(x_memory->data() + 1, y_memory->data() + 1).ok());
  const std::vector<float> y = Get(*y_memory, {.shape = shifted.shape});
  EXPECT_EQ(y[0], 0);
  ExpectNear({y.begin() + 1, y.end()}, Transposed(x, {1, 0, 2}).values, 1);
}

TEST_P(ShapesConformance, OrdersThatAreNoPermutationAreRefused) {
  const auto refusal = [&](const std::vector<int>& axes) {
    return std::string(
        device().ops().MakeTranspose({.input = {.shape = {2, 3, 4}}, .axes = axes}).status().message());
  };
  EXPECT_EQ(refusal({0, 1, 1}), "cannot transpose [2,3,4] to axes [0,1,1]");
  EXPECT_EQ(refusal({1, 0}), "cannot transpose [2,3,4] to axes [1,0]");
}

// The value between the centers of pixels, by real numbers.
double At(const Tensor& x, int64_t n, double row, double column, int64_t c) {
  row = std::clamp(row, 0.0, static_cast<double>(x.shape[1] - 1));
  column = std::clamp(column, 0.0, static_cast<double>(x.shape[2] - 1));
  double sum = 0;
  for (int64_t h = 0; h < x.shape[1]; ++h) {
    for (int64_t w = 0; w < x.shape[2]; ++w) {
      const double weight = std::max(0.0, 1 - std::fabs(row - static_cast<double>(h))) *
                            std::max(0.0, 1 - std::fabs(column - static_cast<double>(w)));
      sum += weight * x.at(x.index(n, h, w, c));
    }
  }
  return sum;
}

TEST_P(ShapesConformance, PixelsAreRepeatedOrInterpolated) {
  for (const Interpolation interpolation : {Interpolation::kNearest, Interpolation::kBilinear}) {
    for (const int64_t channels : {1, 5, 16, 24}) {
      for (const auto& [down, across] : {std::pair<int64_t, int64_t>{2, 2}, {1, 3}, {4, 1}, {3, 5}}) {
        for (const Layout layout : layouts()) {
          const Shape shape = {2, 3, 4, channels};
          const int64_t rows = down, columns = across;
          SCOPED_TRACE(testing::Message() << shape.ToString() << " by " << down << "x" << across);
          CheckShape(device().ops().MakeUpsample2D({.input = ActivationDesc(shape, layout),
                                                    .height = down,
                                                    .width = across,
                                                    .interpolation = interpolation}),
                     shape, layout, [&](const Tensor& x) {
                       Tensor y({2, 3 * rows, 4 * columns, channels});
                       for (int64_t n = 0; n < 2; ++n)
                         for (int64_t h = 0; h < y.shape[1]; ++h)
                           for (int64_t w = 0; w < y.shape[2]; ++w)
                             for (int64_t c = 0; c < channels; ++c) {
                               const auto center = [](int64_t o, int64_t factor) {
                                 return (static_cast<double>(o) + 0.5) / static_cast<double>(factor) - 0.5;
                               };
                               y.at(y.index(n, h, w, c)) =
                                   interpolation == Interpolation::kNearest
                                       ? x.at(x.index(n, h / rows, w / columns, c))
                                       : At(x, n, center(h, rows), center(w, columns), c);
                             }
                       return y;
                     });
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(ShapesConformance, WindowsAlongTheDepth) {
  for (const auto padding : {kernels::Padding::kValid, kernels::Padding::kSame}) {
    for (const auto& [stride, dilation] : {std::pair<int64_t, int64_t>{1, 1}, {2, 1}, {1, 2}}) {
      constexpr int64_t kDepth = 7, kWindow = 3;
      const int64_t step = stride, gap = dilation, span = (kWindow - 1) * dilation + 1;
      const bool same = padding == kernels::Padding::kSame;
      SCOPED_TRACE(testing::Message()
                   << "stride " << stride << ", dilation " << dilation << ", same " << same);
      CheckShape(device().ops().MakeDepthWindows({.input = ActivationDesc({2, kDepth, 4, 3}),
                                                  .window = kWindow,
                                                  .stride = stride,
                                                  .dilation = dilation,
                                                  .padding = padding}),
                 {2, kDepth, 4, 3}, Layout::kRowMajor, [&](const Tensor& x) {
                   const int64_t windows = reference::Windows::Output(kDepth, span, step, same);
                   const int64_t before = reference::Windows::PadBefore(kDepth, span, step, same);
                   Tensor y({2, windows, 4, kWindow * 3});
                   for (int64_t n = 0; n < 2; ++n)
                     for (int64_t o = 0; o < windows; ++o)
                       for (int64_t place = 0; place < 4; ++place)
                         for (int64_t k = 0; k < kWindow; ++k)
                           for (int64_t c = 0; c < 3; ++c) {
                             const int64_t d = o * step + k * gap - before;
                             const bool inside = d >= 0 && d < kDepth;
                             y.at(y.index(n, o, place, k * 3 + c)) =
                                 inside ? x.at(x.index(n, d, place, c)) : 0;
                           }
                   return y;
                 });
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ShapesConformance, RowsOfNorm1) {
  for (const int64_t width : {2, 8, 33, 1100}) {
    CheckShape(device().ops().MakeUnitNorm({.input = ActivationDesc({3, 2, width})}), {3, 2, width},
               Layout::kRowMajor, [&](const Tensor& x) {
                 Tensor y(x.shape);
                 for (int64_t begin = 0; begin < x.shape.num_elements(); begin += width) {
                   double squares = 0;
                   for (int64_t i = begin; i < begin + width; ++i) squares += x.at(i) * x.at(i);
                   for (int64_t i = begin; i < begin + width; ++i) y.at(i) = x.at(i) / std::sqrt(squares);
                 }
                 return y;
               });
    if (HasFatalFailure()) return;
  }
}

TEST_P(ShapesConformance, SmallRowsAreDividedByEpsilon) {
  CheckShape(device().ops().MakeUnitNorm({.input = ActivationDesc({4, 3}), .epsilon = 10}), {4, 3},
             Layout::kRowMajor, [](const Tensor& x) {
               Tensor y(x.shape);
               for (int64_t i = 0; i < x.shape.num_elements(); ++i) y.at(i) = x.at(i) / 10;
               return y;
             });
}

TEST_P(ShapesConformance, ManyElementsAreTransposed) {
  const std::vector<int> axes = {1, 0};
  const Shape shape = {700, 33};
  const Tensor x = Rounded(RandomTensor(shape, 1), type());
  auto op = device().ops().MakeTranspose({.input = ActivationDesc(shape), .axes = axes});
  ASSERT_TRUE(op.ok()) << op.status();
  const auto x_memory = PutActivation(x), y_memory = Poisoned((*op)->output().num_floats());
  ASSERT_TRUE((*op)->Forward(x_memory->data(), y_memory->data()).ok());
  ExpectActivation(GetActivation(*y_memory, (*op)->output()), Transposed(x, axes).values, 0);
}

INSTANTIATE_CONFORMANCE_OF_ALL_TYPES(ShapesConformance);

}  // namespace
}  // namespace cairn::conformance
