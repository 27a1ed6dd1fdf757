// Convolutions with fused relu and pooling. The first layer of a network needs no gradient of its input, and
// may use another implementation.
#include "kernels/cpu/device.h"
#include "tests/conformance/backends.h"

namespace cairn::conformance {
namespace {

using kernels::ElementType;
using kernels::Layout;
using kernels::Padding;
using kernels::TensorDesc;
using reference::Tensor;
using reference::Windows;

struct Case {
  Shape input;
  int64_t filters, kernel, pool;
  Padding padding;
  bool first = false, bias = true;

  kernels::Conv2DParams Params(const TensorDesc& desc) const {
    return {.input = desc,
            .filters = filters,
            .kernel_height = kernel,
            .kernel_width = kernel,
            .padding = padding,
            .use_bias = bias,
            .relu = true,
            .needs_input_gradient = !first,
            .pool_height = pool,
            .pool_width = pool};
  }
};

class PooledConv2DConformance : public ConformanceTest {
 protected:
  void Check(const Case& c, Layout layout);
};

void PooledConv2DConformance::Check(const Case& c, Layout layout) {
  const TensorDesc x_desc = {
      .shape = c.input, .layout = layout, .type = c.first ? ElementType::kFloat32 : type()};
  SCOPED_TRACE(testing::Message() << x_desc.ToString() << " -> " << c.filters << ", kernel " << c.kernel
                                  << ", pool " << c.pool << (c.first ? ", first" : ""));
  auto op = device().ops().MakeConv2D(c.Params(x_desc));
  if (c.pool != 2 && absl::IsUnimplemented(op.status())) return;  // then the two are made apart
  ASSERT_TRUE(op.ok()) << op.status();
  const Windows windows = {c.kernel, c.kernel, 1, 1, c.padding == Padding::kSame};
  const Windows pool = {c.pool, c.pool, c.pool, c.pool, false};
  // Numbers whose products are exact in every precision, so that rounding does not decide which place is the
  // largest.
  const ElementType few_digits =
      type() == ElementType::kFloat16 ? ElementType::kFloat16 : ElementType::kBFloat16;
  const Tensor x = Rounded(RandomTensor(c.input, 1), few_digits),
               kernel = Rounded(RandomTensor({c.kernel, c.kernel, c.input[3], c.filters}, 2), few_digits),
               bias = Rounded(RandomTensor({c.filters}, 3), few_digits);
  Tensor unpooled = reference::Conv2D(x, windows, kernel, c.bias ? bias.values : std::vector<double>());
  reference::Relu(unpooled);
  if (!c.first) unpooled = Rounded(std::move(unpooled), type());  // before its places are compared
  const auto pooled = reference::MaxPool2D(unpooled, pool);

  const TensorDesc y_desc = (*op)->output();
  ASSERT_EQ(y_desc.shape, pooled.y.shape);
  const auto x_memory = c.first ? Put(x, layout) : PutActivation(x, layout);
  const auto kernel_memory = Put(kernel), bias_memory = Put(bias), y = Poisoned(y_desc.num_floats());
  ASSERT_TRUE((*op)
                  ->Forward(x_memory->data(), kernel_memory->data(), c.bias ? bias_memory->data() : nullptr,
                            y->data())
                  .ok());
  ExpectClose(GetActivation(*y, y_desc), pooled.y.values, GetParam()->tolerance());

  const Tensor dy = Rounded(RandomTensor(pooled.y.shape, 9), type());
  const auto dy_memory = PutActivation(dy, y_desc.layout);
  const auto dx = Poisoned(x_desc.num_floats()), dkernel = Poisoned(kernel.shape.num_elements()),
             dbias = Poisoned(c.filters);
  ASSERT_TRUE((*op)
                  ->Backward(x_memory->data(), kernel_memory->data(), y->data(), dy_memory->data(),
                             c.first ? nullptr : dx->data(), dkernel->data(),
                             c.bias ? dbias->data() : nullptr)
                  .ok());
  Tensor masked = dy;
  reference::ReluBackward(pooled.y, masked);
  const auto gradients =
      reference::Conv2DBackward(x, windows, kernel, reference::MaxPool2DBackward(unpooled, pooled, masked));
  if (!c.first) ExpectClose(GetActivation(*dx, x_desc), gradients.dx.values, GetParam()->tolerance());
  ExpectClose(Get(*dkernel, {kernel.shape}), gradients.dkernel.values, GetParam()->tolerance());
  if (c.bias) ExpectClose(Get(*dbias, {bias.shape}), gradients.dbias, GetParam()->tolerance());
}

TEST_P(PooledConv2DConformance, ShapesOfTheSeedNetwork) {
  for (Layout layout : layouts()) {
    Check({{5, 28, 28, 1}, 32, 3, 2, Padding::kValid, true}, layout);
    Check({{4, 13, 13, 32}, 64, 3, 2, Padding::kValid}, layout);
  }
}

TEST_P(PooledConv2DConformance, ChannelsFiltersAndKernelsThatFillNoRegister) {
  for (Layout layout : layouts()) {
    for (const Case& c :
         {Case{{2, 9, 8, 1}, 33, 5, 2, Padding::kSame, true},
          Case{{2, 11, 10, 3}, 40, 3, 2, Padding::kSame, true}, Case{{2, 6, 9, 2}, 16, 2, 2, Padding::kSame},
          Case{{3, 7, 12, 21}, 17, 4, 2, Padding::kValid},
          Case{{2, 5, 5, 40}, 9, 1, 2, Padding::kValid, true},
          Case{{2, 8, 8, 6}, 24, 5, 2, Padding::kValid, true, false},
          Case{{2, 4, 5, 70}, 8, 3, 2, Padding::kSame, false, false}}) {
      Check(c, layout);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(PooledConv2DConformance, WindowsOfOtherSizes) {
  Check({{2, 8, 9, 5}, 7, 3, 3, Padding::kValid}, Layout::kRowMajor);
}

TEST_P(PooledConv2DConformance, MoreImagesThanAreComputedSideBySide) {
  Check({{37, 6, 6, 5}, 12, 3, 2, Padding::kSame}, layouts().back());
  Check({{37, 6, 6, 1}, 12, 3, 2, Padding::kSame, true}, layouts().back());
}

INSTANTIATE_CONFORMANCE_OF_ALL_TYPES(PooledConv2DConformance);

TEST(PooledConv2DOnCpu, ResultsAreTheSameBitsOnAnyNumberOfThreads) {
  const Tensor x = RandomTensor({19, 9, 9, 6}, 1), kernel = RandomTensor({3, 3, 6, 20}, 2);
  const std::vector<float> xs(x.values.begin(), x.values.end()),
      weights(kernel.values.begin(), kernel.values.end());
  std::vector<float> of_one_thread;
  for (int threads : {1, 2, 3}) {
    const auto device = kernels::CreateCpuDevice(0, threads).value();
    const auto op =
        device->ops().MakeConv2D(Case{x.shape, 20, 3, 2, Padding::kSame}.Params({.shape = x.shape})).value();
    const auto y_floats = static_cast<size_t>(op->output().num_floats());
    // y, dx, dkernel, dbias
    std::vector<float> results(y_floats + xs.size() + weights.size() + 20);
    float* const y = results.data();
    float* const dx = y + y_floats;
    float* const dkernel = dx + xs.size();
    ASSERT_TRUE(op->Forward(xs.data(), weights.data(), nullptr, y).ok());
    std::vector<float> dy(y_floats, 0.3f);
    ASSERT_TRUE(
        op->Backward(xs.data(), weights.data(), y, dy.data(), dx, dkernel, dkernel + weights.size()).ok());
    if (threads == 1) of_one_thread = results;
    EXPECT_EQ(results, of_one_thread) << threads << " threads";
  }
}

}  // namespace
}  // namespace cairn::conformance
