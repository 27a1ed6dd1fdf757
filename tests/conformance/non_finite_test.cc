// NaN and infinity pass through every operation, forward and backward, as through its definition in double:
// NaN is where the definition has NaN and nowhere else, and so is infinity. One element at a time is
// poisoned, at the places of a vector's body and of its rest.
#include <cmath>
#include <limits>
#include <string>

#include "tests/conformance/backends.h"

namespace cairn::conformance {
namespace {

using kernels::Activation;
using kernels::ActivationParams;
using kernels::Layout;
using kernels::LossKind;
using kernels::Padding;
using kernels::TensorDesc;
using reference::Tensor;
using reference::Windows;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kPoisons[] = {kNaN, kInfinity, -kInfinity};

// "nan", "inf", "-inf" or "finite".
std::string KindOf(double value) {
  if (std::isnan(value)) return "nan";
  return std::isfinite(value) ? "finite" : value > 0 ? "inf" : "-inf";
}

void ExpectKinds(const std::vector<float>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(KindOf(got[i]), KindOf(expected[i]))
        << "element " << i << ": " << got[i] << " for " << expected[i];
  }
}

// Some elements of a tensor: the first, the last, and some between.
std::vector<int64_t> Places(const Shape& shape) {
  const int64_t count = shape.num_elements();
  std::vector<int64_t> places = {0, count / 3, count / 2 + 1, count - 1};
  for (int64_t& place : places) place = std::min(place, count - 1);
  return places;
}

// max(x, 0) and max, of which NaN is the largest.
double Relu(double x) {
  return x < 0 ? 0 : x;
}
double Larger(double a, double b) {
  return std::isnan(a) || a > b ? a : b;
}

class NonFinite : public ConformanceTest {
 protected:
  // Calls visit(x) for random values of this shape with one poisoned element.
  template <typename Visit>
  void ForEachPoison(const Shape& shape, const Visit& visit) {
    for (const double poison : kPoisons) {
      for (const int64_t place : Places(shape)) {
        SCOPED_TRACE(testing::Message() << poison << " at element " << place << " of " << shape.ToString());
        Tensor x = Rounded(RandomTensor(shape, 1), type());
        x.at(place) = poison;
        visit(x);
        if (HasFatalFailure()) return;
      }
    }
  }

  using Map = std::function<Tensor(const Tensor&)>;
  // Compares an op without weights with `forward`, for a poisoned x, and with `backward` (x, dy), if given,
  // for a poisoned dy.
  void CheckUnary(kernels::UnaryOp& op, const TensorDesc& desc, const Map& forward,
                  const std::function<Tensor(const Tensor&, const Tensor&)>& backward = nullptr) {
    const TensorDesc y_desc = op.output();
    ForEachPoison(desc.shape, [&](const Tensor& x) {
      const auto x_memory = PutActivation(x, desc.layout), y = Poisoned(y_desc.num_floats());
      ASSERT_TRUE(op.Forward(x_memory->data(), y->data()).ok());
      ExpectKinds(GetActivation(*y, y_desc), forward(x).values);
    });
    if (backward == nullptr || HasFatalFailure()) return;
    const Tensor x = Rounded(RandomTensor(desc.shape, 2), type());
    ForEachPoison(y_desc.shape, [&](const Tensor& dy) {
      const auto x_memory = PutActivation(x, desc.layout), y = Poisoned(y_desc.num_floats());
      const auto dy_memory = PutActivation(dy, y_desc.layout), dx = Poisoned(desc.num_floats());
      ASSERT_TRUE(op.Forward(x_memory->data(), y->data()).ok());
      ASSERT_TRUE(op.Backward(x_memory->data(), y->data(), dy_memory->data(), dx->data()).ok());
      ExpectKinds(GetActivation(*dx, desc), backward(x, dy).values);
    });
  }

  // A linear map. The test poisons its x, kernel, bias and dy, one after another.
  struct Linear {
    TensorDesc x;
    Shape kernel;
    int64_t filters = 0;
    bool relu = false;
    std::function<Tensor(const Tensor& x, const Tensor& kernel, const std::vector<double>& bias)> forward;
  };
  void CheckLinear(absl::StatusOr<std::unique_ptr<kernels::LinearOp>> made, const Linear& c);
};

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
};

TEST_P(NonFinite, PassesThroughActivations) {
  for (const Function& f : kFunctions) {
    SCOPED_TRACE(f.name);
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

// The gradient of a maximum that is NaN goes where the NaN is.
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

// A dropped element is 0, whatever its value was.
TEST_P(NonFinite, PassesThroughDropoutWhereItStays) {
  const TensorDesc desc = ActivationDesc({4, 37});
  auto op = device().ops().MakeDropout({.input = desc, .rate = 0.5f, .stream = 7}).value();
  Tensor ones(desc.shape), poisoned(desc.shape);
  for (double& one : ones.values) one = 1;
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

void NonFinite::CheckLinear(absl::StatusOr<std::unique_ptr<kernels::LinearOp>> made, const Linear& c) {
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
    // The NaN of a filter that let it through is in its kernel's gradient.
    const std::vector<float> gradient = Get(*dkernel, {kernel.shape});
    for (size_t f = 0; f < expected.size(); ++f) {
      bool found = false;
      for (size_t i = f; i < gradient.size(); i += expected.size())
        found = found || !std::isfinite(gradient[i]);
      ASSERT_EQ(found, !std::isfinite(expected[f])) << "filter " << f;
    }
  });
}

TEST_P(NonFinite, PassesThroughDenseLayers) {
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

TEST_P(NonFinite, PassesThroughConvolutions) {
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

TEST_P(NonFinite, PassesThroughConvolutionsWithReluAndPooling) {
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

INSTANTIATE_CONFORMANCE_OF_ALL_TYPES(NonFinite);

// Ops that compute in float32 whatever the backend's type.
class NonFiniteInFloat32 : public NonFinite {};

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

// Whatever the loss, of an output that is NaN it is NaN, and so is the gradient: no clipping hides it.
TEST_P(NonFiniteInFloat32, LossesOfNaNAreNaN) {
  for (const LossKind kind : {LossKind::kSparseCategoricalCrossentropy, LossKind::kCategoricalCrossentropy,
                              LossKind::kBinaryCrossentropy, LossKind::kMeanSquaredError,
                              LossKind::kMeanAbsoluteError, LossKind::kHuber}) {
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

}  // namespace
}  // namespace cairn::conformance
