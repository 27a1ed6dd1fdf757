// Convolutions and matrix products in every precision, by the relative error of the whole result.
#include "tests/conformance/backends.h"

namespace cairn::conformance {
namespace {

using kernels::ElementType;
using kernels::Padding;
using kernels::TensorDesc;
using reference::Tensor;
using reference::Windows;

class ProductConformance : public ConformanceTest {
 protected:
  // Kernels are float32, but enter products as the type of operands.
  Tensor Values(const Shape& shape, uint64_t seed) {
    return Rounded(RandomTensor(shape, seed), GetParam()->operands());
  }

  // Runs the op forward and backward and compares it with what `forward` and `backward` compute from the same
  // values. `input` is the type of x, which may differ from the op's own.
  template <typename Forward, typename Backward>
  void Check(kernels::LinearOp& op, const Tensor& x, ElementType input, const Tensor& kernel,
             const Tensor& bias, const Forward& forward, const Backward& backward) {
    const auto x_memory = PutAs(x, input), kernel_memory = Put(kernel), bias_memory = Put(bias);
    const auto y = Poisoned(op.output().num_floats());
    ASSERT_EQ(op.output().type, type());
    const absl::Status ran =
        op.Forward(x_memory->data(), kernel_memory->data(), bias_memory->data(), y->data());
    ASSERT_TRUE(ran.ok()) << ran;
    const Tensor expected = forward();
    ASSERT_EQ(op.output().shape, expected.shape);
    ExpectClose(GetActivation(*y, op.output()), expected.values, GetParam()->tolerance());

    const Tensor dy = Values(expected.shape, 9);
    const auto dy_memory = PutActivation(dy, op.output().layout);
    const TensorDesc x_desc = {.shape = x.shape, .type = input};
    const auto dx = Poisoned(x_desc.num_floats()), dkernel = Poisoned(kernel.shape.num_elements()),
               dbias = Poisoned(bias.shape.num_elements());
    const absl::Status back = op.Backward(x_memory->data(), kernel_memory->data(), y->data(),
                                          dy_memory->data(), dx->data(), dkernel->data(), dbias->data());
    ASSERT_TRUE(back.ok()) << back;
    const reference::Gradients gradients = backward(expected, dy);
    ExpectClose(GetAs(*dx, x.shape, input), gradients.dx.values, GetParam()->tolerance());
    ExpectClose(Get(*dkernel, {kernel.shape}), gradients.dkernel.values, GetParam()->tolerance());
    ExpectClose(Get(*dbias, {bias.shape}), gradients.dbias, GetParam()->tolerance());
  }
};

struct ConvCase {
  Shape input;
  int64_t filters, kernel_h, kernel_w, stride;
  Padding padding;
  bool relu;
};

TEST_P(ProductConformance, Convolutions) {
  for (const ConvCase& c : {ConvCase{{4, 13, 13, 32}, 64, 3, 3, 1, Padding::kValid, true},
                            ConvCase{{2, 8, 8, 16}, 32, 3, 3, 2, Padding::kSame, false},
                            ConvCase{{3, 9, 7, 5}, 6, 3, 2, 1, Padding::kSame, true},
                            ConvCase{{2, 6, 6, 8}, 16, 1, 1, 2, Padding::kSame, false},
                            ConvCase{{2, 10, 10, 1}, 8, 5, 5, 1, Padding::kValid, true},
                            ConvCase{{2, 7, 7, 3}, 4, 3, 3, 2, Padding::kValid, false}}) {
    for (ElementType input : {ElementType::kFloat32, type()}) {
      SCOPED_TRACE(absl::StrCat(c.input.ToString(), " ", static_cast<int>(input)));
      auto op = device().ops().MakeConv2D({.input = {.shape = c.input, .type = input},
                                           .filters = c.filters,
                                           .kernel_height = c.kernel_h,
                                           .kernel_width = c.kernel_w,
                                           .stride_height = c.stride,
                                           .stride_width = c.stride,
                                           .padding = c.padding,
                                           .relu = c.relu});
      ASSERT_TRUE(op.ok()) << op.status();
      const Windows windows = {c.kernel_h, c.kernel_w, c.stride, c.stride, c.padding == Padding::kSame};
      const Tensor x = Values(c.input, 1),
                   kernel = Values({c.kernel_h, c.kernel_w, c.input[3], c.filters}, 2),
                   bias = Values({c.filters}, 3);
      Check(
          **op, x, input, kernel, bias,
          [&] {
            Tensor y = reference::Conv2D(x, windows, kernel, bias.values);
            if (c.relu) reference::Relu(y);
            return y;
          },
          [&](const Tensor& y, Tensor dy) {
            if (c.relu) reference::ReluBackward(y, dy);
            return reference::Conv2DBackward(x, windows, kernel, dy);
          });
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ProductConformance, TransposedConvolutions) {
  for (Padding padding : {Padding::kValid, Padding::kSame}) {
    const Shape input = {2, 5, 4, 8};
    auto op = device().ops().MakeConv2DTranspose({.input = {.shape = input, .type = type()},
                                                  .filters = 16,
                                                  .kernel_height = 3,
                                                  .kernel_width = 3,
                                                  .stride_height = 2,
                                                  .stride_width = 2,
                                                  .padding = padding});
    ASSERT_TRUE(op.ok()) << op.status();
    const Windows windows = {3, 3, 2, 2, padding == Padding::kSame};
    const Tensor x = Values(input, 1), kernel = Values({3, 3, 16, 8}, 2), bias = Values({16}, 3);
    const Tensor image((*op)->output().shape);
    Check(
        **op, x, type(), kernel, bias,
        [&] {
          Tensor y = reference::Conv2DBackward(image, windows, kernel, x).dx;
          for (size_t i = 0; i < y.values.size(); ++i) y.values[i] += bias.values[i % 16];
          return y;
        },
        [&](const Tensor&, const Tensor& dy) {
          reference::Gradients gradients = reference::Conv2DBackward(dy, windows, kernel, x);
          gradients.dx = reference::Conv2D(dy, windows, kernel, {});
          gradients.dbias.assign(16, 0);
          for (size_t i = 0; i < dy.values.size(); ++i) gradients.dbias[i % 16] += dy.values[i];
          return gradients;
        });
    if (HasFatalFailure()) return;
  }
}

TEST_P(ProductConformance, DenseLayers) {
  for (const auto& [rows, inputs, units] :
       {std::array{64, 576, 64}, {64, 64, 10}, {3, 5, 7}, {130, 33, 96}}) {
    for (bool relu : {false, true}) {
      SCOPED_TRACE(absl::StrCat(rows, "x", inputs, "x", units));
      const Tensor x = Values({rows, inputs}, 1), kernel = Values({inputs, units}, 2),
                   bias = Values({units}, 3);
      auto op = device().ops().MakeDense(
          {.input = {.shape = x.shape, .type = type()}, .units = units, .relu = relu});
      ASSERT_TRUE(op.ok()) << op.status();
      Check(
          **op, x, type(), kernel, bias,
          [&] {
            Tensor y = reference::Dense(x, kernel, bias.values);
            if (relu) reference::Relu(y);
            return y;
          },
          [&](const Tensor& y, Tensor dy) {
            if (relu) reference::ReluBackward(y, dy);
            return reference::DenseBackward(x, kernel, dy);
          });
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, ProductConformance, testing::ValuesIn(ProductBackends()), BackendName);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ProductConformance);

class RoundingConformance : public ConformanceTest {};

// A product of float32 operands equals that of the operands rounded to the type of products.
TEST_P(RoundingConformance, OperandsAreRounded) {
  const Tensor x = RandomTensor({64, 96}, 1), kernel = RandomTensor({96, 32}, 2);
  auto op = device().ops().MakeDense({.input = {.shape = x.shape}, .units = 32, .use_bias = false});
  ASSERT_TRUE(op.ok()) << op.status();
  const auto x_memory = Put(x), kernel_memory = Put(kernel), y = Poisoned((*op)->output().num_floats());
  ASSERT_TRUE((*op)->Forward(x_memory->data(), kernel_memory->data(), nullptr, y->data()).ok());
  const ElementType operands = GetParam()->operands();
  const Tensor expected = reference::Dense(Rounded(x, operands), Rounded(kernel, operands), {});
  ExpectClose(Get(*y, (*op)->output()), expected.values, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(, RoundingConformance, testing::ValuesIn(RoundingBackends()), BackendName);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RoundingConformance);

}  // namespace
}  // namespace cairn::conformance
