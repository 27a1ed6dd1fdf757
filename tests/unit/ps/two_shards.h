// The same pushes to a shard with speculative updates and to one without.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "common/net/wire/update_chunk.h"
#include "gtest/gtest.h"
#include "ps/shard/shard.h"
#include "tests/support/borrowed.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::ps {

inline constexpr int64_t kSize = net::kMinSpeculativeUpdate + 1001;  // the last piece is a short one
inline constexpr int64_t kChunk = 50'000;                            // ends nowhere near a piece

class QuietPort final : public SequencerPort {
 public:
  void ReportStaged(const Gradient&) override {}
  void ReportSums(Sums) override {}
  void ReportExecuted(int64_t) override {}
  void ReportWaiting(int64_t) override {}
};

// A worker's push to one shard, and what was sent in return.
struct Push {
  Gradient gradient;
  std::vector<float> values;
  std::vector<float> ahead = std::vector<float>(kSize, std::numeric_limits<float>::quiet_NaN());
  int sends = 0;                    // calls of send_values() before the answer
  int64_t sent = 0;                 // elements in those calls
  std::vector<uint64_t> allowed{};  // bytes, as granted to the worker
  std::optional<absl::StatusOr<PushResult>> answer{};
  std::unique_ptr<OpenPush> open{};  // may still grant credit at its end
};

// The last one is a moving average, as in BatchNormalization; none ends at the end of a piece.
inline std::vector<net::Slice> SlicesOfTwoShards() {
  std::vector<net::Slice> slices = Vectors({{"a", 1000}, {"b", kSize - 3000}, {"c", 2000}});
  slices.back().moving_average_momentum = 0.9f;
  return slices;
}

class Side {
 public:
  Side(bool ahead, const optim::OptimizerConfig& optimizer, ThreadPool* thread_pool = nullptr)
      : shard_({.slices = SlicesOfTwoShards(),
                .optimizer = optim::MakeOptimizer(optimizer).value(),
                .speculative_updates = ahead,
                .group_of_slice = {0, 1, -1},
                .thread_pool = thread_pool}) {
    shard_.ConnectTo(&port_);
  }

  void Begin(Push& push) {
    const auto take = [this, &push](const std::shared_ptr<const AlignedBuffer>& values, int64_t begin,
                                    int64_t end) {
      MutexLock lock(mutex_);
      std::copy(values->data() + begin, values->data() + end, push.ahead.begin() + begin);
      ++push.sends;
      push.sent += end - begin;
      return true;
    };
    const auto allow = [this, &push](uint64_t bytes) {
      MutexLock lock(mutex_);
      push.allowed.push_back(bytes);
    };
    push.open = shard_.BeginPush(
        {.gradient = push.gradient, .read_values = true, .send_values = take, .allow = allow});
  }
  void Chunk(Push& push, int64_t begin) { Chunk(push, begin, std::min(begin + kChunk, kSize)); }
  void Chunk(Push& push, int64_t begin, int64_t end) {
    EXPECT_EQ(
        push.open->AddChunk(ChunkAt(begin), Bytes({push.values.begin() + begin, push.values.begin() + end})),
        absl::OkStatus());
  }
  // As Chunk(), but the elements stay in the push's own memory.
  void BorrowedChunk(Push& push, int64_t begin) {
    const auto count = static_cast<size_t>(std::min(kChunk, kSize - begin));
    EXPECT_EQ(push.open->AddChunk(ChunkAt(begin), net::Borrowed({push.values.data() + begin, count})),
              absl::OkStatus());
  }
  void End(Push& push) {
    shard_.FinishPush(std::move(push.open),
                      [&push](absl::StatusOr<PushResult> result) { push.answer = std::move(result); });
  }
  void Whole(Push& push) {
    Begin(push);
    for (int64_t begin = 0; begin < kSize; begin += kChunk) Chunk(push, begin);
    End(push);
  }
  void Decide(LogEntry::Action action) {
    shard_.Append({shard_.next_index(), std::move(action)});
    shard_.Flush();
  }
  std::vector<float> values() { return ToVector(shard_.store().current()); }
  std::vector<float> slots() {
    const auto slots = shard_.store().CopySlots().value();
    return slots == nullptr ? std::vector<float>()
                            : std::vector<float>(slots->span().begin(), slots->span().end());
  }
  Shard& shard() { return shard_; }

 private:
  Mutex mutex_;  // pieces arrive on any thread
  QuietPort port_;
  Shard shard_;
};

// The same pushes to a shard with speculative updates and to one without.
class SpeculativeUpdateTest : public testing::TestWithParam<optim::OptimizerConfig> {
 protected:
  explicit SpeculativeUpdateTest(int threads = 1)
      : thread_pool_(threads), speculative_(true, GetParam(), &thread_pool_), after_(false, GetParam()) {}

  Push Of(int worker, int64_t version, int64_t examples = 2) {
    Push push = {.gradient = {.key = {.worker = worker, .incarnation = 7, .step = version},
                              .base_version = version - 1,
                              .examples = examples},
                 .values = std::vector<float>(kSize)};
    for (float& value : push.values) value = std::uniform_real_distribution<float>(-1, 1)(random_);
    return push;
  }
  static Apply ApplyOf(int64_t version, const std::vector<Push>& pushes) {
    Apply apply = {.version = version, .contributors = {}};
    for (const Push& push : pushes) apply.contributors.push_back(push.gradient);
    return apply;
  }
  // The first round, for which nothing is predicted.
  void FirstRound(int workers) {
    std::vector<Push> pushes;
    for (int worker = 0; worker < workers; ++worker) pushes.push_back(Of(worker, 1));
    for (Push& push : pushes) speculative_.Whole(push);
    speculative_.Decide(ApplyOf(1, pushes));
    for (const Push& push : pushes) {
      EXPECT_FALSE((*push.answer)->sent_early);
      EXPECT_EQ(push.sends, 0);
    }
    Afterwards(1, pushes);
  }
  // Makes the same update on the other shard; both must be equal then.
  void Afterwards(int64_t version, std::vector<Push>& pushes) {
    for (Push& push : pushes) after_.Whole(push);
    after_.Decide(ApplyOf(version, pushes));
    ExpectSame();
  }
  void ExpectSame() {
    EXPECT_EQ(speculative_.values(), after_.values());
    EXPECT_EQ(speculative_.slots(), after_.slots());
    EXPECT_EQ(speculative_.shard().store().current().version, after_.shard().store().current().version);
  }
  // Sends all chunks of all pushes, in random order.
  void Interleaved(std::vector<Push>& pushes) {
    std::vector<std::pair<size_t, int64_t>> chunks;
    for (size_t i = 0; i < pushes.size(); ++i) {
      speculative_.Begin(pushes[i]);
      for (int64_t begin = 0; begin < kSize; begin += kChunk) chunks.emplace_back(i, begin);
    }
    std::shuffle(chunks.begin(), chunks.end(), random_);
    for (const auto& [i, begin] : chunks) speculative_.Chunk(pushes[i], begin);
  }
  std::vector<Push> Round(int64_t version, int workers) {
    std::vector<Push> pushes;
    for (int worker = 0; worker < workers; ++worker) pushes.push_back(Of(worker, version, 1 + worker));
    return pushes;
  }
  void ExpectAllSpeculative(const std::vector<Push>& pushes) {
    for (const Push& push : pushes) {
      ASSERT_TRUE(push.answer.has_value() && push.answer->ok());
      EXPECT_EQ((*push.answer)->outcome, v1::OUTCOME_ACCEPTED);
      EXPECT_TRUE((*push.answer)->sent_early);
      EXPECT_EQ((*push.answer)->values.data, nullptr);
      EXPECT_EQ(push.ahead, speculative_.values());
    }
  }
  void ExpectNoneSpeculative(const std::vector<Push>& pushes) {
    for (const Push& push : pushes) {
      ASSERT_TRUE(push.answer.has_value() && push.answer->ok());
      EXPECT_FALSE((*push.answer)->sent_early);
      ASSERT_NE((*push.answer)->values.data, nullptr);
      EXPECT_EQ(ToVector((*push.answer)->values), speculative_.values());
    }
  }

  void EndAndDecide(int64_t version, std::vector<Push>& pushes) {
    for (Push& push : pushes) speculative_.End(push);
    speculative_.Decide(ApplyOf(version, pushes));
  }
  // Ends a round whose prediction was wrong.
  void ExpectMadeAfterwards(int64_t version, std::vector<Push>& pushes) {
    EndAndDecide(version, pushes);
    ExpectNoneSpeculative(pushes);
    Afterwards(version, pushes);
  }

  std::mt19937 random_{42};
  ThreadPool thread_pool_;
  Side speculative_, after_;
};

}  // namespace cairn::ps
