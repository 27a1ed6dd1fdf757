#include "data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

namespace cairn::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The batches of worker `worker` in one epoch.
std::vector<std::vector<uint32_t>> EpochOf(SamplerOptions options, int64_t worker, int64_t epoch) {
  options.worker = worker;
  Sampler sampler(options);
  std::vector<std::vector<uint32_t>> batches;
  for (int64_t j = 0; j < sampler.batches_per_epoch(); ++j) batches.push_back(sampler.Batch(epoch, j));
  return batches;
}

std::vector<uint32_t> Flatten(const std::vector<std::vector<uint32_t>>& batches) {
  std::vector<uint32_t> all;
  for (const auto& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

TEST(Sampler, WithoutShuffleWorkersTakeEveryKthExample) {
  const SamplerOptions options{.num_examples = 8, .num_workers = 2, .batch_size = 2, .shuffle = false};
  EXPECT_THAT(EpochOf(options, 0, 0), ElementsAre(ElementsAre(0, 2), ElementsAre(4, 6)));
  EXPECT_THAT(EpochOf(options, 1, 0), ElementsAre(ElementsAre(1, 3), ElementsAre(5, 7)));
}

TEST(Sampler, WorkersBatchesInterleavedAreTheOneWorkerBatch) {
  for (const int64_t examples : {1, 7, 60, 64, 97}) {
    for (const int64_t workers : {1, 2, 3, 5}) {
      for (const int64_t batch_size : {1, 4, 8}) {
        SamplerOptions options{
            .num_examples = examples, .num_workers = workers, .batch_size = batch_size, .seed = 7};
        SamplerOptions alone = options;
        alone.num_workers = 1;
        alone.batch_size = workers * batch_size;
        for (const int64_t epoch : {0, 3}) {
          const auto expected = EpochOf(alone, 0, epoch);
          std::vector<std::vector<std::vector<uint32_t>>> per_worker;
          for (int64_t r = 0; r < workers; ++r) per_worker.push_back(EpochOf(options, r, epoch));
          for (size_t j = 0; j < expected.size(); ++j) {
            // Position p of the large batch is position p / K of worker p % K.
            std::vector<uint32_t> together(expected[j].size());
            size_t count = 0;
            for (size_t r = 0; r < per_worker.size(); ++r) {
              ASSERT_EQ(per_worker[r].size(), expected.size());
              count += per_worker[r][j].size();
              for (size_t i = 0; i < per_worker[r][j].size(); ++i) {
                ASSERT_LT(i * per_worker.size() + r, together.size());
                together[i * per_worker.size() + r] = per_worker[r][j][i];
              }
            }
            ASSERT_EQ(count, expected[j].size());
            ASSERT_EQ(together, expected[j])
                << examples << " examples, " << workers << " workers, batch " << j;
          }
        }
      }
    }
  }
}

TEST(Sampler, ExactGivesEveryExampleOnce) {
  const SamplerOptions options{.num_examples = 101, .num_workers = 4, .batch_size = 8, .seed = 1};
  std::vector<uint32_t> seen;
  for (int64_t r = 0; r < 4; ++r) {
    for (uint32_t example : Flatten(EpochOf(options, r, 5))) seen.push_back(example);
  }
  std::sort(seen.begin(), seen.end());
  std::vector<uint32_t> all(101);
  std::iota(all.begin(), all.end(), 0u);
  EXPECT_EQ(seen, all);
}

TEST(Sampler, ExactMayLeaveAWorkersLastBatchEmpty) {
  const SamplerOptions options{.num_examples = 5, .num_workers = 2, .batch_size = 2, .shuffle = false};
  EXPECT_THAT(EpochOf(options, 0, 0), ElementsAre(ElementsAre(0, 2), ElementsAre(4)));
  EXPECT_THAT(EpochOf(options, 1, 0), ElementsAre(ElementsAre(1, 3), IsEmpty()));
}

// list(DistributedSampler(range(10), num_replicas=4, rank=r, shuffle=False)): 10 is padded to 12 with 0, 1.
TEST(Sampler, PadRepeatsTheFirstExamplesAsDistributedSampler) {
  const SamplerOptions options{
      .num_examples = 10, .num_workers = 4, .batch_size = 3, .shuffle = false, .tail = Tail::kPad};
  EXPECT_THAT(Flatten(EpochOf(options, 0, 0)), ElementsAre(0, 4, 8));
  EXPECT_THAT(Flatten(EpochOf(options, 1, 0)), ElementsAre(1, 5, 9));
  EXPECT_THAT(Flatten(EpochOf(options, 2, 0)), ElementsAre(2, 6, 0));
  EXPECT_THAT(Flatten(EpochOf(options, 3, 0)), ElementsAre(3, 7, 1));
}

// DistributedSampler repeats the whole list if the padding is longer: (0,1) * 3 = 0,1,0,1,0 for 5 ranks.
TEST(Sampler, PadRepeatsAShortListSeveralTimes) {
  const SamplerOptions options{
      .num_examples = 2, .num_workers = 5, .batch_size = 1, .shuffle = false, .tail = Tail::kPad};
  for (int64_t r = 0; r < 5; ++r) {
    EXPECT_THAT(Flatten(EpochOf(options, r, 0)), ElementsAre(static_cast<uint32_t>(r % 2)));
  }
}

// list(DistributedSampler(range(10), 4, r, shuffle=False, drop_last=True)): 8 of the 10 remain.
TEST(Sampler, DropOmitsTheTailAsDistributedSampler) {
  const SamplerOptions options{
      .num_examples = 10, .num_workers = 4, .batch_size = 2, .shuffle = false, .tail = Tail::kDrop};
  EXPECT_THAT(Flatten(EpochOf(options, 0, 0)), ElementsAre(0, 4));
  EXPECT_THAT(Flatten(EpochOf(options, 3, 0)), ElementsAre(3, 7));
}

TEST(Sampler, EpochsAndSeedsGiveDifferentOrders) {
  SamplerOptions options{.num_examples = 100, .batch_size = 100, .seed = 1};
  const auto first = Flatten(EpochOf(options, 0, 0));
  EXPECT_NE(first, Flatten(EpochOf(options, 0, 1)));
  EXPECT_EQ(first, Flatten(EpochOf(options, 0, 0)));
  options.seed = 2;
  EXPECT_NE(first, Flatten(EpochOf(options, 0, 0)));
}

TEST(Sampler, AnyBatchOfAnyEpochCanBeRequestedFirst) {
  const SamplerOptions options{.num_examples = 50, .batch_size = 8, .seed = 3};
  const auto in_order = EpochOf(options, 0, 2);
  Sampler sampler(options);
  EXPECT_EQ(sampler.Batch(2, 6), in_order[6]);
  sampler.Batch(0, 0);
  EXPECT_EQ(sampler.Batch(2, 1), in_order[1]);
}

TEST(Sampler, InvalidOptionsAreRefused) {
  const struct {
    SamplerOptions options;
    const char* words;
  } kCases[] = {
      {{.num_examples = 0}, "holds no examples"},
      {{.num_examples = int64_t{1} << 40}, "more than 2^31"},
      {{.num_examples = 4, .num_workers = 0}, "cannot divide the data among 0 workers"},
      {{.num_examples = 4, .num_workers = 2, .worker = 2}, "worker 2 is not one of 0 to 1"},
      {{.num_examples = 4, .batch_size = 0}, "the batch size is 0"},
      {{.num_examples = 3, .num_workers = 4, .tail = Tail::kDrop},
       "3 examples do not give each of 4 workers one"},
  };
  for (const auto& test : kCases) {
    EXPECT_THAT(std::string(Validate(test.options).message()), HasSubstr(test.words));
  }
  EXPECT_TRUE(Validate({.num_examples = 3, .num_workers = 4}).ok());
}

TEST(Sampler, KnowsHowManyExamplesAllWorkersHaveSeen) {
  for (const Tail tail : {Tail::kExact, Tail::kPad, Tail::kDrop}) {
    SamplerOptions options = {.num_examples = 23, .num_workers = 3, .batch_size = 4, .tail = tail};
    std::vector<Sampler> samplers;
    for (options.worker = 0; options.worker < 3; ++options.worker) samplers.emplace_back(options);
    int64_t seen = 0;
    for (int64_t position = 0; position < 7; ++position) {
      EXPECT_EQ(samplers[0].ExamplesBefore(position), seen) << "before batch " << position;
      const int64_t batches = samplers[0].batches_per_epoch();
      for (Sampler& sampler : samplers) {
        seen += static_cast<int64_t>(sampler.Batch(position / batches, position % batches).size());
      }
    }
  }
}

TEST(Sampler, ARunIsPartOfTheEpochsOrder) {
  Sampler one({.num_examples = 10, .batch_size = 10, .seed = 5});
  const std::vector<uint32_t> order = one.Batch(3, 0);
  EXPECT_EQ(one.Run(3, 4, 3), std::vector<uint32_t>(order.begin() + 4, order.begin() + 7));
  EXPECT_TRUE(one.Run(3, 10, 0).empty());
}

}  // namespace
}  // namespace cairn::data
