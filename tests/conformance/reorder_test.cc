#include "tests/conformance/backends.h"

namespace cairn::conformance {
namespace {

using kernels::Layout;
using reference::Tensor;

class ReorderConformance : public ConformanceTest {};

TEST_P(ReorderConformance, EveryPairOfLayoutsKeepsTheValuesAndZeroesPadding) {
  for (int64_t channels : {1, 3, 8, 15, 16, 33}) {
    for (Layout from : {Layout::kRowMajor, Layout::kBlocked8, Layout::kBlocked16}) {
      for (Layout to : {Layout::kRowMajor, Layout::kBlocked8, Layout::kBlocked16}) {
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

TEST_P(ReorderConformance, DifferentShapesAreRefused) {
  const auto op = device().ops().MakeReorder({{1, 2, 2, 8}}, {{1, 2, 2, 9}});
  EXPECT_EQ(op.status().code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_CONFORMANCE(ReorderConformance);

}  // namespace
}  // namespace cairn::conformance
