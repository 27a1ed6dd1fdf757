#include "embedding/pooling/pooling.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/core/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::embedding {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

// Bags {0, 1}, {}, {2, 0, 0}, {} of a table with the rows (1, 2), (3, 4), (5, 6).
const std::vector<int64_t> kSplits = {0, 2, 2, 5, 5};
const std::vector<int32_t> kUnique = {0, 1, 2, 0, 0};
const std::vector<float> kWeights = {1, 3, 2, 0.5f, -1};
const std::vector<float> kRows = {1, 2, 3, 4, 5, 6};

std::vector<float> Pooled(Combiner combiner, const std::vector<float>& weights = {}) {
  const Bags bags{kSplits, kUnique, weights};
  EXPECT_TRUE(CheckBags(bags, combiner, 3).ok());
  std::vector<float> pooled(8, std::numeric_limits<float>::quiet_NaN());
  Pool(bags, combiner, 2, kRows, absl::MakeSpan(pooled));
  return pooled;
}

// The numbers are those of TensorFlow 2.21's embedding_lookup_sparse.
TEST(Pool, WeightedBagsAreThoseOfTensorFlow) {
  EXPECT_THAT(Pooled(Combiner::kSum, kWeights),
              Pointwise(FloatNear(1e-6f), std::vector<float>{10, 14, 0, 0, 9.5f, 11, 0, 0}));
  EXPECT_THAT(
      Pooled(Combiner::kMean, kWeights),
      Pointwise(FloatNear(1e-6f), std::vector<float>{2.5f, 3.5f, 0, 0, 6.3333335f, 7.3333335f, 0, 0}));
  EXPECT_THAT(Pooled(Combiner::kSqrtn, kWeights),
              Pointwise(FloatNear(1e-6f),
                        std::vector<float>{3.1622777f, 4.4271889f, 0, 0, 4.1461396f, 4.8007936f, 0, 0}));
}

TEST(Pool, BagsWithoutWeightsAreThoseOfTensorFlow) {
  EXPECT_THAT(Pooled(Combiner::kSum), ElementsAre(4, 6, 0, 0, 7, 10, 0, 0));
  EXPECT_THAT(Pooled(Combiner::kMean),
              Pointwise(FloatNear(1e-6f), std::vector<float>{2, 3, 0, 0, 2.3333333f, 3.3333333f, 0, 0}));
  const auto root = static_cast<float>(std::sqrt(0.5));
  EXPECT_THAT(Pooled(Combiner::kSqrtn),
              Pointwise(FloatNear(1e-6f),
                        std::vector<float>{4 * root, 6 * root, 0, 0, 4.0414519f, 5.7735027f, 0, 0}));
}

TEST(Pool, MaxIsTheLargestOfEachColumn) {
  const std::vector<int64_t> splits = {0, 2, 2, 3};
  const std::vector<int32_t> unique = {0, 1, 1};
  const std::vector<float> rows = {-1, 5, -3, 7};
  std::vector<float> pooled(6);
  Pool({splits, unique}, Combiner::kMax, 2, rows, absl::MakeSpan(pooled));
  EXPECT_THAT(pooled, ElementsAre(-1, 7, 0, 0, -3, 7));
}

// Where TensorFlow divides by 0 without NaN: the weights of a bag cancel.
TEST(Pool, ABagWhoseWeightsCancelGives0) {
  const std::vector<int64_t> splits = {0, 2};
  const std::vector<int32_t> unique = {0, 1};
  const std::vector<float> cancel = {1, -1}, zeros = {0, 0};
  std::vector<float> pooled(2);
  Pool({splits, unique, cancel}, Combiner::kMean, 2, kRows, absl::MakeSpan(pooled));
  EXPECT_THAT(pooled, ElementsAre(0, 0));
  Pool({splits, unique, zeros}, Combiner::kSqrtn, 2, kRows, absl::MakeSpan(pooled));
  EXPECT_THAT(pooled, ElementsAre(0, 0));
}

TEST(Pool, ABatchWithoutIdsGivesZeros) {
  const std::vector<int64_t> splits = {0, 0, 0, 0};
  for (const Combiner combiner : {Combiner::kSum, Combiner::kMean, Combiner::kSqrtn, Combiner::kMax}) {
    const Bags bags{splits, {}};
    EXPECT_TRUE(CheckBags(bags, combiner, 0).ok());
    std::vector<float> pooled(9, 1);
    Pool(bags, combiner, 3, {}, absl::MakeSpan(pooled));
    EXPECT_THAT(pooled, Each(0));
    AddPoolGradients(bags, combiner, 3, {pooled, {}, {}});
  }
}

TEST(Pool, ABagMayHave100000Ids) {
  const std::vector<int64_t> splits = {0, 100'000};
  const std::vector<int32_t> unique(100'000, 2);
  std::vector<float> pooled(2);
  Pool({splits, unique}, Combiner::kMean, 2, kRows, absl::MakeSpan(pooled));
  EXPECT_THAT(pooled, ElementsAre(FloatNear(5, 1e-4f), FloatNear(6, 1e-4f)));
}

TEST(AddPoolGradients, MergesTheGradientsOfAUniqueRow) {
  const std::vector<float> g = {1, 2, 10, 20, 100, 200, 1000, 2000};
  std::vector<float> gradients(6);
  AddPoolGradients({kSplits, kUnique}, Combiner::kSum, 2, {g, {}, absl::MakeSpan(gradients)});
  EXPECT_THAT(gradients, ElementsAre(201, 402, 1, 2, 100, 200));
}

TEST(AddPoolGradients, AddsToTheGradientsOfOtherFeatures) {
  const std::vector<float> g = {1, 2, 10, 20, 100, 200, 1000, 2000};
  std::vector<float> gradients = {1, 1, 1, 1, 1, 1};
  AddPoolGradients({kSplits, kUnique}, Combiner::kSum, 2, {g, {}, absl::MakeSpan(gradients)});
  EXPECT_THAT(gradients, ElementsAre(202, 403, 2, 3, 101, 201));
}

TEST(AddPoolGradients, TheGradientOfAMaximumGoesToTheFirstLargest) {
  const std::vector<int64_t> splits = {0, 3};
  const std::vector<int32_t> unique = {1, 0, 2};
  const std::vector<float> rows = {5, 1, 5, 0, 3, 1};
  const std::vector<float> g = {7, 9};
  std::vector<float> gradients(6);
  AddPoolGradients({splits, unique}, Combiner::kMax, 2, {g, rows, absl::MakeSpan(gradients)});
  EXPECT_THAT(gradients, ElementsAre(0, 9, 7, 0, 0, 0));
}

// Pooling is linear in the rows, except for max: the gradient of sum(g * pooled) by central differences is exact.
TEST(AddPoolGradients, AgreesWithDifferencesInEveryWidth) {
  const std::vector<int64_t> splits = {0, 3, 3, 4, 8};
  const std::vector<int32_t> unique = {0, 1, 0, 2, 3, 3, 1, 0};
  const std::vector<float> weights = {0.5f, 2, -1, 3, 1, 0.25f, 1, -0.5f};
  for (const Combiner combiner : {Combiner::kSum, Combiner::kMean, Combiner::kSqrtn, Combiner::kMax}) {
    for (const size_t dim : {1u, 3u, 16u, 21u, 40u}) {
      Random random(dim, "pooling");
      std::vector<float> rows(4 * dim), g(4 * dim), gradients(4 * dim), pooled(4 * dim);
      for (float& x : rows) x = random.NextUniform(-1, 1);
      for (float& x : g) x = random.NextUniform(-1, 1);
      const Bags bags{splits, unique, combiner == Combiner::kMax ? absl::Span<const float>() : weights};
      const int width = static_cast<int>(dim);
      AddPoolGradients(bags, combiner, width, {g, rows, absl::MakeSpan(gradients)});
      const auto objective = [&] {
        Pool(bags, combiner, width, rows, absl::MakeSpan(pooled));
        double sum = 0;
        for (size_t i = 0; i < pooled.size(); ++i) sum += static_cast<double>(g[i]) * pooled[i];
        return sum;
      };
      for (size_t i = 0; i < rows.size(); i += 5) {
        const float value = rows[i], step = 0x1p-10f;
        rows[i] = value + step;
        const double above = objective();
        rows[i] = value - step;
        const double below = objective();
        rows[i] = value;
        EXPECT_NEAR(gradients[i], (above - below) / (2 * step), 2e-3)
            << static_cast<int>(combiner) << " " << dim;
      }
    }
  }
}

std::string FaultOf(const Bags& bags, Combiner combiner = Combiner::kSum) {
  return std::string(CheckBags(bags, combiner, 3).message());
}

TEST(CheckBags, NamesTheFault) {
  const std::vector<int64_t> late = {1, 2, 2, 5, 5}, short_of = {0, 2, 2, 4, 4}, falling = {0, 3, 2, 5, 5};
  const std::vector<int32_t> outside = {0, 1, 3, 0, 0}, negative = {0, -1, 2, 0, 0};
  const std::vector<float> few = {1, 2};
  EXPECT_EQ(FaultOf({late, kUnique}),
            "the row splits of bags must begin with 0 and end with their number of positions, 5");
  EXPECT_EQ(FaultOf({short_of, kUnique}), FaultOf({late, kUnique}));
  EXPECT_EQ(FaultOf({{}, {}}),
            "the row splits of bags must begin with 0 and end with their number of positions, 0");
  EXPECT_EQ(FaultOf({falling, kUnique}), "the row splits of bags must ascend");
  EXPECT_EQ(FaultOf({kSplits, outside}), "position 2 of the bags has the unique row 3, and there are 3");
  EXPECT_EQ(FaultOf({kSplits, negative}), "position 1 of the bags has the unique row -1, and there are 3");
  EXPECT_EQ(FaultOf({kSplits, kUnique, few}), "there are 2 weights for 5 positions of bags");
  EXPECT_EQ(FaultOf({kSplits, kUnique, kWeights}, Combiner::kMax), "the combiner max takes no weights");
}

TEST(ParseCombiner, KnowsTheFourNames) {
  EXPECT_EQ(ParseCombiner("sum").value(), Combiner::kSum);
  EXPECT_EQ(ParseCombiner("mean").value(), Combiner::kMean);
  EXPECT_EQ(ParseCombiner("sqrtn").value(), Combiner::kSqrtn);
  EXPECT_EQ(ParseCombiner("max").value(), Combiner::kMax);
  EXPECT_EQ(ParseCombiner("avg").status().message(), "combiner 'avg' is not one of sum, mean, sqrtn, max");
}

}  // namespace
}  // namespace cairn::embedding
