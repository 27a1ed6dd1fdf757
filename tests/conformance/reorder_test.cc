#include "tests/conformance/backends.h"

namespace cairn::conformance {
namespace {

using kernels::Layout;
using reference::Tensor;

class ReorderConformance : public ConformanceTest {};

TEST_P(ReorderConformance, EveryPairOfLayoutsKeepsTheValuesAndZeroesPadding) {
  for (int64_t channels : {1, 3, 8, 15, 16, 33}) {
    for (Layout from : layouts()) {
      for (Layout to : layouts()) {
        const Tensor x = RandomTensor({3, 5, 4, channels}, 1);
        const kernels::TensorDesc from_desc = {x.shape, from}, to_desc = {x.shape, to};
        SCOPED_TRACE(testing::Message() << from_desc.ToString() << " to " << to_desc.ToString());
        auto op = device().ops().MakeReorder(from_desc, to_desc);
        ASSERT_TRUE(op.ok()) << op.status();
        const auto source = Put(x, from), destination = Poisoned(to_desc.num_floats());
        ASSERT_TRUE((*op)->Run(source->data(), destination->data()).ok());
        ExpectNear(Get(*destination, to_desc), x.values, 0);
      }
    }
  }
}

TEST_P(ReorderConformance, IntegersBecomeTheNearestFloats) {
  const std::vector<int64_t> values = {0, 1, 77, 255, 128};
  for (const DType type : {DType::kInt32, DType::kInt64, DType::kUint8}) {
    auto op = device().ops().MakeReorder({.shape = {5, 1}, .type = type}, {.shape = {5, 1}});
    ASSERT_TRUE(op.ok()) << op.status();
    const auto x = PutIntegers(values, type), y = Poisoned(5);
    ASSERT_TRUE((*op)->Run(x->data(), y->data()).ok());
    ExpectNear(Get(*y, {{5, 1}}), {0, 1, 77, 255, 128}, 0);
  }
  EXPECT_FALSE(device().ops().MakeReorder({.shape = {5}}, {.shape = {5}, .type = DType::kInt32}).ok());
}

TEST_P(ReorderConformance, DifferentShapesAreRefused) {
  const auto op = device().ops().MakeReorder({{1, 2, 2, 8}}, {{1, 2, 2, 9}});
  EXPECT_EQ(op.status().code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_CONFORMANCE(ReorderConformance);

class CastConformance : public ConformanceTest {};

TEST_P(CastConformance, FloatsAreRoundedToNearestAndComeBackExactly) {
  for (const Shape& shape : {Shape{1}, Shape{7, 3}, Shape{2, 5, 4, 16}}) {
    // A float first: the device sees no double.
    const Tensor x = Rounded(RandomTensor(shape, 1), kernels::ElementType::kFloat32);
    const Tensor rounded = Rounded(x, type());
    const kernels::TensorDesc plain = {shape}, narrow = ActivationDesc(shape);
    auto there = device().ops().MakeReorder(plain, narrow).value();
    auto back = device().ops().MakeReorder(narrow, plain).value();
    const auto x_memory = Put(x), y = Poisoned(narrow.num_floats()), z = Poisoned(plain.num_floats());
    ASSERT_TRUE(there->Run(x_memory->data(), y->data()).ok());
    ExpectNear(GetActivation(*y, narrow), rounded.values, 0);
    ASSERT_TRUE(back->Run(y->data(), z->data()).ok());
    ExpectNear(Get(*z, plain), rounded.values, 0);
  }
}

TEST_P(CastConformance, TheSameTypeIsCopied) {
  const Tensor x = Rounded(RandomTensor({3, 7}, 1), type());
  const kernels::TensorDesc desc = ActivationDesc(x.shape);
  auto op = device().ops().MakeReorder(desc, desc).value();
  const auto from = PutActivation(x), to = Poisoned(desc.num_floats());
  ASSERT_TRUE(op->Run(from->data(), to->data()).ok());
  ExpectNear(GetActivation(*to, desc), x.values, 0);
}

INSTANTIATE_16_BIT_CONFORMANCE(CastConformance);

}  // namespace
}  // namespace cairn::conformance
