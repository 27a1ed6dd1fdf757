#include "data/length_buckets.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/types/span.h"
#include "data/batch_loader.h"
#include "data/sampler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::data {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

constexpr int64_t kLength = 6;

// Example i has i % 7 ids of i + 1, padded with 0 to 6, the targets 10 * i + step, and the weights 100 * i + step.
class Sequences final : public Dataset {
 public:
  explicit Sequences(int64_t size) : size_(size) {
    for (int64_t i = 0; i < size * kLength; ++i)
      weights_.values.push_back(static_cast<float>(100 * (i / kLength) + i % kLength));
    weights_.parts[0].per_example = kLength;
  }
  int64_t size() const override { return size_; }
  const Shape& example_shape() const override { return shape_; }
  TargetInfo target_info() const override { return {.per_example = kLength, .shape = {kLength}}; }
  std::vector<InputSpec> input_specs() const override { return {{DType::kInt32, shape_}}; }
  const Weights* weights() const override { return &weights_; }
  void Read(int64_t index, absl::Span<const MutableTensorView> inputs,
            absl::Span<float> target) const override {
    auto* ids = static_cast<int32_t*>(inputs[0].data);
    for (int64_t i = 0; i < kLength; ++i) {
      ids[i] = i < index % 7 ? static_cast<int32_t>(index + 1) : 0;
      target[static_cast<size_t>(i)] = static_cast<float>(10 * index + i);
    }
  }

 private:
  const int64_t size_;
  const Shape shape_{kLength};
  Weights weights_;
};

BucketForm FormOf(int64_t length) {
  return {.inputs = {{length}},
          .targets = {{.count = kLength, .kept = length}},
          .weights = {{.count = kLength, .kept = length}}};
}

LengthBuckets BucketsOf(const Dataset& dataset) {
  return SortIntoBuckets(dataset, {FormOf(2), FormOf(4), FormOf(kLength)}).value();
}

TEST(LengthBuckets, AnExampleIsInTheFirstBucketThatHoldsIt) {
  EXPECT_THAT(BucketsOf(Sequences(8)).bucket_of, ElementsAre(0, 0, 0, 1, 1, 2, 2, 0));
}

TEST(LengthBuckets, TargetsThatAreNoPaddingCountAsPartOfAnExample) {
  std::vector<BucketForm> forms = {FormOf(2), FormOf(kLength)};
  forms[0].targets[0].padding = -1.0f;
  EXPECT_THAT(SortIntoBuckets(Sequences(3), std::move(forms))->bucket_of, ElementsAre(1, 1, 1));
}

TEST(LengthBuckets, EachPartOfTheWeightsIsCut) {
  InputRows inputs(std::vector<InputSpec>{{DType::kInt32, Shape({kLength})}}, 2);
  std::vector<float> targets(2 * kLength), weights;
  for (int i = 0; i < 2 * (kLength + 1); ++i)
    weights.push_back(static_cast<float>(i));  // kLength of rows, then 1
  BucketForm form = FormOf(2);
  form.weights.push_back({.count = 1, .kept = 1});
  Cut(form, 2, {.inputs = inputs, .targets = absl::MakeSpan(targets), .weights = absl::MakeSpan(weights)});
  EXPECT_EQ(form.num_weights(), 3);
  EXPECT_THAT(absl::MakeSpan(weights).first(6),
              ElementsAre(0, 1, kLength, kLength + 1, kLength + 2, 2 * kLength + 1));
}

TEST(LengthBuckets, RunsOfAnEpochHaveOneBucket) {
  const std::vector<uint32_t> order = {5, 0, 3, 1, 4, 2, 6, 7};
  const std::vector<uint8_t> bucket_of = {0, 0, 0, 1, 1, 2, 2, 0};
  EXPECT_THAT(GroupByBucket(order, bucket_of, 2), ElementsAre(0, 1, 3, 4, 5, 6, 2, 7));
  EXPECT_THAT(GroupByBucket(order, bucket_of, 3), ElementsAre(0, 1, 2, 7, 3, 4, 5, 6));
}

TEST(LengthBuckets, EachExampleIsInOneBatchOfAnEpochWithAnyNumberOfWorkers) {
  constexpr int64_t kExamples = 103;
  const Sequences dataset(kExamples);
  const LengthBuckets buckets = BucketsOf(dataset);
  for (const bool shuffle : {false, true}) {
    std::vector<std::vector<uint32_t>> of_one;
    for (const int64_t workers : {1, 3}) {
      std::vector<uint32_t> seen;
      int64_t mixed = 0;
      for (int64_t worker = 0; worker < workers; ++worker) {
        Sampler sampler({.num_examples = kExamples,
                         .num_workers = workers,
                         .worker = worker,
                         .batch_size = 6 / workers,
                         .shuffle = shuffle,
                         .seed = 7,
                         .bucket_of = buckets.bucket_of});
        for (int64_t batch = 0; batch < sampler.batches_per_epoch(); ++batch) {
          const std::vector<uint32_t> examples = sampler.Batch(1, batch);
          seen.insert(seen.end(), examples.begin(), examples.end());
          std::set<uint8_t> kinds;
          for (const uint32_t example : examples) kinds.insert(buckets.bucket_of[example]);
          mixed += kinds.size() > 1 ? 1 : 0;
        }
      }
      EXPECT_LE(mixed, 2 * workers) << "only batches at the end of the epoch";
      std::sort(seen.begin(), seen.end());
      std::vector<uint32_t> all(kExamples);
      for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint32_t>(i);
      EXPECT_THAT(seen, ElementsAreArray(all));
    }
  }
}

TEST(BatchLoader, CutsABatchToItsLongestBucket) {
  const Sequences dataset(8);
  const LengthBuckets buckets = BucketsOf(dataset);
  BatchLoader loader(dataset,
                     {.num_examples = 8, .batch_size = 2, .shuffle = false, .bucket_of = buckets.bucket_of},
                     2, nullptr, &buckets);
  // In order: 0 1, 3 4, 5 6, 2 7.
  const Batch& batch = loader.Next(1);
  EXPECT_THAT(batch.rows, ElementsAre(3, 4));
  ASSERT_EQ(batch.num_targets, 4);
  EXPECT_THAT(batch.targets.span().first(8), ElementsAre(30, 31, 32, 33, 40, 41, 42, 43));
  ASSERT_EQ(batch.num_weights, 4);
  EXPECT_THAT(batch.weights.span().first(8), ElementsAre(300, 301, 302, 303, 400, 401, 402, 403));
  const TensorViews inputs = batch.inputs.First(2);
  EXPECT_EQ(inputs[0].shape, Shape({2, 4}));
  EXPECT_THAT(absl::MakeConstSpan(static_cast<const int32_t*>(inputs[0].data), 8),
              ElementsAre(4, 4, 4, 0, 5, 5, 5, 5));
  EXPECT_EQ(loader.Next(2).inputs.First(2)[0].shape, Shape({2, 6})) << "memory that was cut before";
  EXPECT_EQ(loader.Next(3).inputs.First(2)[0].shape, Shape({2, 2}));
}

}  // namespace
}  // namespace cairn::data
