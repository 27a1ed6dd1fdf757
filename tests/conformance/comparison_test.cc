// Comparisons, logical functions and selections, against hand arithmetic.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/conformance/backends.h"

namespace cairn::conformance {
namespace {

using kernels::Comparison;
using kernels::TensorDesc;
using reference::Tensor;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

Tensor TensorOf(const Shape& shape, const std::vector<double>& values) {
  Tensor tensor(shape);
  tensor.values = values;
  return tensor;
}

class ComparisonConformance : public ConformanceTest {
 protected:
  std::vector<float> Run(Comparison kind, const TensorDesc& a_desc, kernels::DeviceMemory& a,
                         const TensorDesc& b_desc, kernels::DeviceMemory& b) {
    auto op = device().ops().MakeComparison({.kind = kind, .inputs = {a_desc, b_desc}});
    EXPECT_TRUE(op.ok()) << op.status();
    EXPECT_EQ((*op)->output().type, DType::kFloat32);
    const auto y = Poisoned((*op)->output().num_floats());
    EXPECT_TRUE((*op)->Forward({a.data(), b.data()}, y->data()).ok());
    return Get(*y, (*op)->output());
  }
  std::vector<float> Compare(Comparison kind, const std::vector<double>& a, const std::vector<double>& b) {
    const Shape shape = {static_cast<int64_t>(a.size())};
    const auto a_memory = PutActivation(TensorOf(shape, a)), b_memory = PutActivation(TensorOf(shape, b));
    return Run(kind, ActivationDesc(shape), *a_memory, ActivationDesc(shape), *b_memory);
  }
};

TEST_P(ComparisonConformance, NumbersAreCompared) {
  const std::vector<double> a = {1, 2, 3, 0, -0.0, NAN, NAN, INFINITY},
                            b = {2, 2, 2, -1, 0, NAN, 1, INFINITY};
  EXPECT_THAT(Compare(Comparison::kEqual, a, b), ElementsAre(0, 1, 0, 0, 1, 0, 0, 1));
  EXPECT_THAT(Compare(Comparison::kNotEqual, a, b), ElementsAre(1, 0, 1, 1, 0, 1, 1, 0));
  EXPECT_THAT(Compare(Comparison::kGreater, a, b), ElementsAre(0, 0, 1, 1, 0, 0, 0, 0));
  EXPECT_THAT(Compare(Comparison::kGreaterEqual, a, b), ElementsAre(0, 1, 1, 1, 1, 0, 0, 1));
  EXPECT_THAT(Compare(Comparison::kLess, a, b), ElementsAre(1, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(Compare(Comparison::kLessEqual, a, b), ElementsAre(1, 1, 0, 0, 1, 0, 0, 1));
}

TEST_P(ComparisonConformance, NumbersOtherThanZeroAreTrue) {
  const std::vector<double> a = {0, 0, 1, -2, NAN, 0.5}, b = {0, 3, 0, 4, 0, -0.0};
  EXPECT_THAT(Compare(Comparison::kAnd, a, b), ElementsAre(0, 0, 0, 1, 0, 0));
  EXPECT_THAT(Compare(Comparison::kOr, a, b), ElementsAre(0, 1, 1, 1, 1, 1));
  EXPECT_THAT(Compare(Comparison::kXor, a, b), ElementsAre(0, 1, 1, 0, 1, 1));
}

// A float32 holds neither 2^24 + 1 nor 2^40 + 1.
TEST_P(ComparisonConformance, IntegersAreComparedExactly) {
  constexpr int64_t k24 = int64_t{1} << 24, k40 = int64_t{1} << 40;
  const TensorDesc longs = {.shape = {4}, .type = DType::kInt64};
  const auto a = PutIntegers({k24 + 1, k40 + 1, -5, 200}, DType::kInt64);
  const auto b = PutIntegers({k24, k40, -5, 7}, DType::kInt64);
  EXPECT_THAT(Run(Comparison::kEqual, longs, *a, longs, *b), ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(Run(Comparison::kGreater, longs, *a, longs, *b), ElementsAre(1, 1, 0, 1));
  const auto c = PutIntegers({k24 + 1, 1, -5, 7}, DType::kInt32);
  EXPECT_THAT(Run(Comparison::kEqual, longs, *a, {.shape = {4}, .type = DType::kInt32}, *c),
              ElementsAre(1, 0, 1, 0));
  const auto d = PutIntegers({1, 0, 3, 200}, DType::kUint8);
  EXPECT_THAT(Run(Comparison::kEqual, longs, *a, {.shape = {4}, .type = DType::kUint8}, *d),
              ElementsAre(0, 0, 0, 1));
  // With floats they become floats.
  const auto e = PutActivation(TensorOf({4}, {0.5, 1, -5, 200.0}));
  EXPECT_THAT(Run(Comparison::kLessEqual, ActivationDesc({4}), *e, longs, *a), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(Run(Comparison::kEqual, ActivationDesc({4}), *e, longs, *a), ElementsAre(0, 0, 1, 1));
}

TEST_P(ComparisonConformance, InputsAreBroadcast) {
  // More than one chunk and more than one thread.
  for (const int64_t steps : {3, 300}) {
    const TensorDesc rows = {.shape = {2, steps, 1}, .type = DType::kInt32},
                     columns = {.shape = {2, 1, steps}, .type = DType::kInt32};
    std::vector<int64_t> segments;
    for (int64_t i = 0; i < 2 * steps; ++i) segments.push_back(i * i % 7);
    std::vector<float> expected;
    for (int64_t n = 0; n < 2; ++n) {
      for (int64_t i = 0; i < steps * steps; ++i) {
        const int64_t* const of = segments.data() + n * steps;
        expected.push_back(of[i / steps] == of[i % steps] ? 1.0f : 0.0f);
      }
    }
    const auto memory = PutIntegers(segments, DType::kInt32);
    EXPECT_THAT(Run(Comparison::kEqual, rows, *memory, columns, *memory), ElementsAreArray(expected));
  }
}

TEST_P(ComparisonConformance, HasAGradientOfZero) {
  const TensorDesc a = ActivationDesc({2, 3}), b = ActivationDesc({2, 1});
  const auto x = Put(std::vector<double>(6, 1)), dy = Put(std::vector<double>(6, NAN)),
             da = Poisoned(a.num_floats()), db = Poisoned(b.num_floats());
  auto op = device().ops().MakeComparison({.kind = Comparison::kLess, .inputs = {a, b}}).value();
  ASSERT_TRUE(op->Backward({x->data(), x->data()}, dy->data(), {da->data(), db->data()}).ok());
  EXPECT_THAT(GetActivation(*da, a), ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(GetActivation(*db, b), ElementsAre(0, 0));
  EXPECT_TRUE(op->Backward({x->data(), x->data()}, dy->data(), {nullptr, db->data()}).ok());
}

TEST_P(ComparisonConformance, OtherInputsAreRefused) {
  const auto refusal = [&](std::vector<TensorDesc> inputs) {
    return std::string(device().ops().MakeComparison({.inputs = std::move(inputs)}).status().message());
  };
  EXPECT_THAT(refusal({ActivationDesc({2, 3}), ActivationDesc({2, 4})}), HasSubstr("do not broadcast"));
  EXPECT_THAT(refusal({ActivationDesc({2, 3})}), HasSubstr("a comparison of 1 inputs, expected 2"));
}

class SelectConformance : public ConformanceTest {
 protected:
  std::unique_ptr<kernels::NaryOp> MakeOp(const Shape& condition, const Shape& x, const Shape& otherwise) {
    return device()
        .ops()
        .MakeBroadcastMerge(
            {.kind = kernels::MergeKind::kSelect,
             .inputs = {ActivationDesc(condition), ActivationDesc(x), ActivationDesc(otherwise)}})
        .value();
  }
};

TEST_P(SelectConformance, TheInputThatIsNotSelectedHasNoEffect) {
  const Shape shape = {2, 3}, row = {2, 1};
  const auto op = MakeOp(shape, shape, row);
  const auto condition = PutActivation(TensorOf(shape, {1, 0, -2, 0, NAN, 0})),
             x = PutActivation(TensorOf(shape, {1, NAN, 3, INFINITY, 5, 6})),
             otherwise = PutActivation(TensorOf(row, {8, 9})),
             dy = PutActivation(TensorOf(shape, {1, 2, 4, 8, 16, 32})), y = Poisoned(6), dc = Poisoned(6),
             dx = Poisoned(6), d_otherwise = Poisoned(2);
  const std::vector<const float*> xs = {condition->data(), x->data(), otherwise->data()};
  ASSERT_TRUE(op->Forward(xs, y->data()).ok());
  EXPECT_THAT(GetActivation(*y, ActivationDesc(shape)), ElementsAre(1, 8, 3, 9, 5, 9));
  ASSERT_TRUE(op->Backward(xs, dy->data(), {dc->data(), dx->data(), d_otherwise->data()}).ok());
  EXPECT_THAT(GetActivation(*dc, ActivationDesc(shape)), ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(GetActivation(*dx, ActivationDesc(shape)), ElementsAre(1, 0, 4, 0, 16, 0));
  EXPECT_THAT(GetActivation(*d_otherwise, ActivationDesc(row)), ElementsAre(2, 40));
}

TEST_P(SelectConformance, AGradientThatIsNotFiniteStaysWhereItIsSelected) {
  const Shape shape = {1, 2};
  const auto op = MakeOp(shape, shape, shape);
  const auto condition = PutActivation(TensorOf(shape, {1, 0})), x = PutActivation(TensorOf(shape, {1, 2})),
             dy = PutActivation(TensorOf(shape, {NAN, INFINITY})), dc = Poisoned(2), dx = Poisoned(2),
             d_otherwise = Poisoned(2);
  const std::vector<const float*> xs = {condition->data(), x->data(), x->data()};
  ASSERT_TRUE(op->Backward(xs, dy->data(), {dc->data(), dx->data(), d_otherwise->data()}).ok());
  EXPECT_THAT(GetActivation(*dc, ActivationDesc(shape)), ElementsAre(0, 0));
  EXPECT_THAT(GetActivation(*dx, ActivationDesc(shape)), ElementsAre(testing::IsNan(), 0));
  EXPECT_THAT(GetActivation(*d_otherwise, ActivationDesc(shape)), ElementsAre(0, INFINITY));
}

TEST_P(SelectConformance, TakesThreeInputs) {
  EXPECT_EQ(device()
                .ops()
                .MakeBroadcastMerge({.kind = kernels::MergeKind::kSelect,
                                     .inputs = {ActivationDesc({2}), ActivationDesc({2})}})
                .status()
                .message(),
            "a selection of 2 inputs, expected 3");
}

class StepFunctionConformance : public ConformanceTest {};

TEST_P(StepFunctionConformance, ValuesAndGradients) {
  using kernels::Activation;
  // 19 elements: whole vectors, and a rest.
  std::vector<double> x = {-2.5, -1.5, -1.25, -0.5, -0.0, 0, 0.5, 0.75, 1.5, 2.5, 3, INFINITY, -INFINITY};
  while (x.size() < 19) x.push_back(-1.75);
  const std::pair<Activation, double (*)(double)> functions[] = {
      {Activation::kSign, [](double v) { return v > 0   ? 1.0
                                                : v < 0 ? -1.0
                                                        : 0.0; }},
      {Activation::kFloor, [](double v) { return std::floor(v); }},
      {Activation::kCeil, [](double v) { return std::ceil(v); }},
      {Activation::kRound, [](double v) { return std::nearbyint(v); }},
      {Activation::kTruncate, [](double v) { return std::trunc(v); }},
  };
  const TensorDesc desc = ActivationDesc({19});
  for (const auto& [kind, definition] : functions) {
    SCOPED_TRACE(static_cast<int>(kind));
    auto op = device().ops().MakeActivation(desc, {.kind = kind}).value();
    const auto memory = PutActivation(TensorOf({19}, x)), y = Poisoned(19), dx = Poisoned(19),
               dy = PutActivation(TensorOf({19}, std::vector<double>(19, NAN)));
    ASSERT_TRUE(op->Forward(memory->data(), y->data()).ok());
    std::vector<float> expected;
    for (const double value : x) expected.push_back(static_cast<float>(definition(value)));
    EXPECT_THAT(GetActivation(*y, desc), ElementsAreArray(expected));
    ASSERT_TRUE(op->Backward(memory->data(), y->data(), dy->data(), dx->data()).ok());
    EXPECT_THAT(GetActivation(*dx, desc), ElementsAreArray(std::vector<float>(19, 0)));
    const auto nan = PutActivation(TensorOf({19}, std::vector<double>(19, NAN)));
    ASSERT_TRUE(op->Forward(nan->data(), y->data()).ok());
    EXPECT_THAT(GetActivation(*y, desc), testing::Each(testing::IsNan()));
  }
}

INSTANTIATE_CONFORMANCE_OF_ALL_TYPES(ComparisonConformance);
INSTANTIATE_CONFORMANCE_OF_ALL_TYPES(SelectConformance);
INSTANTIATE_CONFORMANCE_OF_ALL_TYPES(StepFunctionConformance);

}  // namespace
}  // namespace cairn::conformance
