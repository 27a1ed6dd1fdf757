#include "worker/data/batch_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

namespace cairn::data {
namespace {

using ::testing::ElementsAre;

// Example i is the pair (i, -i) with label i % 10.
class CountingDataset final : public Dataset {
 public:
  explicit CountingDataset(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  const Shape& example_shape() const override { return shape_; }
  int64_t num_classes() const override { return 10; }
  int32_t Read(int64_t index, absl::Span<float> inputs) const override {
    ++reads;
    inputs[0] = static_cast<float>(index);
    inputs[1] = -inputs[0];
    return static_cast<int32_t>(index % 10);
  }
  mutable std::atomic<int> reads{0};

 private:
  int64_t size_;
  Shape shape_{2};
};

std::vector<float> ValidInputs(const Batch& batch) {
  return {batch.inputs.data(), batch.inputs.data() + 2 * batch.examples};
}

// What the batch at `position` must hold, by the sampler and the data set alone.
void ExpectBatch(const Batch& batch, int64_t position, const Dataset& dataset,
                 const SamplerOptions& options) {
  Sampler sampler(options);
  ASSERT_EQ(batch.epoch, position / sampler.batches_per_epoch());
  ASSERT_EQ(batch.index, position % sampler.batches_per_epoch());
  std::vector<float> inputs;
  std::vector<int32_t> labels;
  for (uint32_t example : sampler.Batch(batch.epoch, batch.index)) {
    inputs.insert(inputs.end(), 2, 0.0f);
    labels.push_back(dataset.Read(example, absl::MakeSpan(inputs).last(2)));
  }
  ASSERT_EQ(batch.examples, static_cast<int64_t>(labels.size()));
  ASSERT_EQ(batch.labels, labels);
  ASSERT_EQ(ValidInputs(batch), inputs);
}

TEST(BatchLoader, PreparedBatchesEqualThoseReadDirectly) {
  const CountingDataset dataset(103);
  const SamplerOptions options{
      .num_examples = 103, .num_workers = 3, .worker = 1, .batch_size = 8, .seed = 5};
  for (const int depth : {1, 2, 5}) {
    BatchLoader loader(dataset, options, depth);
    for (int64_t position = 0; position < 4 * loader.batches_per_epoch(); ++position) {
      ExpectBatch(loader.Next(position), position, dataset, options);
    }
  }
}

TEST(BatchLoader, RestartsAtAnyPosition) {
  const CountingDataset dataset(64);
  const SamplerOptions options{.num_examples = 64, .batch_size = 4, .seed = 9};
  BatchLoader loader(dataset, options);
  for (const int64_t position : {1000, 1001, 1002, 3, 3, 4, 17, 16, 0, 1}) {
    ExpectBatch(loader.Next(position), position, dataset, options);
  }
}

TEST(BatchLoader, TheBatchStaysValidWhileOthersAreBeingPrepared) {
  const CountingDataset dataset(64);
  BatchLoader loader(dataset, {.num_examples = 64, .batch_size = 2, .shuffle = false}, 1);
  const Batch& batch = loader.Next(0);
  // Only two batches exist with depth 1: this one, and one that is filled while we look.
  while (dataset.reads < 4) std::this_thread::yield();
  EXPECT_THAT(ValidInputs(batch), ElementsAre(0, 0, 1, -1));
}

TEST(BatchLoader, PreparesNoMoreThanDepthBatchesAhead) {
  const CountingDataset dataset(64);
  {
    BatchLoader loader(dataset, {.num_examples = 64, .batch_size = 2}, 3);
    loader.Next(0);
  }  // the destructor waits for the thread
  EXPECT_LE(dataset.reads, 2 * (1 + 3));
}

TEST(BatchLoader, AnEmptyLastBatchHasNoExamples) {
  const CountingDataset dataset(5);
  BatchLoader loader(dataset, {.num_examples = 5, .num_workers = 2, .worker = 1, .batch_size = 2});
  EXPECT_EQ(loader.Next(1).examples, 0);
  EXPECT_TRUE(loader.Next(1).labels.empty());
}

TEST(BatchLoader, EndsAtOnceWhetherUsedOrNot) {
  const CountingDataset dataset(1000);
  for (int i = 0; i < 50; ++i) {
    BatchLoader loader(dataset, {.num_examples = 1000, .batch_size = 10}, 2);
    for (int64_t position = 0; position < i % 4; ++position) loader.Next(position * 2);
  }
}

}  // namespace
}  // namespace cairn::data
