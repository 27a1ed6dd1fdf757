// Layers with weights: dense, convolutions of every kind with what is fused behind them, embeddings.
#include <algorithm>
#include <tuple>

#include "tests/conformance/non_finite.h"

namespace cairn::conformance {
namespace {

using kernels::Layout;
using kernels::Padding;
using kernels::TensorDesc;
using reference::Convolution;
using reference::Tensor;
using reference::Windows;

class NonFiniteLinear : public NonFiniteTest {
 protected:
  // A linear map. The test poisons its x, kernel, bias and dy, one after another.
  struct Linear {
    TensorDesc x;
    Shape kernel;
    int64_t filters = 0;
    bool relu = false;
    std::function<Tensor(const Tensor& x, const Tensor& kernel, const std::vector<double>& bias)> forward;
    int64_t filter_stride = 1;  // in the kernel, from an element of one filter to that of the next
  };
  void CheckLinear(absl::StatusOr<std::unique_ptr<kernels::LinearOp>> made, const Linear& c);
};

void NonFiniteLinear::CheckLinear(absl::StatusOr<std::unique_ptr<kernels::LinearOp>> made, const Linear& c) {
  ASSERT_TRUE(made.ok()) << made.status();
  kernels::LinearOp& op = **made;
  const TensorDesc y_desc = op.output();
  const Tensor x = Rounded(RandomTensor(c.x.shape, 2), type()),
               kernel = Rounded(RandomTensor(c.kernel, 3), type()),
               bias = Rounded(RandomTensor({c.filters}, 4), type());
  const auto check_forward = [&](const Tensor& a, const Tensor& k, const Tensor& b) {
    const auto a_memory = PutActivation(a, c.x.layout), k_memory = Put(k), b_memory = Put(b),
               y = Poisoned(y_desc.num_floats());
    ASSERT_TRUE(op.Forward(a_memory->data(), k_memory->data(), b_memory->data(), y->data()).ok());
    Tensor expected = c.forward(a, k, b.values);
    for (double& value : expected.values) value = c.relu ? Relu(value) : value;
    ExpectKinds(GetActivation(*y, y_desc), expected.values);
  };
  {
    SCOPED_TRACE("x");
    ForEachPoison(x.shape, [&](const Tensor& a) { check_forward(a, kernel, bias); });
  }
  if (HasFatalFailure()) return;
  {
    SCOPED_TRACE("kernel");
    ForEachPoison(kernel.shape, [&](const Tensor& k) { check_forward(x, k, bias); });
  }
  if (HasFatalFailure()) return;
  {
    SCOPED_TRACE("bias");
    ForEachPoison(bias.shape, [&](const Tensor& b) { check_forward(x, kernel, b); });
  }
  if (HasFatalFailure()) return;
  // A gradient passes where the output is above 0, and its sum for the bias shows which did.
  SCOPED_TRACE("dy");
  Tensor y = c.forward(x, kernel, bias.values);
  ASSERT_EQ(y.shape, y_desc.shape);
  ForEachPoison(y.shape, [&](const Tensor& dy) {
    const auto x_memory = PutActivation(x, c.x.layout), k_memory = Put(kernel), b_memory = Put(bias),
               y_memory = Poisoned(y_desc.num_floats());
    ASSERT_TRUE(op.Forward(x_memory->data(), k_memory->data(), b_memory->data(), y_memory->data()).ok());
    const auto dy_memory = PutActivation(dy, y_desc.layout), dx = Poisoned(c.x.num_floats()),
               dkernel = Poisoned(kernel.shape.num_elements()), dbias = Poisoned(c.filters);
    ASSERT_TRUE(op.Backward(x_memory->data(), k_memory->data(), y_memory->data(), dy_memory->data(),
                            dx->data(), dkernel->data(), dbias->data())
                    .ok());
    std::vector<double> expected(static_cast<size_t>(c.filters));
    for (size_t i = 0; i < dy.values.size(); ++i) {
      if (c.relu && !(y.values[i] > 0)) continue;
      expected[i % expected.size()] += dy.values[i];
    }
    ExpectKinds(Get(*dbias, {bias.shape}), expected);
    // A value that passed is also in the gradients of the filter's kernel and of the input.
    const auto not_finite = [](double value) { return !std::isfinite(value); };
    const std::vector<float> gradient = Get(*dkernel, {kernel.shape});
    std::vector<bool> found(expected.size());
    for (size_t i = 0; i < gradient.size(); ++i) {
      if (not_finite(gradient[i])) found[i / static_cast<size_t>(c.filter_stride) % found.size()] = true;
    }
    for (size_t f = 0; f < expected.size(); ++f) {
      ASSERT_EQ(found[f], not_finite(expected[f])) << "filter " << f;
    }
    if (c.x.layout != Layout::kRowMajor)
      return;  // in blocked layouts, padding channels of dx may be NaN then
    ASSERT_EQ(std::ranges::any_of(GetActivation(*dx, c.x), not_finite),
              std::ranges::any_of(expected, not_finite));
  });
}

TEST_P(NonFiniteLinear, PassesThroughDenseLayers) {
  for (const bool relu : {false, true}) {
    for (const auto& [batch, inputs, units] : {std::tuple{3, 20, 37}, {17, 5, 1}, {2, 33, 16}}) {
      const TensorDesc x = ActivationDesc({batch, inputs});
      SCOPED_TRACE(testing::Message() << x.ToString() << " -> " << units << (relu ? ", relu" : ""));
      CheckLinear(device().ops().MakeDense({.input = x, .units = units, .relu = relu}),
                  {x, {inputs, units}, units, relu, reference::Dense});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(NonFiniteLinear, PassesThroughConvolutions) {
  for (const bool relu : {false, true}) {
    for (const auto& [channels, filters, kernel] :
         {std::tuple{1, 16, 3}, {3, 5, 3}, {16, 32, 1}, {16, 21, 3}, {5, 8, 2}}) {
      for (const Layout layout : layouts()) {
        const TensorDesc x = ActivationDesc({2, 5, 6, channels}, layout);
        SCOPED_TRACE(testing::Message()
                     << x.ToString() << " -> " << filters << ", kernel " << kernel << (relu ? ", relu" : ""));
        const Windows windows = {kernel, kernel, 1, 1, false};
        CheckLinear(device().ops().MakeConv2D({.input = x,
                                               .filters = filters,
                                               .kernel_height = kernel,
                                               .kernel_width = kernel,
                                               .relu = relu}),
                    {x,
                     {kernel, kernel, channels, filters},
                     filters,
                     relu,
                     [&windows](const Tensor& a, const Tensor& k, const std::vector<double>& b) {
                       return reference::Conv2D(a, windows, k, b);
                     }});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(NonFiniteLinear, PassesThroughConvolutionsWithReluAndPooling) {
  for (const auto& [channels, filters, kernel] :
       {std::tuple{1, 32, 3}, {3, 5, 3}, {16, 16, 3}, {6, 20, 2}, {16, 9, 1}}) {
    for (const Layout layout : layouts()) {
      const TensorDesc x = ActivationDesc({2, 7, 8, channels}, layout);
      SCOPED_TRACE(testing::Message() << x.ToString() << " -> " << filters << ", kernel " << kernel);
      const Windows windows = {kernel, kernel, 1, 1, false};
      CheckLinear(device().ops().MakeConv2D({.input = x,
                                             .filters = filters,
                                             .kernel_height = kernel,
                                             .kernel_width = kernel,
                                             .relu = true,
                                             .pool_height = 2,
                                             .pool_width = 2}),
                  {x,
                   {kernel, kernel, channels, filters},
                   filters,
                   true,
                   [&windows](const Tensor& a, const Tensor& k, const std::vector<double>& b) {
                     const Tensor unpooled = reference::Conv2D(a, windows, k, b);
                     const Windows pool = {2, 2, 2, 2, false};
                     Tensor y(pool.OutputShape(unpooled.shape, k.shape[3]));
                     std::fill(y.values.begin(), y.values.end(), -kInfinity);
                     pool.ForEach(unpooled.shape, [&](auto n, auto oh, auto ow, auto h, auto w, auto, auto) {
                       for (int64_t f = 0; f < k.shape[3]; ++f) {
                         double& largest = y.at(y.index(n, oh, ow, f));
                         largest = Larger(unpooled.at(unpooled.index(n, h, w, f)), largest);
                       }
                     });
                     return y;
                   }});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(NonFiniteLinear, PassesThroughConvolutionsWithStridesDilationAndGroups) {
  // Without padding: 0 times NaN at a place outside the image is NaN in some algorithms.
  const Convolution cases[] = {{3, 5, 3, 2, 1, 1, false},    {3, 5, 3, 1, 2, 1, false},
                               {4, 8, 3, 1, 1, 4, false},    {4, 6, 3, 1, 1, 2, false},
                               {16, 16, 3, 1, 1, 16, false}, {16, 32, 3, 2, 1, 16, false},
                               {32, 16, 3, 2, 1, 1, false},  {5, 10, 2, 1, 2, 5, false}};
  for (const Convolution& c : cases) {
    for (const Layout layout : layouts()) {
      const TensorDesc x = ActivationDesc({2, 5, 6, c.channels}, layout);
      SCOPED_TRACE(testing::Message()
                   << x.ToString() << " -> " << c.filters << ", kernel " << c.size << ", stride " << c.stride
                   << ", dilation " << c.dilation << ", groups " << c.groups);
      CheckLinear(device().ops().MakeConv2D(ParamsOf(c, x)),
                  {x,
                   {c.size, c.size, c.channels / c.groups, c.filters},
                   c.filters,
                   false,
                   [&c](const Tensor& a, const Tensor& k, const std::vector<double>& b) {
                     return reference::GroupedConv2D(a, c, k, b);
                   }});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(NonFiniteLinear, PassesThroughTransposedConvolutions) {
  for (const auto& [channels, filters] : {std::pair{3, 2}, {16, 16}}) {
    for (const bool same : {false, true}) {
      for (const Layout layout : layouts()) {
        const TensorDesc x = ActivationDesc({1, 3, 4, channels}, layout);
        SCOPED_TRACE(testing::Message()
                     << x.ToString() << " -> " << filters << (same ? ", same" : ", valid"));
        const Shape output = {1, same ? 6 : 7, same ? 8 : 9, filters};
        CheckLinear(device().ops().MakeConv2DTranspose({.input = x,
                                                        .filters = filters,
                                                        .kernel_height = 3,
                                                        .kernel_width = 3,
                                                        .stride_height = 2,
                                                        .stride_width = 2,
                                                        .padding = same ? Padding::kSame : Padding::kValid}),
                    {x,
                     {3, 3, filters, channels},
                     filters,
                     false,
                     [&](const Tensor& a, const Tensor& k, const std::vector<double>& b) {
                       return reference::Conv2DTranspose(a, 2, same, output, k, b);
                     },
                     channels});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(NonFiniteLinear, PassesThroughEmbeddings) {
  constexpr int64_t kIndices = 9, kRows = 7, kWidth = 5;
  auto op = device().ops().MakeEmbedding({.indices = kIndices, .rows = kRows, .width = kWidth}).value();
  std::vector<double> indices;
  for (int64_t i = 0; i < kIndices; ++i) indices.push_back(static_cast<double>(i * i % kRows));
  const auto x = Put(indices), y = Poisoned(op->output().num_floats()), dtable = Poisoned(kRows * kWidth);
  ForEachPoison({kRows, kWidth}, [&](const Tensor& table) {
    const auto table_memory = Put(table);
    ASSERT_TRUE(op->Forward(x->data(), table_memory->data(), nullptr, y->data()).ok());
    std::vector<double> expected;
    for (const double index : indices) {
      for (int64_t j = 0; j < kWidth; ++j)
        expected.push_back(table.at(static_cast<int64_t>(index) * kWidth + j));
    }
    ExpectKinds(GetActivation(*y, op->output()), expected);
  });
  const Tensor table = Rounded(RandomTensor({kRows, kWidth}, 2), type());
  const auto table_memory = Put(table);
  ForEachPoison({kIndices, kWidth}, [&](const Tensor& dy) {
    const auto dy_memory = PutActivation(dy);
    ASSERT_TRUE(op->Forward(x->data(), table_memory->data(), nullptr, y->data()).ok());
    ASSERT_TRUE(op->Backward(x->data(), table_memory->data(), y->data(), dy_memory->data(), nullptr,
                             dtable->data(), nullptr)
                    .ok());
    std::vector<double> expected(kRows * kWidth);
    for (int64_t i = 0; i < kIndices; ++i) {
      const auto row = static_cast<size_t>(indices[static_cast<size_t>(i)]);
      for (int64_t j = 0; j < kWidth; ++j)
        expected[row * kWidth + static_cast<size_t>(j)] += dy.at(i * kWidth + j);
    }
    ExpectKinds(Get(*dtable, {table.shape}), expected);
  });
}

INSTANTIATE_CONFORMANCE_OF_ALL_TYPES(NonFiniteLinear);

}  // namespace
}  // namespace cairn::conformance
