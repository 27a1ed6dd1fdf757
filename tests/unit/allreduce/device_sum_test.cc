#include "worker/allreduce/device_sum.h"

#include <algorithm>

#include "common/core/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::allreduce {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A group with this one member.
struct Log {
  struct Begun {
    int64_t begin = 0, count = 0;
    float weight = 0;
    friend bool operator==(const Begun&, const Begun&) = default;
  };
  std::vector<Begun> begun;
  absl::Status fault;
};

class LonelyGroup final : public kernels::PeerGroup {
 public:
  LonelyGroup(Log& log, const float* gradient) : log_(log), gradient_(gradient) {}
  void Begin(size_t slot, const Sum& sum, TimePoint) override {
    sums_.resize(std::max(sums_.size(), slot + 1));
    sums_[slot] = sum;
    log_.begun.push_back({sum.part - gradient_, sum.count, sum.weight});
  }
  absl::Status Await(size_t slot, TimePoint) override {
    CAIRN_RETURN_IF_ERROR(log_.fault);
    const Sum& sum = sums_[slot];
    for (int64_t i = 0; i < sum.count; ++i) sum.host[i] = sum.weight * sum.part[i];
    return absl::OkStatus();
  }

 private:
  Log& log_;
  const float* const gradient_;
  std::vector<Sum> sums_;
};

class DeviceSumTest : public testing::Test {
 protected:
  DeviceSum Make(const std::vector<int64_t>& begins, int64_t bucket) {
    return {std::make_unique<LonelyGroup>(log_, gradient_.data()), begins, std::chrono::seconds(1), bucket};
  }
  void Begin(DeviceSum& sum) { sum.Begin(absl::MakeSpan(gradient_), absl::MakeSpan(mean_)); }

  std::vector<float> gradient_ = {10, 20, 30, 40, 50, 60};
  std::vector<float> mean_ = std::vector<float>(6);
  Log log_;
};

TEST_F(DeviceSumTest, BucketsAreWholeVariablesFromTheEnd) {
  DeviceSum sum = Make({0, 1, 2, 4, 6}, /*bucket=*/2);
  for (int step = 0; step < 2; ++step) {
    log_.begun.clear();
    Begin(sum);
    sum.Weigh(1, 2);
    for (int variable = 3; variable >= 0; --variable) sum.Announce(variable);
    EXPECT_THAT(log_.begun,
                ElementsAre(Log::Begun{4, 2, 0.5f}, Log::Begun{2, 2, 0.5f}, Log::Begun{0, 2, 0.5f}));
    EXPECT_EQ(sum.Await(), absl::OkStatus());
    EXPECT_THAT(mean_, ElementsAre(5, 10, 15, 20, 25, 30));
  }
}

TEST_F(DeviceSumTest, BucketsBeginInOrderWhateverIsFinalFirst) {
  DeviceSum sum = Make({0, 2, 4, 6}, /*bucket=*/2);
  Begin(sum);
  sum.Weigh(1, 1);
  sum.Announce(0);
  sum.Announce(1);
  EXPECT_THAT(log_.begun, IsEmpty());
  sum.Announce(2);
  EXPECT_THAT(log_.begun, ElementsAre(Log::Begun{4, 2, 1}, Log::Begun{2, 2, 1}, Log::Begun{0, 2, 1}));
}

TEST_F(DeviceSumTest, NoSumBeginsBeforeTheWeightsAreKnown) {
  DeviceSum sum = Make({0, 3, 6}, /*bucket=*/1);
  Begin(sum);
  sum.Announce(1);
  EXPECT_THAT(log_.begun, IsEmpty());
  sum.Weigh(3, 4);
  EXPECT_THAT(log_.begun, ElementsAre(Log::Begun{3, 3, 0.75f}));
  sum.Announce(0);
  EXPECT_EQ(log_.begun.size(), 2u);
}

TEST_F(DeviceSumTest, ATotalThatIsNoPowerOfTwoDividesTheSum) {
  DeviceSum sum = Make({0, 6}, /*bucket=*/1);
  Begin(sum);
  sum.Announce(0);
  sum.Weigh(3, 5);
  EXPECT_THAT(log_.begun, ElementsAre(Log::Begun{0, 6, 3}));
  EXPECT_EQ(sum.Await(), absl::OkStatus());
  EXPECT_THAT(mean_, ElementsAre(6, 12, 18, 24, 30, 36));
}

TEST_F(DeviceSumTest, AVariableWithoutElementsNeedsNoSum) {
  DeviceSum sum = Make({0, 0, 6, 6}, /*bucket=*/1);
  Begin(sum);
  sum.Weigh(1, 1);
  for (int variable = 2; variable >= 0; --variable) sum.Announce(variable);
  EXPECT_THAT(log_.begun, ElementsAre(Log::Begun{0, 6, 1}));
  EXPECT_EQ(sum.Await(), absl::OkStatus());
}

TEST_F(DeviceSumTest, AnErrorOfTheGroupIsReturned) {
  DeviceSum sum = Make({0, 6}, /*bucket=*/1);
  Begin(sum);
  sum.Announce(0);
  sum.Weigh(1, 1);
  log_.fault = absl::InternalError("a fault");
  EXPECT_EQ(sum.Await(), log_.fault);
}

}  // namespace
}  // namespace cairn::allreduce
