// Vectors that count the ids of a row, against hand arithmetic.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/conformance/backends.h"

namespace cairn::conformance {
namespace {

using kernels::IdCountsParams;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

class IdCountsConformance : public ConformanceTest {
 protected:
  // The vectors for ids, and weights unless they are empty.
  std::vector<float> Count(const IdCountsParams& params, const std::vector<int64_t>& x,
                           const std::vector<float>& weights = {}) {
    auto op = device().ops().MakeIdCounts(params);
    EXPECT_TRUE(op.ok()) << op.status();
    const auto ids = PutIntegers(x, params.id_type);
    const auto y = Poisoned((*op)->output().num_floats());
    std::vector<const float*> xs = {ids->data()};
    std::unique_ptr<kernels::DeviceMemory> of_weights;
    if (!weights.empty()) {
      reference::Tensor tensor({static_cast<int64_t>(weights.size())});
      for (size_t i = 0; i < weights.size(); ++i) tensor.at(static_cast<int64_t>(i)) = weights[i];
      of_weights = Put(tensor);
      xs.push_back(of_weights->data());
    }
    status_ = (*op)->Forward(xs, y->data());
    if (status_.ok()) status_ = device().Synchronize();
    return GetAs(*y, {params.rows, params.depth}, type());
  }

  absl::Status status_;  // of the last Count()
};

TEST_P(IdCountsConformance, IdsAreCountedInEachRow) {
  for (const DType id_type : {DType::kInt64, DType::kInt32, DType::kUint8}) {
    const IdCountsParams params = {.rows = 2, .ids = 3, .depth = 4, .id_type = id_type};
    EXPECT_THAT(Count(params, {1, 3, 1, 0, 0, 0}), ElementsAreArray({0, 2, 0, 1, 3, 0, 0, 0}));
    EXPECT_TRUE(status_.ok()) << status_;
  }
}

TEST_P(IdCountsConformance, AnIdCountsOnce) {
  EXPECT_THAT(Count({.rows = 2, .ids = 3, .depth = 4, .once = true}, {1, 3, 1, 0, 0, 0}),
              ElementsAreArray({0, 1, 0, 1, 1, 0, 0, 0}));
}

TEST_P(IdCountsConformance, WeightsAreAddedUp) {
  EXPECT_THAT(Count({.rows = 2, .ids = 2, .depth = 2, .weighted = true}, {1, 1, 0, 1}, {0.5f, 0.25f, -1, 2}),
              ElementsAreArray({0.0f, 0.75f, -1.0f, 2.0f}));
}

TEST_P(IdCountsConformance, RowsOfRaggedIdsHaveDifferentLengths) {
  // Row splits, ids, and as much room again.
  EXPECT_THAT(Count({.rows = 3, .depth = 3, .ragged = true}, {0, 2, 2, 5, 2, 2, 0, 1, 0, 0, 0, 0, 0, 0}),
              ElementsAreArray({0, 0, 2, 0, 0, 0, 2, 1, 0}));
}

TEST_P(IdCountsConformance, ManyColumnsAreCounted) {
  constexpr int64_t kRows = 5, kDepth = 3001;
  std::vector<int64_t> ids;
  std::vector<float> expected(kRows * kDepth);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < 7; ++i) {
      ids.push_back((row * 131 + i * 509) % kDepth);
      expected[static_cast<size_t>(row * kDepth + ids.back())] += 1;
    }
  }
  EXPECT_EQ(Count({.rows = kRows, .ids = 7, .depth = kDepth}, ids), expected);
}

TEST_P(IdCountsConformance, ABadIdIsNamedUnlessItIsMasked) {
  Count({.rows = 1, .ids = 2, .depth = 4, .what = "layer 'tested'"}, {1, 4});
  EXPECT_THAT(status_.message(), HasSubstr("index 4 in a table of 4 rows"));
  IdCountsParams params = {.rows = 1, .ids = 2, .depth = 4};
  Count(params, {-1, 1});
  EXPECT_THAT(status_.message(), HasSubstr("index -1 in a table of 4 rows"));
  params.skips_negative = true;
  EXPECT_THAT(Count(params, {-1, 1}), ElementsAreArray({0, 1, 0, 0}));
  EXPECT_TRUE(status_.ok()) << status_;
}

INSTANTIATE_CONFORMANCE_OF_ALL_TYPES(IdCountsConformance);

}  // namespace
}  // namespace cairn::conformance
