#include "optim/apply.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "common/core/random.h"
#include "gtest/gtest.h"
#include "tests/unit/optim/trained_variable.h"

namespace cairn::optim {
namespace {

const OptimizerConfig kSubtract{"SGD", {{"learning_rate", 1}}};  // new = old - mean

// The result of ApplyMean for variables of 0 under kSubtract: minus the mean.
std::vector<float> NegativeMean(const std::vector<WeightedGradient>& gradients, int64_t count,
                                Isa isa = WidestIsa()) {
  const auto sgd = MakeOptimizer(kSubtract, isa).value();
  const std::vector<float> zeros(static_cast<size_t>(count));
  std::vector<float> result(zeros.size());
  EXPECT_EQ(ApplyMean(*sgd, {1, 1}, gradients, {count, zeros.data(), {}, result.data()}, isa), kAllFinite);
  return result;
}

std::vector<float> RandomFloats(int64_t count, uint64_t seed) {
  Random random(seed, "apply_test");
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(random.NextNormal());
  return values;
}

bool SameBits(const float* a, const std::vector<float>& b) {
  return std::memcmp(a, b.data(), b.size() * sizeof(float)) == 0;
}

TEST(ApplyMean, EqualExamplesGiveThePlainMean) {
  const std::vector<float> a = {1, 8}, b = {3, -4};
  EXPECT_EQ(NegativeMean({{a.data(), 7}, {b.data(), 7}}, 2), (std::vector<float>{-2, -2}));
}

TEST(ApplyMean, ContributorsAreWeightedByTheirExamples) {
  const std::vector<float> a = {4}, b = {8};
  EXPECT_EQ(NegativeMean({{a.data(), 96}, {b.data(), 32}}, 1), (std::vector<float>{-5}));
}

TEST(ApplyMean, ASingleGradientIsItsOwnMeanToTheBit) {
  const std::vector<float> gradient = RandomFloats(5000, 1);
  const std::vector<float> mean = NegativeMean({{gradient.data(), 7}}, 5000);
  for (size_t i = 0; i < mean.size(); ++i) ASSERT_EQ(mean[i], -gradient[i]);
}

TEST(ApplyMean, EqualExamplesOfAnyNumberAreUnweightedToTheBit) {
  const std::vector<float> a = RandomFloats(100, 1), b = RandomFloats(100, 2), c = RandomFloats(100, 3);
  const std::vector<float> mean = NegativeMean({{a.data(), 31}, {b.data(), 31}, {c.data(), 31}}, 100);
  for (size_t i = 0; i < mean.size(); ++i) ASSERT_EQ(mean[i], -((a[i] + b[i] + c[i]) / 3));
}

TEST(ApplyMean, KWorkersWithBatchBEqualOneWorkerWithBatchKTimesB) {
  // Sums over 4 examples each, all integers: the worker's mean and the mean of means are exact.
  const std::vector<float> batch_sums[] = {{4, 8, -12}, {20, 0, 4}, {-8, 16, 4}, {0, 0, 8}};
  std::vector<std::vector<float>> means;
  std::vector<float> one_worker(3);
  for (const auto& sums : batch_sums) {
    means.push_back({sums[0] / 4, sums[1] / 4, sums[2] / 4});
    for (size_t i = 0; i < 3; ++i) one_worker[i] += sums[i] / 16;
  }
  EXPECT_EQ(NegativeMean(
                {{means[0].data(), 4}, {means[1].data(), 4}, {means[2].data(), 4}, {means[3].data(), 4}}, 3),
            NegativeMean({{one_worker.data(), 16}}, 3));
}

TEST(ApplyMean, SumsInTheGivenOrder) {
  const std::vector<float> huge = {1e8f}, minus_huge = {-1e8f}, one = {1};
  EXPECT_EQ(NegativeMean({{huge.data(), 1}, {minus_huge.data(), 1}, {one.data(), 1}, {one.data(), 1}}, 1)[0],
            -0.5f);
  EXPECT_EQ(NegativeMean({{huge.data(), 1}, {one.data(), 1}, {minus_huge.data(), 1}, {one.data(), 1}}, 1)[0],
            -0.25f);
}

TEST(ApplyMean, AContributorWithoutExamplesIsNotRead) {
  const std::vector<float> a = {4};
  EXPECT_EQ(NegativeMean({{nullptr, 0}, {a.data(), 3}}, 1), (std::vector<float>{-4}));
}

TEST(ApplyMean, WithoutExamplesTheMeanIsZeroAndMomentumContinues) {
  TrainedVariable variable({"SGD", {{"learning_rate", 1}, {"momentum", 0.5}}}, {0});
  variable.Step({4});  // momentum and value -4
  const Slot slots[] = {InPlace(variable.slots()[0].data())};
  const WeightedGradient nothing[] = {{nullptr, 0}};
  EXPECT_EQ(ApplyMean(variable.optimizer(), {2, 1}, nothing,
                      {1, variable.values().data(), slots, variable.values().data()}),
            kAllFinite);
  EXPECT_EQ(variable.values()[0], -6);
}

TEST(ApplyMean, AnEmptyRangeIsAllFinite) {
  const WeightedGradient gradient[] = {{nullptr, 1}};
  EXPECT_EQ(ApplyMean(*MakeOptimizer(kSubtract).value(), {1, 1}, gradient, {0, nullptr, {}, nullptr}),
            kAllFinite);
}

TEST(ApplyMean, AgreesWithANaiveMeanInDouble) {
  const int64_t count = 5001;
  const int64_t examples[] = {32, 32, 17, 1, 64, 0, 3, 5, 64, 2};
  std::vector<std::vector<float>> gradients;
  std::vector<WeightedGradient> weighted;
  for (int n = 1; n <= 10; ++n) {
    gradients.push_back(RandomFloats(count, static_cast<uint64_t>(n)));
    weighted.push_back({gradients.back().data(), examples[n - 1]});
    const std::vector<float> actual = NegativeMean(weighted, count);
    for (size_t i = 0; i < actual.size(); ++i) {
      double sum = 0, total = 0;
      for (const WeightedGradient& g : weighted) {
        sum += static_cast<double>(g.values[i]) * static_cast<double>(g.examples);
        total += static_cast<double>(g.examples);
      }
      ASSERT_NEAR(actual[i], -sum / total, 2e-6) << "element " << i << " of " << n << " contributors";
    }
  }
}

class NonFiniteAt : public testing::TestWithParam<int64_t> {};

TEST_P(NonFiniteAt, TheFirstBadElementIsReported) {
  const int64_t count = 40962;
  const auto sgd = MakeOptimizer(kSubtract).value();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    const std::vector<float> good(count, 1);
    std::vector<float> gradient(count, 1);
    gradient[static_cast<size_t>(GetParam())] = bad;
    gradient[count - 1] = bad;
    std::vector<float> result(count);
    const WeightedGradient gradients[] = {{good.data(), 1}, {gradient.data(), 1}};
    for (Isa isa : SupportedIsas()) {
      EXPECT_EQ(ApplyMean(*sgd, {1, 1}, gradients, {count, good.data(), {}, result.data()}, isa), GetParam());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Positions, NonFiniteAt, testing::Values(0, 1, 17, 16383, 16384, 32770, 40961));

TEST(ApplyMean, ASumThatOverflowsIsReported) {
  const std::vector<float> largest = {1, std::numeric_limits<float>::max()};
  const WeightedGradient gradients[] = {{largest.data(), 1}, {largest.data(), 1}};
  std::vector<float> values = {0, 0};
  EXPECT_EQ(
      ApplyMean(*MakeOptimizer(kSubtract).value(), {1, 1}, gradients, {2, values.data(), {}, values.data()}),
      1);
}

TEST(ApplyMean, TheLargestFiniteGradientIsAccepted) {
  const std::vector<float> largest = {std::numeric_limits<float>::max(), -std::numeric_limits<float>::max()};
  EXPECT_EQ(NegativeMean({{largest.data(), 1}}, 2)[0], -std::numeric_limits<float>::max());
}

constexpr int64_t kCount = 32771;  // prime

// A variable of kCount elements, updated by three gradients in pieces that are divided at `cuts`.
struct Updated {
  std::vector<float> values;
  std::vector<std::vector<float>> slots;
};

Updated UpdateInChunks(const OptimizerConfig& config, std::vector<int64_t> cuts, Isa isa) {
  static const std::vector<float> values = RandomFloats(kCount, 10), a = RandomFloats(kCount, 11),
                                  b = RandomFloats(kCount, 12), c = RandomFloats(kCount, 13);
  TrainedVariable variable(config, values, isa);
  std::vector<float> next(static_cast<size_t>(kCount));
  cuts.push_back(kCount);
  int64_t begin = 0;
  for (int64_t end : cuts) {
    const WeightedGradient gradients[] = {
        {a.data() + begin, 31}, {b.data() + begin, 32}, {c.data() + begin, 5}};
    std::vector<Slot> slots = variable.slots_in_place();
    for (Slot& slot : slots) slot = InPlace(slot.to + begin);
    EXPECT_EQ(ApplyMean(variable.optimizer(), {3, 0.1f}, gradients,
                        {end - begin, variable.values().data() + begin, slots, next.data() + begin}, isa),
              kAllFinite);
    begin = end;
  }
  return {next, variable.slots()};
}

class ApplyInChunks : public testing::TestWithParam<Rule> {};

TEST_P(ApplyInChunks, GivesTheSameBitsAsTheWholeOnEveryInstructionSet) {
  const Updated whole = UpdateInChunks(GetParam().config, {}, Isa::kBaseline);
  const std::vector<int64_t> cut_lists[] = {
      {}, {1}, {32770}, {3, 20, 53}, {16383, 16384, 16386}, {1000, 1016, 1033, 4097}, {0, 5, 5, 6000}};
  for (Isa isa : SupportedIsas()) {
    for (const std::vector<int64_t>& cuts : cut_lists) {
      const Updated pieces = UpdateInChunks(GetParam().config, cuts, isa);
      EXPECT_TRUE(SameBits(pieces.values.data(), whole.values))
          << IsaName(isa) << ", " << cuts.size() << " cuts";
      for (size_t s = 0; s < whole.slots.size(); ++s) {
        EXPECT_TRUE(SameBits(pieces.slots[s].data(), whole.slots[s])) << IsaName(isa) << ", slot " << s;
      }
    }
  }
}

TEST_P(ApplyInChunks, GivesTheSameBitsWithSlotsOutOfPlace) {
  const int64_t count = 2051;
  const std::vector<float> gradient = RandomFloats(count, 11);
  const WeightedGradient gradients[] = {{gradient.data(), 1}};
  for (Isa isa : SupportedIsas()) {
    for (const float rate : {0.1f, 0.0f}) {
      TrainedVariable in_place(GetParam().config, RandomFloats(count, 10), isa);
      TrainedVariable elsewhere(GetParam().config, RandomFloats(count, 10), isa);
      in_place.Step(gradient);  // makes the slots differ from their initial values
      elsewhere.Step(gradient);
      const std::vector<std::vector<float>> old_slots = elsewhere.slots();
      std::vector<std::vector<float>> new_slots(old_slots.size(), std::vector<float>(gradient.size(), -7));
      std::vector<Slot> slots;
      for (size_t s = 0; s < old_slots.size(); ++s) {
        slots.push_back({elsewhere.slots()[s].data(), new_slots[s].data()});
      }
      std::vector<float> next(gradient.size()), next_elsewhere(gradient.size());
      ASSERT_EQ(ApplyMean(in_place.optimizer(), {2, rate}, gradients,
                          {count, in_place.values().data(), in_place.slots_in_place(), next.data()}, isa),
                kAllFinite);
      ASSERT_EQ(ApplyMean(elsewhere.optimizer(), {2, rate}, gradients,
                          {count, elsewhere.values().data(), slots, next_elsewhere.data()}, isa),
                kAllFinite);
      EXPECT_TRUE(SameBits(next_elsewhere.data(), next)) << IsaName(isa) << ", rate " << rate;
      EXPECT_EQ(elsewhere.slots(), old_slots) << IsaName(isa) << ", rate " << rate;
      for (size_t s = 0; s < old_slots.size(); ++s) {
        EXPECT_TRUE(SameBits(new_slots[s].data(), in_place.slots()[s]))
            << IsaName(isa) << ", rate " << rate << ", slot " << s;
      }
    }
  }
}

TEST_P(ApplyInChunks, GivesTheSameBitsWhenItWritesPastTheCaches) {
  const int64_t count = 2051;
  const std::vector<float> a = RandomFloats(count, 11), b = RandomFloats(count, 12);
  const WeightedGradient gradients[] = {{a.data(), 1}, {b.data(), 2}};
  for (Isa isa : SupportedIsas()) {
    for (const size_t contributors : {1, 2}) {
      for (const int64_t begin : {0, 1, 16}) {  // offsets in a cache line
        const auto update = [&](bool streams, std::vector<std::vector<float>>& written) {
          TrainedVariable variable(GetParam().config, RandomFloats(count, 10), isa);
          variable.Step(a);
          const auto from = [&](std::vector<float>& of) { return of.data() + begin; };
          written.assign(variable.slots().size() + 1, std::vector<float>(a.size() + 16, -7));
          std::vector<Slot> slots;
          for (size_t s = 0; s < variable.slots().size(); ++s) {
            slots.push_back({from(variable.slots()[s]), written[s].data() + begin});
          }
          std::vector<WeightedGradient> shifted(gradients, gradients + contributors);
          for (WeightedGradient& gradient : shifted) gradient.values += begin;
          EXPECT_EQ(ApplyMean(variable.optimizer(), {2, 0.1f}, shifted,
                              {.count = count - begin,
                               .old_values = from(variable.values()),
                               .slots = slots,
                               .new_values = written.back().data() + begin,
                               .streams = streams},
                              isa),
                    kAllFinite);
        };
        std::vector<std::vector<float>> written, streamed;
        update(false, written);
        update(true, streamed);
        for (size_t s = 0; s < written.size(); ++s) {
          EXPECT_TRUE(SameBits(streamed[s].data(), written[s]))
              << IsaName(isa) << ", " << contributors << " gradients, from " << begin << ", slot " << s;
        }
      }
    }
  }
}

TEST(ApplyMean, FindsNonFiniteElementsWhenItWritesPastTheCaches) {
  const auto optimizer = MakeOptimizer(kSubtract).value();
  std::vector<float> gradient(1000, 1.0f), values(1000), next(1000);
  gradient[777] = std::numeric_limits<float>::quiet_NaN();
  const WeightedGradient lone = {gradient.data(), 1};
  EXPECT_EQ(ApplyMean(*optimizer, {1, 1}, {&lone, 1},
                      {.count = 1000,
                       .old_values = values.data(),
                       .slots = {},
                       .new_values = next.data(),
                       .streams = true}),
            777);
}

INSTANTIATE_TEST_SUITE_P(Rules, ApplyInChunks, EveryRule());

}  // namespace
}  // namespace cairn::optim
