#include "data/batch_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace cairn::data {
namespace {

using ::testing::ElementsAre;

// Example i is the pair (i, -i) with the targets (i % 10, 2i) and, on request, the weight i / 2.
class CountingDataset final : public Dataset {
 public:
  explicit CountingDataset(int64_t size, bool weighted = false) : size_(size), weighted_(weighted) {
    for (int64_t i = 0; i < size; ++i) weights_.values.push_back(0.5f * static_cast<float>(i));
  }
  int64_t size() const override { return size_; }
  const Shape& example_shape() const override { return shape_; }
  TargetInfo target_info() const override { return {.per_example = 2, .shape = {2}}; }
  const Weights* weights() const override { return weighted_ ? &weights_ : nullptr; }
  void Read(int64_t index, absl::Span<const MutableTensorView> inputs,
            absl::Span<float> target) const override {
    ++reads;
    const auto number = static_cast<float>(index);
    inputs[0].floats()[0] = number;
    inputs[0].floats()[1] = -number;
    target[0] = static_cast<float>(index % 10);
    target[1] = 2 * number;
  }
  mutable std::atomic<int> reads{0};

 private:
  int64_t size_;
  bool weighted_;
  Weights weights_;
  Shape shape_{2};
};

// The valid rows of a batch's buffer with `columns` floats in each.
std::vector<float> Rows(const AlignedBuffer& buffer, int64_t columns, const Batch& batch) {
  return {buffer.data(), buffer.data() + columns * batch.examples};
}

// Compares the batch at `position` to what the sampler and the data set give directly.
void ExpectBatch(const Batch& batch, int64_t position, const Dataset& dataset,
                 const SamplerOptions& options) {
  Sampler sampler(options);
  ASSERT_EQ(batch.epoch, position / sampler.batches_per_epoch());
  ASSERT_EQ(batch.index, position % sampler.batches_per_epoch());
  const std::vector<uint32_t> examples = sampler.Batch(batch.epoch, batch.index);
  ASSERT_EQ(batch.examples, static_cast<int64_t>(examples.size()));
  std::vector<float> inputs(2 * examples.size()), targets(2 * examples.size()), weights(examples.size());
  for (size_t i = 0; i < examples.size(); ++i) {
    dataset.Read(examples[i], {MutableTensorView::OfFloats({2}, absl::MakeSpan(inputs).subspan(2 * i, 2))},
                 absl::MakeSpan(targets).subspan(2 * i, 2));
    weights[i] = dataset.weighted() ? dataset.WeightsOf(examples[i])[0] : 1;
  }
  ASSERT_EQ(Rows(batch.inputs.buffers()[0], 2, batch), inputs);
  ASSERT_EQ(Rows(batch.targets, 2, batch), targets);
  if (!dataset.weighted()) return;
  ASSERT_EQ(Rows(batch.weights, 1, batch), weights);
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

TEST(BatchLoader, BatchesHaveWeightsOnlyIfTheDataSetHas) {
  const CountingDataset weighted(8, true), plain(8);
  const SamplerOptions options{.num_examples = 8, .batch_size = 3, .shuffle = false};
  BatchLoader with(weighted, options), without(plain, options);
  const Batch& batch = with.Next(1);
  EXPECT_THAT(Rows(batch.weights, 1, batch), ElementsAre(1.5f, 2.0f, 2.5f));
  ExpectBatch(with.Next(2), 2, weighted, options);
  EXPECT_EQ(without.Next(1).weights.size(), 0);
}

// Records which examples were announced, and whether one was read without being announced.
class DatasetOnDisk final : public Dataset {
 public:
  int64_t size() const override { return 40; }
  const Shape& example_shape() const override { return shape_; }
  TargetInfo target_info() const override { return {.num_classes = 1, .shape = {1}}; }
  void Prefetch(absl::Span<const uint32_t> examples, Fetch fetch) const override {
    if (fetch == Fetch::kFromMemory) return;
    announced_.insert(examples.begin(), examples.end());
    largest_ = std::max(largest_, examples.size());
  }
  void Read(int64_t index, absl::Span<const MutableTensorView> inputs,
            absl::Span<float> target) const override {
    surprised_ = surprised_ || announced_.count(static_cast<uint32_t>(index)) == 0;
    inputs[0].floats()[0] = target[0] = 0;
  }
  bool surprised() const { return surprised_; }
  size_t largest() const { return largest_; }

 private:
  // Used by the loader's thread while it runs.
  mutable std::set<uint32_t> announced_;
  mutable size_t largest_ = 0;
  mutable bool surprised_ = false;
  const Shape shape_{1};
};

TEST(BatchLoader, AnnouncesTheExamplesOfABatchBeforeItReadsThem) {
  const DatasetOnDisk dataset;
  {
    BatchLoader loader(dataset, {.num_examples = 40, .batch_size = 8});
    for (int64_t position = 0; position < 5; ++position) loader.Next(position);
  }  // the destructor waits for the thread
  EXPECT_FALSE(dataset.surprised());
  EXPECT_EQ(dataset.largest(), 8u);
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
  // With depth 1 there are only two batches: this one, and one that is being filled.
  while (dataset.reads < 4) std::this_thread::yield();
  EXPECT_THAT(Rows(batch.inputs.buffers()[0], 2, batch), ElementsAre(0, 0, 1, -1));
}

TEST(BatchLoader, PreparesNoMoreThanDepthBatchesAhead) {
  const CountingDataset dataset(64);
  {
    BatchLoader loader(dataset, {.num_examples = 64, .batch_size = 2}, 3);
    loader.Next(0);
  }  // the destructor waits for the thread
  EXPECT_LE(dataset.reads, 2 * (1 + 3));
}

TEST(BatchLoader, EveryBatchIsInOneOfTheBuffers) {
  const CountingDataset dataset(64, /*weighted=*/true);
  BatchLoader loader(dataset, {.num_examples = 64, .batch_size = 2});
  const std::vector<absl::Span<const float>> buffers = loader.buffers();
  EXPECT_EQ(buffers.size(), 3u * 3u);
  const auto is_one = [&](const AlignedBuffer& buffer) {
    return std::any_of(buffers.begin(), buffers.end(), [&](absl::Span<const float> one) {
      return one.data() == buffer.data() && static_cast<int64_t>(one.size()) == buffer.size();
    });
  };
  for (const int64_t position : {0, 1, 2, 3, 4, 20, 3}) {
    const Batch& batch = loader.Next(position);
    EXPECT_TRUE(is_one(batch.inputs.buffers()[0]) && is_one(batch.targets) && is_one(batch.weights))
        << position;
  }
}

TEST(BatchLoader, AnEmptyLastBatchHasNoExamples) {
  const CountingDataset dataset(5);
  BatchLoader loader(dataset, {.num_examples = 5, .num_workers = 2, .worker = 1, .batch_size = 2});
  EXPECT_EQ(loader.Next(1).examples, 0);
}

// Used or not, the loader has then prepared no more than its buffers hold for each position, far from an
// epoch.
TEST(BatchLoader, StopsPreparingWhenDestroyed) {
  for (int i = 0; i < 50; ++i) {
    const CountingDataset dataset(1000);
    {
      BatchLoader loader(dataset, {.num_examples = 1000, .batch_size = 10}, 2);
      for (int64_t position = 0; position < i % 4; ++position) loader.Next(position * 2);
    }
    EXPECT_LT(dataset.reads, 1000);
  }
}

TEST(BatchLoader, ShowsTheFollowingBatchesWhereNextWillReturnThem) {
  const CountingDataset dataset(64);
  const SamplerOptions options{.num_examples = 64, .batch_size = 4, .seed = 9};
  BatchLoader loader(dataset, options, 3);
  std::vector<const float*> at;  // [position] where the inputs are, as they were shown three batches before
  for (int64_t position = 0; position < 40; ++position) {
    const float* const current = loader.Next(position).inputs.buffers()[0].data();
    if (position >= 3) {
      EXPECT_EQ(current, at[static_cast<size_t>(position) - 3]);
    }
    for (const int ahead : {1, 3, 2}) ExpectBatch(loader.Ahead(ahead), position + ahead, dataset, options);
    at.push_back(loader.Ahead(3).inputs.buffers()[0].data());
  }
  BatchLoader runs(dataset, options);
  runs.Next({0, 4, 4}, {{{1, 8, 4}}});
  EXPECT_EQ(runs.Ahead(1).epoch, 1);
  const uint32_t first = runs.Ahead(1).rows[0];
  EXPECT_EQ(runs.Next({1, 8, 4}, {}).rows[0], first);
}

TEST(BatchLoader, MakesBatchesOfTheRequestedRuns) {
  const CountingDataset dataset(20);
  const SamplerOptions options = {.num_examples = 20, .batch_size = 4, .seed = 3};
  BatchLoader loader(dataset, options);
  Sampler sampler(options);
  // Each run with the runs ahead of it. The third differs from what the second announced.
  const std::vector<std::pair<data::Run, std::vector<data::Run>>> asked = {
      {{0, 4, 4}, {{0, 8, 4}}}, {{0, 8, 4}, {{0, 12, 4}}}, {{1, 0, 4}, {{0, 12, 4}}},
      {{0, 12, 4}, {}},         {{1, 17, 3}, {}},          {{1, 20, 0}, {{1, 17, 3}}}};
  for (const auto& [run, ahead] : asked) {
    const Batch& batch = loader.Next(run, ahead);
    EXPECT_EQ(batch.epoch, run.epoch);
    EXPECT_EQ(batch.index, run.first / 4);
    ASSERT_EQ(batch.examples, run.count);
    const std::vector<uint32_t> examples = sampler.Run(run.epoch, run.first, run.count);
    for (size_t row = 0; row < examples.size(); ++row) {
      EXPECT_EQ(batch.inputs.buffers()[0].data()[2 * row], static_cast<float>(examples[row]));
    }
  }
}

TEST(BatchLoader, PreparesTheRunThatIsAhead) {
  const CountingDataset dataset(20);
  BatchLoader loader(dataset, {.num_examples = 20, .batch_size = 4});
  const data::Run first = {0, 0, 4}, second = {0, 4, 4};
  loader.Next(first, {&second, 1});
  while (dataset.reads < 8) std::this_thread::yield();  // otherwise the test runs into its time limit
  loader.Next(second, {});
  EXPECT_EQ(dataset.reads, 8) << "the run must not be read again";
}

}  // namespace
}  // namespace cairn::data
