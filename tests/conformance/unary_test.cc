// Ops of one input without weights, and merges of several: forward against definitions, backward against
// central differences.
#include "tests/conformance/unary.h"

#include <limits>

#include "absl/algorithm/container.h"
#include "tests/conformance/backends.h"
#include "tests/conformance/numerical.h"

namespace cairn::conformance {
namespace {

using kernels::Activation;
using kernels::ActivationParams;
using kernels::Layout;
using kernels::TensorDesc;
using reference::Tensor;

class UnaryConformance : public UnaryOpTest {};

struct Function {
  const char* name;
  ActivationParams params;
  double (*definition)(double x);
};

const Function kFunctions[] = {
    {"linear", {}, [](double x) { return x; }},
    {"relu", {.kind = Activation::kRelu}, [](double x) { return std::max(x, 0.0); }},
    {"relu6", {.kind = Activation::kRelu, .limit = 6}, [](double x) { return std::clamp(x, 0.0, 6.0); }},
    {"leaky", {.kind = Activation::kRelu, .slope = 0.25f}, [](double x) { return x > 0 ? x : 0.25 * x; }},
    {"threshold",
     {.kind = Activation::kRelu, .slope = 0.25f, .limit = 4, .threshold = 1},
     [](double x) { return x < 1 ? 0.25 * (x - 1) : std::min(x, 4.0); }},
    {"elu",
     {.kind = Activation::kElu, .slope = 0.5f},
     [](double x) { return x > 0 ? x : 0.5 * (std::exp(x) - 1); }},
    {"selu",
     {.kind = Activation::kSelu},
     [](double x) { return 1.05070098 * (x > 0 ? x : 1.67326324 * (std::exp(x) - 1)); }},
    {"sigmoid", {.kind = Activation::kSigmoid}, [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"tanh", {.kind = Activation::kTanh}, [](double x) { return std::tanh(x); }},
    {"softplus", {.kind = Activation::kSoftplus}, [](double x) { return std::log(1 + std::exp(x)); }},
    {"silu", {.kind = Activation::kSilu}, [](double x) { return x / (1 + std::exp(-x)); }},
    {"gelu", {.kind = Activation::kGelu}, [](double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0)); }},
    {"gelu_tanh",
     {.kind = Activation::kGeluTanh},
     [](double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }},
    {"hard_sigmoid",
     {.kind = Activation::kHardSigmoid},
     [](double x) { return std::clamp(x / 6 + 0.5, 0.0, 1.0); }},
    {"hard_silu",
     {.kind = Activation::kHardSilu},
     [](double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); }},
};

TEST_P(UnaryConformance, Activations) {
  for (const Function& f : kFunctions) {
    for (const Shape& shape : {Shape{1}, Shape{7, 13}, Shape{2, 3, 5, 16}, Shape{2, 3, 2, 5}}) {
      for (Layout layout : layouts()) {
        if (shape.rank() != 4 && layout != Layout::kRowMajor) continue;
        const TensorDesc desc = ActivationDesc(shape, layout);
        if (layout != Layout::kRowMajor && desc.num_floats() != shape.num_elements() &&
            !f.params.keeps_zero())
          continue;
        SCOPED_TRACE(testing::Message() << f.name << " " << desc.ToString());
        Tensor x = RandomTensor(shape, 7);
        for (double& value : x.values) value *= 8;
        x = Rounded(x, type());
        for (double& value : x.values) {
          if (value == std::floor(value)) value += 0.5;  // where some functions have an edge
        }
        Check(device().ops().MakeActivation(desc, f.params), x, layout, [&](const Tensor& a) {
          Tensor y(a.shape);
          for (size_t i = 0; i < y.values.size(); ++i) y.values[i] = f.definition(a.values[i]);
          return y;
        });
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Functions that have a value for each positive number.
const Function kPositiveFunctions[] = {
    {"exp", {.kind = Activation::kExp}, [](double x) { return std::exp(x); }},
    {"log", {.kind = Activation::kLog}, [](double x) { return std::log(x); }},
    {"log1p", {.kind = Activation::kLog1p}, [](double x) { return std::log1p(x); }},
    {"sqrt", {.kind = Activation::kSqrt}, [](double x) { return std::sqrt(x); }},
    {"rsqrt", {.kind = Activation::kRsqrt}, [](double x) { return 1 / std::sqrt(x); }},
    {"reciprocal", {.kind = Activation::kReciprocal}, [](double x) { return 1 / x; }},
    {"sin", {.kind = Activation::kSin}, [](double x) { return std::sin(x); }},
    {"cos", {.kind = Activation::kCos}, [](double x) { return std::cos(x); }},
};

TEST_P(UnaryConformance, FunctionsOfPositiveNumbers) {
  for (const Function& f : kPositiveFunctions) {
    for (const Shape& shape : {Shape{1}, Shape{7, 13}, Shape{2, 3, 5, 16}}) {
      SCOPED_TRACE(testing::Message() << f.name << " " << shape.ToString());
      Tensor x = RandomTensor(shape, 7);
      for (double& value : x.values) value = 0.5 + 2 * std::fabs(value);
      Check(device().ops().MakeActivation(ActivationDesc(shape), f.params), x, Layout::kRowMajor,
            [&](const Tensor& a) {
              Tensor y(a.shape);
              for (size_t i = 0; i < y.values.size(); ++i) y.values[i] = f.definition(a.values[i]);
              return y;
            });
      if (HasFatalFailure()) return;
    }
  }
}

// Padding channels of blocked images are 0, and so must their gradients be: the derivative of a root at 0 is infinite.
TEST(ActivationParams, FunctionsWithoutAFiniteDerivativeAtZeroDoNotKeepIt) {
  for (const Activation kind : {Activation::kExp, Activation::kLog, Activation::kSqrt, Activation::kRsqrt,
                                Activation::kReciprocal, Activation::kCos})
    EXPECT_FALSE(ActivationParams{.kind = kind}.keeps_zero()) << static_cast<int>(kind);
  for (const Activation kind : {Activation::kLog1p, Activation::kSin})
    EXPECT_TRUE(ActivationParams{.kind = kind}.keeps_zero()) << static_cast<int>(kind);
}

TEST_P(UnaryConformance, ActivationsOfLargeNumbersStayFinite) {
  Tensor x({4});
  x.values = {-1e4, -100, 100, 1e4};
  for (const Function& f : kFunctions) {
    const TensorDesc desc = ActivationDesc(x.shape);
    auto op = device().ops().MakeActivation(desc, f.params).value();
    Tensor ones(x.shape);
    for (double& one : ones.values) one = 1;
    const auto x_memory = PutActivation(Rounded(x, type())), dy = PutActivation(ones), y = Poisoned(4),
               dx = Poisoned(4);
    ASSERT_TRUE(op->Forward(x_memory->data(), y->data()).ok());
    ASSERT_TRUE(op->Backward(x_memory->data(), y->data(), dy->data(), dx->data()).ok());
    for (float value : GetActivation(*y, desc)) EXPECT_TRUE(std::isfinite(value)) << f.name;
    for (float value : GetActivation(*dx, desc)) EXPECT_TRUE(std::isfinite(value)) << f.name;
  }
}

TEST_P(UnaryConformance, AveragePooling) {
  for (bool same : {false, true}) {
    for (const auto& [size, stride] : {std::pair{2, 2}, {3, 1}, {3, 2}, {2, 3}}) {
      for (int64_t channels : {1, 3, 16, 21}) {
        for (Layout layout : layouts()) {
          SCOPED_TRACE(testing::Message()
                       << channels << " channels, window " << size << ", stride " << stride
                       << (same ? " same" : " valid") << ", layout " << static_cast<int>(layout));
          const reference::Windows windows = {size, size, stride, stride, same};
          const Tensor x = RandomTensor({1, 5, 6, channels}, 1);
          Check(device().ops().MakePool2D(
                    {.pooling = kernels::Pooling::kAverage,
                     .input = ActivationDesc(x.shape, layout),
                     .pool_height = size,
                     .pool_width = size,
                     .stride_height = stride,
                     .stride_width = stride,
                     .padding = same ? kernels::Padding::kSame : kernels::Padding::kValid}),
                x, layout, [&](const Tensor& a) {
                  Tensor sum(windows.OutputShape(a.shape, channels)), count(sum.shape);
                  windows.ForEach(a.shape, [&](auto n, auto oh, auto ow, auto h, auto w, auto, auto) {
                    for (int64_t c = 0; c < channels; ++c) {
                      sum.at(sum.index(n, oh, ow, c)) += a.at(a.index(n, h, w, c));
                      count.at(sum.index(n, oh, ow, c)) += 1;
                    }
                  });
                  for (size_t i = 0; i < sum.values.size(); ++i) sum.values[i] /= count.values[i];
                  return sum;
                });
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(UnaryConformance, GlobalPooling) {
  for (kernels::Pooling pooling : {kernels::Pooling::kAverage, kernels::Pooling::kMax}) {
    for (int64_t channels : {1, 5, 16, 33}) {
      for (Layout layout : layouts()) {
        Tensor x({2, 3, 4, channels});  // no two pixels of a channel are equal, in 16 bits neither
        for (int64_t i = 0; i < x.shape.num_elements(); ++i) {
          x.at(i) = static_cast<double>(i * 37 % 251 - 125) / 128;
        }
        Check(device().ops().MakeGlobalPool(pooling, ActivationDesc(x.shape, layout)), x, layout,
              [&](const Tensor& a) {
                Tensor y({2, channels});
                for (int64_t n = 0; n < 2; ++n)
                  for (int64_t c = 0; c < channels; ++c) {
                    double sum = 0, largest = -std::numeric_limits<double>::infinity();
                    for (int64_t h = 0; h < 3; ++h)
                      for (int64_t w = 0; w < 4; ++w) {
                        sum += a.at(a.index(n, h, w, c));
                        largest = std::max(largest, a.at(a.index(n, h, w, c)));
                      }
                    y.at(n * channels + c) = pooling == kernels::Pooling::kMax ? largest : sum / 12;
                  }
                return y;
              });
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(UnaryConformance, ZeroPadding) {
  for (int64_t channels : {1, 5, 16}) {
    for (Layout layout : layouts()) {
      const Tensor x = RandomTensor({2, 3, 4, channels}, 1);
      Check(device().ops().MakeZeroPad2D(
                {.input = ActivationDesc(x.shape, layout), .top = 1, .bottom = 0, .left = 2, .right = 3}),
            x, layout, [&](const Tensor& a) {
              Tensor y({2, 4, 9, channels});
              for (int64_t n = 0; n < 2; ++n)
                for (int64_t h = 0; h < 3; ++h)
                  for (int64_t w = 0; w < 4; ++w)
                    for (int64_t c = 0; c < channels; ++c) {
                      y.at(y.index(n, h + 1, w + 2, c)) = a.at(a.index(n, h, w, c));
                    }
              return y;
            });
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(UnaryConformance, AffineWithOneValueOrOnePerColumn) {
  const Tensor x = RandomTensor({3, 2, 4}, 1);
  for (const bool single : {true, false}) {
    const std::vector<float> scale = single ? std::vector<float>{0.5f} : std::vector<float>{1, 2, -3, 0.25f};
    const std::vector<float> offset = single ? std::vector<float>{-1} : std::vector<float>{0, 1, 2, 3};
    Check(device().ops().MakeAffine({.input = ActivationDesc(x.shape), .scale = scale, .offset = offset}), x,
          Layout::kRowMajor, [&](const Tensor& a) {
            Tensor y(a.shape);
            for (size_t i = 0; i < y.values.size(); ++i) {
              y.values[i] =
                  a.values[i] * double{scale[single ? 0 : i % 4]} + double{offset[single ? 0 : i % 4]};
            }
            return y;
          });
  }
}

INSTANTIATE_CONFORMANCE_OF_ALL_TYPES(UnaryConformance);

class MergeConformance : public ConformanceTest {
 protected:
  void Check(absl::StatusOr<std::unique_ptr<kernels::NaryOp>> made, std::vector<Tensor> xs, Layout layout,
             const std::function<Tensor(const std::vector<Tensor>&)>& forward) {
    ASSERT_TRUE(made.ok()) << made.status();
    kernels::NaryOp& op = **made;
    std::vector<std::unique_ptr<kernels::DeviceMemory>> memories, gradients;
    std::vector<const float*> x_pointers;
    std::vector<float*> dx_pointers;
    for (Tensor& x : xs) {
      x = Rounded(x, type());
      memories.push_back(PutActivation(x, layout));
      gradients.push_back(Poisoned(ActivationDesc(x.shape, layout).num_floats()));
      x_pointers.push_back(memories.back()->data());
      dx_pointers.push_back(gradients.back()->data());
    }
    const auto y_memory = Poisoned(op.output().num_floats());
    ASSERT_TRUE(op.Forward(x_pointers, y_memory->data()).ok());
    const Tensor y = forward(xs);
    ASSERT_EQ(op.output().shape, y.shape);
    ExpectActivation(GetActivation(*y_memory, op.output()), y.values, 4);

    const Tensor dy = Rounded(RandomTensor(y.shape, 4), type());
    const auto dy_memory = PutActivation(dy, op.output().layout);
    ASSERT_TRUE(op.Backward(x_pointers, dy_memory->data(), absl::MakeConstSpan(dx_pointers)).ok());
    for (size_t k = 0; k < xs.size(); ++k) {
      ExpectActivationGradient(GetActivation(*gradients[k], ActivationDesc(xs[k].shape, layout)),
                               xs[k].values, [&] { return Dot(forward(xs).values, dy.values); });
    }
    // A gradient that is not needed is not written.
    dx_pointers[0] = nullptr;
    ASSERT_TRUE(op.Backward(x_pointers, dy_memory->data(), absl::MakeConstSpan(dx_pointers)).ok());
  }
};

TEST_P(MergeConformance, SumsAndProducts) {
  for (const bool add : {true, false}) {
    for (int inputs : {2, 3, 17}) {
      for (Layout layout : layouts()) {
        std::vector<Tensor> xs;
        for (int k = 0; k < inputs; ++k)
          xs.push_back(RandomTensor({2, 3, 2, 5}, static_cast<uint64_t>(10 + k)));
        const TensorDesc desc = ActivationDesc(xs[0].shape, layout);
        Check(add ? device().ops().MakeAdd(desc, inputs) : device().ops().MakeMultiply(desc, inputs), xs,
              layout, [&](const std::vector<Tensor>& all) {
                Tensor y = all[0];
                for (size_t k = 1; k < all.size(); ++k) {
                  for (size_t i = 0; i < y.values.size(); ++i) {
                    y.values[i] = add ? y.values[i] + all[k].values[i] : y.values[i] * all[k].values[i];
                  }
                }
                return y;
              });
        if (HasFatalFailure()) return;
      }
    }
  }
}

double MergedBy(kernels::MergeKind kind, const std::vector<double>& xs) {
  double y = xs[0];
  for (size_t k = 1; k < xs.size(); ++k) {
    switch (kind) {
      case kernels::MergeKind::kAdd:
      case kernels::MergeKind::kAverage:
        y += xs[k];
        break;
      case kernels::MergeKind::kSubtract:
        y -= xs[k];
        break;
      case kernels::MergeKind::kMultiply:
        y *= xs[k];
        break;
      case kernels::MergeKind::kMaximum:
        y = std::max(y, xs[k]);
        break;
      case kernels::MergeKind::kMinimum:
        y = std::min(y, xs[k]);
        break;
      case kernels::MergeKind::kSelect:  // comparison_test.cc
        break;
    }
  }
  return kind == kernels::MergeKind::kAverage ? y / static_cast<double>(xs.size()) : y;
}

// NumPy's broadcasting, element by element. `output` of at most four axes.
Tensor Broadcasted(kernels::MergeKind kind, const std::vector<Tensor>& xs, const Shape& output) {
  Tensor y(output);
  for (int64_t i = 0; i < output.num_elements(); ++i) {
    int64_t place[4], rest = i;
    for (int axis = output.rank() - 1; axis >= 0; --axis) {
      place[axis] = rest % output[axis];
      rest /= output[axis];
    }
    std::vector<double> values;
    for (const Tensor& x : xs) {
      int64_t at = 0;
      for (int axis = 0; axis < output.rank(); ++axis)
        at = at * x.shape[axis] + (x.shape[axis] == 1 ? 0 : place[axis]);
      values.push_back(x.at(at));
    }
    y.at(i) = MergedBy(kind, values);
  }
  return y;
}

constexpr kernels::MergeKind kMergeKinds[] = {kernels::MergeKind::kAdd,      kernels::MergeKind::kSubtract,
                                              kernels::MergeKind::kMultiply, kernels::MergeKind::kAverage,
                                              kernels::MergeKind::kMaximum,  kernels::MergeKind::kMinimum};

TEST_P(MergeConformance, InputsOfDifferentExtentsAreBroadcast) {
  struct Case {
    std::vector<Shape> shapes;
    Shape output;
  };
  const Case cases[] = {
      {{{2, 3, 4, 5}, {2, 1, 1, 5}}, {2, 3, 4, 5}},  // squeeze and excitation
      {{{2, 1, 1, 5}, {2, 3, 4, 5}}, {2, 3, 4, 5}},
      {{{2, 3, 4, 5}, {2, 3, 4, 1}}, {2, 3, 4, 5}},  // attention over places
      {{{2, 3, 1, 5}, {2, 1, 4, 1}}, {2, 3, 4, 5}},  // both are repeated
      {{{3, 4}, {3, 4}}, {3, 4}},
      {{{1, 1}, {1, 7}}, {1, 7}},
      {{{1, 1}, {1, 1}}, {1, 1}},
      {{{2, 5}, {2, 1}, {2, 5}}, {2, 5}},
      {{{3, 40}, {3, 1}}, {3, 40}},  // stochastic depth
      {{{4, 33}, {1, 33}}, {4, 33}},
      {{{2, 3, 5, 20}, {2, 1, 1, 20}}, {2, 3, 5, 20}},
      {{{2, 1, 1, 16}, {2, 3, 2, 16}}, {2, 3, 2, 16}},
      {{{2, 3, 1, 9}, {1, 3, 4, 9}, {2, 1, 4, 9}}, {2, 3, 4, 9}},
  };
  struct Run {
    kernels::MergeKind kind;
    const Case* inputs;
    Layout layout;
  };
  std::vector<Run> runs;
  for (const kernels::MergeKind kind : kMergeKinds) {
    for (const Case& each : cases) {
      if (kind == kernels::MergeKind::kSubtract && each.shapes.size() > 2) continue;
      const bool images = each.output.rank() == 4 && absl::c_all_of(each.shapes, [&](const Shape& shape) {
                            return shape[3] == each.output[3];
                          });
      for (const Layout layout : layouts()) {
        if (images || layout == Layout::kRowMajor) runs.push_back({kind, &each, layout});
      }
    }
  }
  for (const Run& run : runs) {
    const Case& each = *run.inputs;
    SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(run.kind) << ", layout "
                                    << static_cast<int>(run.layout) << ", " << each.shapes[0].ToString()
                                    << " and " << each.shapes[1].ToString());
    std::vector<Tensor> xs;
    kernels::MergeParams params = {.kind = run.kind, .inputs = {}};
    for (const Shape& shape : each.shapes) {
      // In steps of 1/8, each input with its own offset: no two inputs are equal, even in 16 bits, because
      // the maximum of equal inputs has no derivative.
      const double offset = static_cast<double>(xs.size() + 1) / 32;
      xs.push_back(RandomTensor(shape, 20 + xs.size()));
      for (double& value : xs.back().values) value = std::floor(value * 8) / 8 + offset;
      params.inputs.push_back(ActivationDesc(shape, run.layout));
    }
    Check(device().ops().MakeBroadcastMerge(params), xs, run.layout,
          [&](const std::vector<Tensor>& all) { return Broadcasted(run.kind, all, each.output); });
    if (HasFatalFailure()) return;
  }
}

TEST_P(MergeConformance, NaNsPassAndTheFirstOfEqualInputsGetsTheGradient) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const kernels::MergeKind kind : kMergeKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    const TensorDesc desc = ActivationDesc({1, 3});
    Tensor a({1, 3}), b({1, 3}), ones({1, 3});
    a.values = {nan, 1, 2};
    b.values = {1, nan, 2};
    ones.values = {1, 1, 1};
    const auto op = device().ops().MakeBroadcastMerge({.kind = kind, .inputs = {desc, desc}}).value();
    const auto a_memory = PutActivation(a), b_memory = PutActivation(b), dy = PutActivation(ones),
               y = Poisoned(desc.num_floats()), da = Poisoned(desc.num_floats());
    ASSERT_TRUE(op->Forward({a_memory->data(), b_memory->data()}, y->data()).ok());
    const std::vector<float> merged = GetActivation(*y, desc);
    EXPECT_TRUE(std::isnan(merged[0]));
    EXPECT_TRUE(std::isnan(merged[1]));
    EXPECT_TRUE(std::isfinite(merged[2]));
    if (kind != kernels::MergeKind::kMaximum && kind != kernels::MergeKind::kMinimum) continue;
    ASSERT_TRUE(op->Backward({a_memory->data(), b_memory->data()}, dy->data(), {da->data(), nullptr}).ok());
    EXPECT_EQ(GetActivation(*da, desc)[2], 1);
  }
}

// Keras' leaky relu is TensorFlow's, whose derivative at 0 is the slope. With a limit or a threshold it is 0.
TEST_P(UnaryConformance, ALeakyReluHasItsSlopeAtZero) {
  struct Case {
    kernels::ActivationParams f;
    double derivative;
  };
  for (const Case& c : {Case{{.kind = kernels::Activation::kRelu, .slope = 0.25f}, 0.25},
                        Case{{.kind = kernels::Activation::kRelu}, 0},
                        Case{{.kind = kernels::Activation::kRelu, .slope = 0.25f, .limit = 6}, 0},
                        Case{{.kind = kernels::Activation::kRelu, .slope = 0.25f, .threshold = 1}, 0}}) {
    Tensor x({1, 9}), ones({1, 9});
    for (double& value : x.values) value = double{c.f.threshold};
    for (double& value : ones.values) value = 1;
    const TensorDesc desc = ActivationDesc(x.shape);
    const auto op = device().ops().MakeActivation(desc, c.f).value();
    const auto x_memory = PutActivation(x), dy = PutActivation(ones), y = Poisoned(desc.num_floats()),
               dx = Poisoned(desc.num_floats());
    ASSERT_TRUE(op->Forward(x_memory->data(), y->data()).ok());
    ASSERT_TRUE(op->Backward(x_memory->data(), y->data(), dy->data(), dx->data()).ok());
    for (const float value : GetActivation(*dx, desc)) EXPECT_EQ(value, c.derivative);
  }
}

TEST_P(MergeConformance, ShapesThatDoNotBroadcastAreRefused) {
  const auto refusal = [&](const Shape& a, const Shape& b) {
    return std::string(device()
                           .ops()
                           .MakeBroadcastMerge({.inputs = {ActivationDesc(a), ActivationDesc(b)}})
                           .status()
                           .message());
  };
  EXPECT_EQ(refusal({2, 3}, {2, 4}), "inputs [2,3] and [2,4] do not broadcast to one shape");
  EXPECT_EQ(refusal({2, 3}, {2, 3, 1}), "inputs [2,3] and [2,3,1] do not broadcast to one shape");
}

TEST_P(MergeConformance, StandardizationDividesByTheDeviation) {
  for (const bool invert : {false, true}) {
    const Tensor x = RandomTensor({4, 2, 3}, 3), mean = RandomTensor({3}, 5);
    Tensor variance({3});
    variance.values = {4, 0.25, 0};  // without a deviation epsilon is divided by
    const kernels::StandardizeParams params = {
        .input = ActivationDesc(x.shape), .width = 3, .epsilon = 0.5f, .invert = invert};
    const auto op = device().ops().MakeStandardize(params).value();
    const Tensor rounded = Rounded(x, type()), dy = Rounded(RandomTensor(x.shape, 6), type());
    const auto x_memory = PutActivation(rounded), dy_memory = PutActivation(dy), mean_memory = Put(mean),
               variance_memory = Put(variance), y = Poisoned(params.input.num_floats()),
               dx = Poisoned(params.input.num_floats());
    ASSERT_TRUE(op->Forward(x_memory->data(), mean_memory->data(), variance_memory->data(), y->data()).ok());
    ASSERT_TRUE(op->Backward(variance_memory->data(), dy_memory->data(), dx->data()).ok());
    std::vector<double> expected, slope;
    for (int64_t i = 0; i < x.shape.num_elements(); ++i) {
      const double deviation = std::max(std::sqrt(variance.at(i % 3)), 0.5), at = rounded.at(i);
      expected.push_back(invert ? at * deviation + mean.at(i % 3) : (at - mean.at(i % 3)) / deviation);
      slope.push_back(dy.at(i) * (invert ? deviation : 1 / deviation));
    }
    ExpectActivation(GetActivation(*y, params.input), expected, 4);
    ExpectActivation(GetActivation(*dx, params.input), slope, 4);
  }
}

// Adjacent, like the gradients of variables.
TEST_P(MergeConformance, SumsOfUnalignedPartsWriteNothingElse) {
  constexpr int64_t kCount = 13, kAll = 20;
  const Tensor x = RandomTensor({kAll}, 1), y = RandomTensor({kAll}, 2);
  auto op = device().ops().MakeAdd({{kCount}}, 2).value();
  for (const int64_t begin : {0, 1, 2, 4}) {
    const auto x_memory = Put(x), y_memory = Put(y);
    float* const sum = x_memory->data() + begin;
    ASSERT_TRUE(op->Forward({sum, y_memory->data() + 4}, sum).ok());
    Tensor expected = x;
    for (int64_t i = 0; i < kCount; ++i) expected.at(begin + i) += y.at(4 + i);
    ExpectNear(Get(*x_memory, {x.shape}), expected.values, 2);
  }
}

TEST_P(MergeConformance, ConcatenationAlongEveryAxis) {
  for (int axis = 0; axis < 4; ++axis) {
    for (Layout layout : layouts()) {
      if (layout != Layout::kRowMajor && axis != 3) continue;
      std::vector<Tensor> xs;
      int64_t extent = 0;
      for (int64_t own : {16, 32, 5}) {
        Shape shape;
        for (int other = 0; other < 4; ++other) shape.Append(other == axis ? own : other + 2);
        xs.push_back(RandomTensor(shape, static_cast<uint64_t>(own)));
        extent += own;
      }
      std::vector<TensorDesc> descs;
      for (const Tensor& x : xs) descs.push_back(ActivationDesc(x.shape, layout));
      SCOPED_TRACE(testing::Message() << "axis " << axis << ", " << descs[0].ToString());
      Check(device().ops().MakeConcatenate(descs, axis), xs, layout, [&](const std::vector<Tensor>& all) {
        Shape shape;
        for (int other = 0; other < 4; ++other) shape.Append(other == axis ? extent : other + 2);
        Tensor y(shape);
        int64_t begin = 0;
        for (const Tensor& x : all) {
          for (int64_t i = 0; i < x.shape.num_elements(); ++i) {
            int64_t place[4], rest = i;
            for (int other = 3; other >= 0; --other) {
              place[other] = rest % x.shape[other];
              rest /= x.shape[other];
            }
            place[axis] += begin;
            y.at(y.index(place[0], place[1], place[2], place[3])) = x.at(i);
          }
          begin += x.shape[axis];
        }
        return y;
      });
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_CONFORMANCE_OF_ALL_TYPES(MergeConformance);

}  // namespace
}  // namespace cairn::conformance
