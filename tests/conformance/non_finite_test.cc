// Activations, pooling, merges, copies, normalization, penalties and losses. Layers with weights:
// non_finite_linear_test.cc.
#include "tests/conformance/non_finite.h"

namespace cairn::conformance {
namespace {

using kernels::Activation;
using kernels::ActivationParams;
using kernels::Layout;
using kernels::LossKind;
using kernels::MergeKind;
using kernels::Padding;
using kernels::TensorDesc;
using reference::Tensor;
using reference::Windows;

class NonFinite : public NonFiniteTest {};

struct Function {
  const char* name;
  ActivationParams params;
  double (*value)(double x);
  double (*derivative)(double x);
};

double Sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
double Cdf(double x) {
  return std::erfc(-x / std::sqrt(2.0)) / 2;
}

const Function kFunctions[] = {
    {"linear", {}, [](double x) { return x; }, [](double) { return 1.0; }},
    {"relu", {.kind = Activation::kRelu}, Relu, [](double x) { return x > 0 ? 1.0 : 0.0; }},
    {"relu6",
     {.kind = Activation::kRelu, .limit = 6},
     [](double x) { return x > 6 ? 6 : Relu(x); },
     [](double x) { return x > 0 && x < 6 ? 1.0 : 0.0; }},
    {"leaky",
     {.kind = Activation::kRelu, .slope = 0.25f},
     [](double x) { return x < 0 ? 0.25 * x : x; },
     [](double x) { return x > 0   ? 1.0
                           : x < 0 ? 0.25
                                   : 0.0; }},
    {"threshold",
     {.kind = Activation::kRelu, .threshold = 0.25f},
     [](double x) { return x < 0.25 ? 0 : x; },
     [](double x) { return x > 0.25 ? 1.0 : 0.0; }},
    {"elu",
     {.kind = Activation::kElu, .slope = 0.5f},
     [](double x) { return x > 0 ? x : 0.5 * std::expm1(x); },
     [](double x) { return x > 0 ? 1.0 : 0.5 * std::exp(x); }},
    {"selu",
     {.kind = Activation::kSelu},
     [](double x) { return x > 0 ? 1.05 * x : 1.05 * 1.67 * std::expm1(x); },
     [](double x) { return x > 0 ? 1.05 : 1.05 * 1.67 * std::exp(x); }},
    {"sigmoid", {.kind = Activation::kSigmoid}, Sigmoid, [](double x) { return Sigmoid(x) * Sigmoid(-x); }},
    {"tanh",
     {.kind = Activation::kTanh},
     [](double x) { return std::tanh(x); },
     [](double x) { return 1 - std::tanh(x) * std::tanh(x); }},
    {"softplus", {.kind = Activation::kSoftplus}, [](double x) { return std::log1p(std::exp(x)); }, Sigmoid},
    {"silu",
     {.kind = Activation::kSilu},
     [](double x) { return x * Sigmoid(x); },
     [](double x) { return Sigmoid(x) * (1 + x * (1 - Sigmoid(x))); }},
    {"gelu",
     {.kind = Activation::kGelu},
     [](double x) { return x * Cdf(x); },
     [](double x) { return Cdf(x) + x * std::exp(-x * x / 2); }},
    {"gelu_tanh",
     {.kind = Activation::kGeluTanh},
     [](double x) { return x * (1 + std::tanh(x + 0.04 * x * x * x)) / 2; },
     [](double x) {
       const double t = std::tanh(x + 0.04 * x * x * x);
       return (1 + t) / 2 + x * (1 - t * t) * (1 + 0.12 * x * x) / 2;
     }},
    {"exp",
     {.kind = Activation::kExp},
     [](double x) { return std::exp(x); },
     [](double x) { return std::exp(x); }},
    {"log", {.kind = Activation::kLog}, [](double x) { return std::log(x); }, [](double x) { return 1 / x; }},
    {"log1p",
     {.kind = Activation::kLog1p},
     [](double x) { return std::log1p(x); },
     [](double x) { return 1 / (1 + x); }},
    {"sqrt",
     {.kind = Activation::kSqrt},
     [](double x) { return std::sqrt(x); },
     [](double x) { return 0.5 / std::sqrt(x); }},
    {"rsqrt",
     {.kind = Activation::kRsqrt},
     [](double x) { return 1 / std::sqrt(x); },
     [](double x) { return -0.5 / std::sqrt(x) / x; }},
    {"reciprocal",
     {.kind = Activation::kReciprocal},
     [](double x) { return 1 / x; },
     [](double x) { return -1 / (x * x); }},
    {"sin",
     {.kind = Activation::kSin},
     [](double x) { return std::sin(x); },
     [](double x) { return std::cos(x); }},
    {"cos",
     {.kind = Activation::kCos},
     [](double x) { return std::cos(x); },
     [](double x) { return -std::sin(x); }},
};

TEST_P(NonFinite, PassesThroughActivations) {
  for (const Function& f : kFunctions) {
    SCOPED_TRACE(f.name);
    // The gradient of a small number overflows.
    if (f.params.kind == Activation::kReciprocal && type() == kernels::ElementType::kFloat16) continue;
    for (const Shape& shape : {Shape{3, 37}, Shape{5}}) {
      const TensorDesc desc = ActivationDesc(shape);
      auto op = device().ops().MakeActivation(desc, f.params).value();
      const auto gradient = [&](const Tensor& x, const Tensor& dy) {
        Tensor dx(x.shape);
        for (size_t i = 0; i < dx.values.size(); ++i) {
          const double derivative = f.derivative(x.values[i]);
          const bool closed = f.params.kind == Activation::kRelu && derivative == 0;
          dx.values[i] = closed ? 0 : dy.values[i] * derivative;
        }
        return dx;
      };
      CheckUnary(
          *op, desc,
          [&](const Tensor& x) {
            Tensor y(x.shape);
            for (size_t i = 0; i < y.values.size(); ++i) y.values[i] = f.value(x.values[i]);
            return y;
          },
          gradient);
      // A gradient with respect to what is not finite.
      ForEachPoison(shape, [&](const Tensor& x) {
        Tensor ones(x.shape);
        for (double& one : ones.values) one = 1;
        const auto x_memory = PutActivation(x), dy = PutActivation(ones), y = Poisoned(desc.num_floats()),
                   dx = Poisoned(desc.num_floats());
        ASSERT_TRUE(op->Forward(x_memory->data(), y->data()).ok());
        ASSERT_TRUE(op->Backward(x_memory->data(), y->data(), dy->data(), dx->data()).ok());
        ExpectKinds(GetActivation(*dx, desc), gradient(x, ones).values);
      });
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(NonFinite, PassesThroughMaxPooling) {
  for (const auto& [size, stride, same] : {std::tuple{2, 2, false}, {3, 1, true}, {3, 2, true}}) {
    for (const int64_t channels : {1, 5, 16, 21}) {
      for (const Layout layout : layouts()) {
        const TensorDesc desc = ActivationDesc({2, 6, 7, channels}, layout);
        SCOPED_TRACE(testing::Message() << desc.ToString() << ", window " << size << ", stride " << stride);
        const Windows windows = {size, size, stride, stride, same};
        auto op = device()
                      .ops()
                      .MakePool2D({.input = desc,
                                   .pool_height = size,
                                   .pool_width = size,
                                   .stride_height = stride,
                                   .stride_width = stride,
                                   .padding = same ? Padding::kSame : Padding::kValid})
                      .value();
        CheckUnary(*op, desc, [&](const Tensor& x) {
          Tensor y(windows.OutputShape(x.shape, channels));
          std::fill(y.values.begin(), y.values.end(), -kInfinity);
          windows.ForEach(x.shape, [&](auto n, auto oh, auto ow, auto h, auto w, auto, auto) {
            for (int64_t c = 0; c < channels; ++c) {
              double& largest = y.at(y.index(n, oh, ow, c));
              largest = Larger(x.at(x.index(n, h, w, c)), largest);
            }
          });
          return y;
        });
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The gradient of a maximum that is NaN goes to the NaN.
TEST_P(NonFinite, GradientsOfMaximaGoToTheNaN) {
  for (const int64_t nan : {0, 1, 2, 3}) {
    Tensor x({1, 2, 2, 1}), expected({1, 2, 2, 1}), one({1, 1, 1, 1});
    x.values = {1, 3, 2, -1};
    x.at(nan) = kNaN;
    expected.at(nan) = 1;
    one.at(0) = 1;
    const TensorDesc desc = ActivationDesc(x.shape);
    for (const bool global : {false, true}) {
      auto op = global ? device().ops().MakeGlobalPool(kernels::Pooling::kMax, desc).value()
                       : device().ops().MakePool2D({.input = desc}).value();
      const auto x_memory = PutActivation(x), dy = PutActivation(one), y = Poisoned(1), dx = Poisoned(4);
      ASSERT_TRUE(op->Forward(x_memory->data(), y->data()).ok());
      ASSERT_TRUE(op->Backward(x_memory->data(), y->data(), dy->data(), dx->data()).ok());
      ExpectNear(GetActivation(*dx, desc), expected.values, 0);
    }
  }
}

TEST_P(NonFinite, PassesThroughAveragePooling) {
  for (const int64_t channels : {1, 5, 16}) {
    for (const Layout layout : layouts()) {
      const TensorDesc desc = ActivationDesc({2, 5, 6, channels}, layout);
      SCOPED_TRACE(desc.ToString());
      const Windows windows = {2, 2, 2, 2, true};
      auto op =
          device()
              .ops()
              .MakePool2D({.pooling = kernels::Pooling::kAverage, .input = desc, .padding = Padding::kSame})
              .value();
      CheckUnary(*op, desc, [&](const Tensor& x) {
        Tensor y(windows.OutputShape(x.shape, channels));
        windows.ForEach(x.shape, [&](auto n, auto oh, auto ow, auto h, auto w, auto, auto) {
          for (int64_t c = 0; c < channels; ++c) y.at(y.index(n, oh, ow, c)) += x.at(x.index(n, h, w, c));
        });
        return y;
      });
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(NonFinite, PassesThroughGlobalPooling) {
  for (const kernels::Pooling pooling : {kernels::Pooling::kMax, kernels::Pooling::kAverage}) {
    for (const int64_t channels : {1, 5, 33}) {
      for (const Layout layout : layouts()) {
        const TensorDesc desc = ActivationDesc({2, 4, 5, channels}, layout);
        SCOPED_TRACE(desc.ToString());
        CheckUnary(*device().ops().MakeGlobalPool(pooling, desc).value(), desc, [&](const Tensor& x) {
          const bool max = pooling == kernels::Pooling::kMax;
          Tensor y({2, channels});
          for (double& value : y.values) value = max ? -kInfinity : 0;
          for (int64_t i = 0; i < x.shape.num_elements(); ++i) {
            double& value = y.at(i / (20 * channels) * channels + i % channels);
            value = max ? Larger(x.at(i), value) : value + x.at(i);
          }
          return y;
        });
        if (HasFatalFailure()) return;
      }
    }
  }
}

// y (dy - sum(y dy)), as Keras' backends compute it: of an infinite gradient the difference is NaN.
Tensor SoftmaxGradient(const Tensor& x, const Tensor& dy) {
  const Tensor y = reference::Softmax(x);
  Tensor dx(x.shape);
  const int64_t classes = x.shape[1];
  for (int64_t row = 0; row < x.shape[0]; ++row) {
    double dot = 0;
    for (int64_t i = row * classes; i < (row + 1) * classes; ++i) dot += y.at(i) * dy.at(i);
    for (int64_t i = row * classes; i < (row + 1) * classes; ++i) dx.at(i) = y.at(i) * (dy.at(i) - dot);
  }
  return dx;
}

TEST_P(NonFinite, PassesThroughSoftmax) {
  for (const int64_t classes : {1, 7, 16, 37}) {
    const TensorDesc desc = ActivationDesc({3, classes});
    CheckUnary(*device().ops().MakeSoftmax(desc).value(), desc, reference::Softmax, SoftmaxGradient);
    if (HasFatalFailure()) return;
  }
}

TEST_P(NonFinite, PassesThroughCopiesAndScaling) {
  const TensorDesc image = ActivationDesc({2, 3, 4, 5}), rows = ActivationDesc({3, 37});
  CheckUnary(*device().ops().MakeZeroPad2D({.input = image, .top = 1, .right = 2}).value(), image,
             [](const Tensor& x) {
               Tensor y({2, 4, 6, 5});
               for (int64_t n = 0; n < 2; ++n)
                 for (int64_t h = 0; h < 3; ++h)
                   for (int64_t w = 0; w < 4; ++w)
                     for (int64_t c = 0; c < 5; ++c)
                       y.at(y.index(n, h + 1, w, c)) = x.at(x.index(n, h, w, c));
               return y;
             });
  CheckUnary(
      *device().ops().MakeAffine({.input = rows, .scale = {0.5f}, .offset = {1}}).value(), rows,
      [](const Tensor& x) { return x; }, [](const Tensor&, const Tensor& dy) { return dy; });
}

TEST_P(NonFinite, PassesThroughSumsAndProducts) {
  for (const bool add : {true, false}) {
    const TensorDesc desc = ActivationDesc({3, 37});
    auto op = (add ? device().ops().MakeAdd(desc, 3) : device().ops().MakeMultiply(desc, 3)).value();
    const Tensor a = Rounded(RandomTensor(desc.shape, 5), type());
    ForEachPoison(desc.shape, [&](const Tensor& b) {
      const auto a_memory = PutActivation(a), b_memory = PutActivation(b), y = Poisoned(desc.num_floats());
      ASSERT_TRUE(op->Forward({a_memory->data(), b_memory->data(), a_memory->data()}, y->data()).ok());
      Tensor expected = b;
      for (size_t i = 0; i < expected.values.size(); ++i) {
        if (!add) expected.values[i] *= a.values[i] * a.values[i];
      }
      ExpectKinds(GetActivation(*y, desc), expected.values);
    });
  }
}

double Merge(MergeKind kind, double a, double b) {
  switch (kind) {
    case MergeKind::kAdd:
      return a + b;
    case MergeKind::kSubtract:
      return a - b;
    case MergeKind::kMultiply:
      return a * b;
    case MergeKind::kAverage:
      return (a + b) / 2;
    case MergeKind::kMaximum:
      return Larger(a, b);
    case MergeKind::kMinimum:
      return -Larger(-a, -b);
    case MergeKind::kSelect:
      break;
  }
  return kNaN;
}

TEST_P(NonFinite, PassesThroughBroadcastMerges) {
  const Shape full = {3, 4, 5}, row = {3, 1, 5};
  for (const MergeKind kind : {MergeKind::kAdd, MergeKind::kSubtract, MergeKind::kMultiply,
                               MergeKind::kAverage, MergeKind::kMaximum, MergeKind::kMinimum}) {
    SCOPED_TRACE(testing::Message() << "merge " << static_cast<int>(kind));
    const TensorDesc a_desc = ActivationDesc(full), b_desc = ActivationDesc(row);
    auto op = device().ops().MakeBroadcastMerge({.kind = kind, .inputs = {a_desc, b_desc}}).value();
    const auto check = [&](const Tensor& a, const Tensor& b) {
      const auto a_memory = PutActivation(a), b_memory = PutActivation(b), y = Poisoned(a_desc.num_floats());
      ASSERT_TRUE(op->Forward({a_memory->data(), b_memory->data()}, y->data()).ok());
      Tensor expected(full);
      for (int64_t i = 0; i < full.num_elements(); ++i) {
        expected.at(i) = Merge(kind, a.at(i), b.at(i / 20 * 5 + i % 5));
      }
      ExpectKinds(GetActivation(*y, a_desc), expected.values);
    };
    const Tensor a = Rounded(RandomTensor(full, 5), type()), b = Rounded(RandomTensor(row, 6), type());
    ForEachPoison(full, [&](const Tensor& poisoned) { check(poisoned, b); });
    ForEachPoison(row, [&](const Tensor& poisoned) { check(a, poisoned); });
    if (HasFatalFailure()) return;
  }
}

TEST_P(NonFinite, PassesThroughConcatenation) {
  const Shape part = {3, 5};
  const TensorDesc desc = ActivationDesc(part);
  auto op = device().ops().MakeConcatenate({desc, desc}, 1).value();
  const Tensor a = Rounded(RandomTensor(part, 5), type());
  ForEachPoison(part, [&](const Tensor& b) {
    const auto a_memory = PutActivation(a), b_memory = PutActivation(b),
               y = Poisoned(op->output().num_floats());
    ASSERT_TRUE(op->Forward({a_memory->data(), b_memory->data()}, y->data()).ok());
    Tensor expected({3, 10});
    for (int64_t i = 0; i < 30; ++i) {
      expected.at(i) = (i % 10 < 5 ? a : b).at(i / 10 * 5 + i % 5);
    }
    ExpectKinds(GetActivation(*y, op->output()), expected.values);
  });
}

TEST_P(NonFinite, PassesThroughReorders) {
  for (const Layout layout : layouts()) {
    const TensorDesc from = {{2, 3, 4, 5}}, to = ActivationDesc(from.shape, layout);
    auto there = device().ops().MakeReorder(from, to).value(),
         back = device().ops().MakeReorder(to, from).value();
    ForEachPoison(from.shape, [&](const Tensor& x) {
      const auto x_memory = Put(x), y = Poisoned(to.num_floats()), z = Poisoned(from.num_floats());
      ASSERT_TRUE(there->Run(x_memory->data(), y->data()).ok());
      ASSERT_TRUE(back->Run(y->data(), z->data()).ok());
      ExpectKinds(Get(*z, from), x.values);
    });
    if (HasFatalFailure()) return;
  }
}

// A dropped element is 0, whatever its value was.
TEST_P(NonFinite, PassesThroughDropoutIfKept) {
  const TensorDesc desc = ActivationDesc({4, 37});
  auto op = device().ops().MakeDropout({.input = desc, .rate = 0.5f, .stream = 7}).value();
  Tensor ones(desc.shape), poisoned(desc.shape);
  for (double& one : ones.values) one = 1;
  constexpr double kPoisons[] = {kNaN, kInfinity, -kInfinity};
  for (size_t i = 0; i < poisoned.values.size(); ++i) poisoned.values[i] = kPoisons[i % 3];
  const auto run = [&](const Tensor& x) {
    const auto memory = PutActivation(x), y = Poisoned(desc.num_floats());
    EXPECT_TRUE(device().SeedRandom(11, 0).ok());
    EXPECT_TRUE(op->Forward(memory->data(), y->data()).ok());
    return GetActivation(*y, desc);
  };
  const std::vector<float> kept = run(ones);
  std::vector<double> expected;
  for (size_t i = 0; i < kept.size(); ++i) expected.push_back(kept[i] > 0 ? poisoned.values[i] : 0);
  ExpectKinds(run(poisoned), expected);
}

INSTANTIATE_CONFORMANCE_OF_ALL_TYPES(NonFinite);

// Ops that compute in float32 with any type of the backend.
class NonFiniteInFloat32 : public NonFiniteTest {};

TEST_P(NonFiniteInFloat32, PassesThroughNormalization) {
  const Shape shape = {5, 21};
  const auto mean = Put(std::vector<double>(21, 0.25)), variance = Put(std::vector<double>(21, 2.0)),
             ones = Put(std::vector<double>(21, 1.0)), y = Poisoned(5 * 21), own_mean = Poisoned(21),
             own_variance = Poisoned(21);
  auto batch = device().ops().MakeBatchNorm({.input = {shape}}).value();
  auto layer = device().ops().MakeLayerNorm({.rows = 5, .width = 21}).value();
  ForEachPoison(shape, [&](const Tensor& x) {
    const auto memory = Put(x);
    ASSERT_TRUE(
        batch->Infer(memory->data(), ones->data(), ones->data(), mean->data(), variance->data(), y->data())
            .ok());
    ExpectKinds(Get(*y, {shape}), x.values);

    // The mean of a column, or a row, that is not finite is not, and the variance is NaN.
    ASSERT_TRUE(batch
                    ->Forward(memory->data(), ones->data(), ones->data(), own_mean->data(),
                              own_variance->data(), y->data())
                    .ok());
    const auto place = static_cast<size_t>(
        std::find_if(x.values.begin(), x.values.end(), [](double v) { return !std::isfinite(v); }) -
        x.values.begin());
    Tensor expected(shape);
    for (size_t i = place % 21; i < expected.values.size(); i += 21) expected.values[i] = kNaN;
    ExpectKinds(Get(*y, {shape}), expected.values);
    ASSERT_TRUE(layer->Forward(memory->data(), ones->data(), ones->data(), y->data()).ok());
    expected = Tensor(shape);
    for (size_t i = place / 21 * 21; i < place / 21 * 21 + 21; ++i) expected.values[i] = kNaN;
    ExpectKinds(Get(*y, {shape}), expected.values);
  });
}

TEST_P(NonFiniteInFloat32, PassesThroughStandardization) {
  const Shape shape = {5, 21}, width = {21};
  const Tensor x = RandomTensor(shape, 2), mean = RandomTensor(width, 3);
  Tensor variance(width);
  for (double& v : variance.values) v = 2;
  for (const bool invert : {false, true}) {
    auto op = device().ops().MakeStandardize({.input = {shape}, .width = 21, .invert = invert}).value();
    const auto check = [&](const Tensor& a, const Tensor& m, const Tensor& v) {
      const auto a_memory = Put(a), m_memory = Put(m), v_memory = Put(v), y = Poisoned(shape.num_elements());
      ASSERT_TRUE(op->Forward(a_memory->data(), m_memory->data(), v_memory->data(), y->data()).ok());
      Tensor expected(shape);
      for (int64_t i = 0; i < shape.num_elements(); ++i) {
        const double deviation = std::sqrt(v.at(i % 21));
        expected.at(i) = invert ? a.at(i) * deviation + m.at(i % 21) : (a.at(i) - m.at(i % 21)) / deviation;
      }
      ExpectKinds(Get(*y, {shape}), expected.values);
    };
    ForEachPoison(shape, [&](const Tensor& poisoned) { check(poisoned, mean, variance); });
    ForEachPoison(width, [&](const Tensor& poisoned) { check(x, poisoned, variance); });
    ForEachPoison(width, [&](const Tensor& poisoned) { check(x, mean, poisoned); });
    if (HasFatalFailure()) return;
  }
}

TEST_P(NonFiniteInFloat32, PassesThroughPenalties) {
  const Shape shape = {37};
  for (const auto& [l1, l2] : {std::pair{0.5f, 0.0f}, {0.0f, 0.5f}, {0.5f, 0.25f}}) {
    auto op = device().ops().MakeRegularizer(37, l1, l2).value();
    ForEachPoison(shape, [&](const Tensor& w) {
      const auto memory = Put(w), gradient = Put(Tensor(shape));
      double penalty = 0, expected = 0;
      ASSERT_TRUE(op->Run(memory->data(), gradient->data(), &penalty).ok());
      ASSERT_TRUE(device().Synchronize().ok());
      Tensor gradients(shape);
      for (size_t i = 0; i < w.values.size(); ++i) {
        const double v = w.values[i], sign = std::isnan(v) ? v : v > 0 ? 1 : -1;
        expected += l1 > 0 ? double{l1} * std::fabs(v) : 0;
        expected += l2 > 0 ? double{l2} * v * v : 0;
        gradients.values[i] = (l1 > 0 ? double{l1} * sign : 0) + (l2 > 0 ? 2 * double{l2} * v : 0);
      }
      EXPECT_EQ(KindOf(penalty), KindOf(expected));
      ExpectKinds(Get(*gradient, {shape}), gradients.values);
    });
  }
}

// For an output that is NaN, every loss and its gradient are NaN: clipping does not hide it.
TEST_P(NonFiniteInFloat32, LossesOfNaNAreNaN) {
  for (const LossKind kind :
       {LossKind::kSparseCategoricalCrossentropy, LossKind::kCategoricalCrossentropy,
        LossKind::kBinaryCrossentropy, LossKind::kMeanSquaredError, LossKind::kMeanAbsoluteError,
        LossKind::kHuber, LossKind::kCategoricalFocalCrossentropy, LossKind::kBinaryFocalCrossentropy}) {
    for (const bool from_logits : {false, true}) {
      for (const int64_t width : {5, 32}) {
        for (const int64_t place : {int64_t{0}, width / 2, width - 1}) {
          SCOPED_TRACE(testing::Message() << "loss " << static_cast<int>(kind) << ", logits " << from_logits
                                          << ", " << place << " of " << width);
          const kernels::LossParams params = {
              .kind = kind, .batch = 2, .width = width, .from_logits = from_logits};
          auto op = device().ops().MakeLoss(params).value();
          Tensor outputs({2, width}), targets({2 * params.targets_per_example()});
          for (double& output : outputs.values) output = 0.125;
          for (size_t i = 0; i < targets.values.size(); i += static_cast<size_t>(width))
            targets.values[i] = 1;
          outputs.at(width + place) = kNaN;
          const auto memory = Put(outputs), target_memory = Put(targets), gradient = Poisoned(2 * width);
          kernels::LossSums sums;
          ASSERT_TRUE(op->Run(memory->data(), target_memory->data(), nullptr, &sums, gradient->data()).ok());
          ASSERT_TRUE(device().Synchronize().ok());
          EXPECT_TRUE(std::isnan(sums.loss));
          const std::vector<float> gradients = Get(*gradient, {outputs.shape});
          for (int64_t j = 0; j < width; ++j) {
            EXPECT_TRUE(std::isfinite(gradients[static_cast<size_t>(j)]));
          }
          EXPECT_TRUE(std::isnan(gradients[static_cast<size_t>(width + place)]));
        }
      }
    }
  }
}

INSTANTIATE_CONFORMANCE(NonFiniteInFloat32);

class NonFiniteOnCuda : public NonFiniteTest {};

// With loss scaling, a step whose gradients are not finite is skipped.
TEST_P(NonFiniteOnCuda, ScaledGradientsThatAreNotFiniteAreDetected) {
  const Shape shape = {37};
  auto op = device().ops().MakeLossScaler({.outputs = 1, .gradients = {{0, 37}}}).value();
  ASSERT_TRUE(op->SetScale(8).ok());
  const auto finite = [&](const Tensor& gradients) {
    const auto memory = Put(gradients);
    bool result = true;
    EXPECT_TRUE(op->Unscale(memory->data(), &result).ok());
    EXPECT_TRUE(device().Synchronize().ok());
    return result;
  };
  EXPECT_TRUE(finite(RandomTensor(shape, 1)));
  ForEachPoison(shape, [&](const Tensor& poisoned) { EXPECT_FALSE(finite(poisoned)); });
}

INSTANTIATE_TEST_SUITE_P(, NonFiniteOnCuda, testing::ValuesIn(CudaBackends()), BackendName);

}  // namespace
}  // namespace cairn::conformance
