#include "kernels/cuda/nccl/nccl_peers.h"

#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/system/thread.h"
#include "kernels/cuda/runtime/handles.h"
#include "tests/support/cuda_on_cpu/fake_nccl_peers.h"

namespace cairn::kernels::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TimePoint Later() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(60);
}

// Members of one group, each with its own thread and its own device.
class NcclPeersTest : public testing::Test {
 protected:
  static constexpr auto kNoLimit = std::chrono::seconds(60);

  void Each(int members, const std::function<void(int member)>& body) {
    std::vector<Thread> threads;
    for (int member = 0; member < members; ++member)
      threads.emplace_back("member", [&body, member] { body(member); });
  }
  absl::StatusOr<std::unique_ptr<PeerGroup>> Join(int member, int members, const std::string& group,
                                                  NcclPeerLimits limits = {.end = Duration::zero()},
                                                  std::function<absl::Status()> look = &absl::OkStatus) {
    const auto device = MakeNcclPeer(nccl_.library(), member, limits).value();
    return device->Join({.group = group, .member = member, .members = members, .look = std::move(look)});
  }
  std::string Draw() { return MakeNcclPeer(nccl_.library(), 0).value()->DrawGroup().value(); }
  // The status with which member 1 of two is refused; the other one is stopped.
  std::string Refused(NcclPeerLimits limits = {.end = Duration::zero()}) {
    const std::string group = Draw();
    std::atomic<bool> over{false};
    std::string text;
    Each(2, [&](int member) {
      const auto stop = [&over] { return over ? absl::AbortedError("it is over") : absl::OkStatus(); };
      const absl::Status status =
          Join(member, 2, group, member == 1 ? limits : NcclPeerLimits{.end = Duration::zero()}, stop)
              .status();
      EXPECT_FALSE(status.ok());
      if (member == 0) return;
      text = status.ToString();
      over = true;
    });
    EXPECT_EQ(nccl_.communicators(), 0);
    return text;
  }

  cuda_on_cpu::FakeNcclPeers nccl_;
};

// Member m's gradient is m + 1 + i % 7 at i.
struct Part {
  Part(int member, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      values.push_back(static_cast<float>(member + 1) + static_cast<float>(i % 7));
  }
  std::vector<float> values;
};

TEST_F(NcclPeersTest, SumByWeightsIntoPinnedAndUnpinnedMemory) {
  for (const bool pinned : {true, false}) {
    for (const int members : {2, 3}) {
      SCOPED_TRACE(absl::StrCat(members, pinned ? " pinned" : ""));
      const std::string drawn = Draw();
      Each(members, [&](int member) {
        const auto group = Join(member, members, drawn);
        ASSERT_TRUE(group.ok()) << group.status();
        for (const float scale : {1.0f, 1.0f, 0.5f, 1.0f}) {
          Part long_part(member, 1000), short_part(member, 1);
          std::vector<float> host(1001);
          if (pinned) {
            ASSERT_EQ(cudaHostRegister(host.data(), host.size() * sizeof(float), 0), cudaSuccess);
          }
          const float weight = scale * static_cast<float>(member);  // the weight of member 0 is 0
          (*group)->Begin(
              0, {.part = long_part.values.data(), .weight = weight, .count = 1000, .host = host.data()},
              Later());
          (*group)->Begin(
              4, {.part = short_part.values.data(), .weight = weight, .count = 1, .host = host.data() + 1000},
              Later());
          EXPECT_EQ((*group)->Await(4, Later()), absl::OkStatus());
          EXPECT_EQ((*group)->Await(0, Later()), absl::OkStatus());
          if (pinned) cudaHostUnregister(host.data());
          for (int64_t i = 0; i <= 1000; ++i) {
            float expected = 0;
            for (int other = 1; other < members; ++other) {
              expected += static_cast<float>(other) *
                          (static_cast<float>(other + 1) + static_cast<float>(i == 1000 ? 0 : i % 7));
            }
            ASSERT_EQ(host[static_cast<size_t>(i)], scale * expected) << i;
          }
        }
      });
    }
  }
  EXPECT_EQ(nccl_.communicators(), 0);
}

TEST_F(NcclPeersTest, DevicesHaveDifferentIds) {
  const auto first = MakeNcclPeer(nccl_.library(), 0).value(),
             second = MakeNcclPeer(nccl_.library(), 1).value();
  EXPECT_EQ(first->library(), "NCCL 2.28.9");
  EXPECT_NE(first->id(), second->id());
  EXPECT_EQ(first->id(), MakeNcclPeer(nccl_.library(), 0).value()->id());
  EXPECT_NE(first->DrawGroup().value(), first->DrawGroup().value());
}

TEST_F(NcclPeersTest, AFailedCallOfJoinIsNamed) {
  for (const char* call :
       {"ncclCommInitRankConfig", "ncclCommGetAsyncError", "ncclRedOpCreatePreMulSum", "ncclAllReduce"}) {
    nccl_.Set({.failing = call});
    EXPECT_EQ(Refused(), absl::StrCat("INTERNAL: NCCL 2.28.9 between the GPUs of 2 workers: ", call,
                                      ": a fault: of the test"));
  }
  nccl_.Set({.failing = "ncclGetUniqueId"});
  EXPECT_EQ(MakeNcclPeer(nccl_.library(), 0).value()->DrawGroup().status(),
            absl::InternalError("NCCL 2.28.9: ncclGetUniqueId: a fault: of the test"));
}

TEST_F(NcclPeersTest, AnInvalidGroupIsRefused) {
  EXPECT_THAT(Join(0, 2, "short").status().ToString(),
              HasSubstr("a group identifier of 5 bytes is not one of NCCL's"));
}

TEST_F(NcclPeersTest, WrongSumsAreDetectedWhenAGroupIsMade) {
  nccl_.Set({.wrong = true});
  EXPECT_THAT(Refused(), HasSubstr("between the GPUs of 2 workers: wrong sum: "));
}

TEST_F(NcclPeersTest, JoinEndsAtItsLimitIfAMemberIsMissing) {
  const absl::Status status =
      Join(0, 2, Draw(), {.setup = Duration::zero(), .end = Duration::zero()}).status();
  EXPECT_EQ(status, absl::DeadlineExceededError("NCCL 2.28.9 between the GPUs of 2 workers: "
                                                "ncclCommInitRankConfig did not finish in time"));
  EXPECT_EQ(nccl_.communicators(), 0);
}

TEST_F(NcclPeersTest, AnErrorOfLookEndsJoinBeforeItsLimit) {
  int looks = 0;
  const absl::Status status = Join(0, 2, Draw(), {.setup = kNoLimit, .end = Duration::zero()}, [&looks] {
                                return ++looks < 3 ? absl::OkStatus() : absl::AbortedError("lost worker/1");
                              }).status();
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("lost worker/1"));
  EXPECT_EQ(nccl_.communicators(), 0);
}

// Failures of a group of two that has worked before: the status of a sum on member 0 whose peer does not
// respond.
class BrokenPeers : public NcclPeersTest {
 protected:
  absl::Status Alone(const std::function<void()>& then, TimePoint deadline, bool other_begins) {
    const std::string drawn = Draw();
    std::vector<std::unique_ptr<PeerGroup>> groups(2);
    Each(2, [&](int member) {
      groups[static_cast<size_t>(member)] =
          Join(member, 2, drawn, {.end = Duration::zero()}, [this] { return stop_; }).value();
    });
    then();
    absl::Status status;
    std::vector<Part> parts = {Part(0, 5), Part(1, 5)};
    std::vector<std::vector<float>> hosts(2, std::vector<float>(5));
    Each(other_begins ? 2 : 1, [&](int member) {
      const auto at = static_cast<size_t>(member);
      PeerGroup& group = *groups[at];
      const PeerGroup::Sum sum = {.part = parts[at].values.data(), .count = 5, .host = hosts[at].data()};
      group.Begin(0, sum, deadline);
      const absl::Status first = group.Await(0, deadline);
      EXPECT_FALSE(first.ok());
      group.Begin(1, sum, Later());  // all later sums end with the same status
      EXPECT_EQ(group.Await(1, Later()), first);
      if (member == (other_begins ? 1 : 0)) status = first;
    });
    EXPECT_THAT(hosts[0], testing::Each(0.0f));
    return status;
  }
  absl::Status stop_;
};

TEST_F(BrokenPeers, AnErrorOfLookEndsASumWithoutTheOthers) {
  const absl::Status status = Alone([this] { stop_ = absl::AbortedError("lost worker/1"); }, Later(), false);
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("lost worker/1"));
}

TEST_F(BrokenPeers, ASumWithoutTheOthersEndsAtItsDeadline) {
  EXPECT_EQ(Alone([] {}, TimePoint(), false),
            absl::DeadlineExceededError("NCCL 2.28.9 between the GPUs of 2 workers: ncclAllReduce did not "
                                        "finish in time"));
}

TEST_F(BrokenPeers, AnAsynchronousErrorEndsTheWaitOfItsMember) {
  const absl::Status status = Alone([this] { nccl_.Set({.stalls = true, .later = ncclRemoteError}); },
                                    std::chrono::steady_clock::now() + std::chrono::milliseconds(1), true);
  EXPECT_EQ(status,
            absl::InternalError("NCCL 2.28.9 between the GPUs of 2 workers: ncclAllReduce: a fault: of "
                                "the test"));
}

}  // namespace
}  // namespace cairn::kernels::cuda
