// The effects that the executor of a log emits, and its inputs besides those of the sequencer.
#include "ps/shard/log_executor.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/mutex.h"
#include "common/system/thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/shard/shard.h"
#include "tests/unit/ps/pieces.h"
#include "tests/unit/ps/recording_port.h"

namespace cairn::ps {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Records the effects; what waits for them is called by Receive().
class RecordedEffects final : public EffectSink {
 public:
  bool WantsEntries() const override { return true; }
  void OnEntry(const LogEntry& entry, const UpdateMean* mean) override {
    effects.push_back(absl::StrCat("entry ", entry.index, mean == nullptr ? "" : " with its mean"));
    if (mean != nullptr && mean->data != nullptr) mean_data = mean->data;
  }
  void OnMean(int64_t, const std::shared_ptr<const AlignedBuffer>&, int64_t, int64_t) override {}
  void OnWrite(const optim::Values& values, absl::Span<const TableState>) override {
    effects.push_back(absl::StrCat("write at version ", values.version));
  }
  void WhenReceived(Callback then) override { waiting.push_back(std::move(then)); }

  void Receive(const absl::Status& lost = absl::OkStatus()) {
    for (Callback& then : std::exchange(waiting, {})) then(lost);
  }

  std::vector<std::string> effects;
  std::shared_ptr<const AlignedBuffer> mean_data;
  std::vector<Callback> waiting;
};

// A shard of two elements, under SGD at rate 1 with gradients clipped to a norm of 5: a Measure precedes each
// Apply.
class LogExecutorTest : public testing::Test {
 protected:
  LogExecutorTest() {
    shard_.ConnectTo(&port_);
    shard_.SendEffectsTo(&sink_);
  }
  static Shard::Options Clipping() {
    return {
        .slices = Vectors({{"a", 2}}),
        .optimizer = optim::MakeOptimizer({"SGD", {{"learning_rate", 1}, {"global_clipnorm", 5}}}).value()};
  }
  void Push() {
    auto push = shard_.BeginPush({.gradient = gradient_, .read_values = true});
    ASSERT_EQ(push->AddChunk(ChunkAt(0), Bytes({3, 4})), absl::OkStatus());
    shard_.FinishPush(std::move(push),
                      [this](absl::StatusOr<PushResult> result) { answer_ = std::move(result); });
  }
  LogEntry TheMeasure() const {
    return {.index = shard_.next_index(),
            .action = Measure{.version = 1, .contributors = {gradient_}, .norms = optim::Norms::kGradient}};
  }
  LogEntry TheApply() const {
    return {.index = shard_.next_index(),
            .action = Apply{.version = 1, .contributors = {gradient_}},
            .known = {{"a", {.gradient = 25}}}};
  }
  void Execute(const LogEntry& entry) {
    shard_.Append(entry);
    shard_.Flush();
  }

  const Gradient gradient_ = {
      .key = {.worker = 0, .incarnation = 1, .step = 1}, .base_version = 0, .examples = 1};
  RecordingPort port_;
  RecordedEffects sink_;
  Shard shard_{Clipping()};
  std::optional<absl::StatusOr<PushResult>> answer_;  // nothing while the push waits
};

TEST_F(LogExecutorTest, EmitsTheMeanWithTheFirstEntryThatUsesIt) {
  Push();
  Execute(TheMeasure());
  Execute(TheApply());
  EXPECT_THAT(sink_.effects, ElementsAre("entry 1 with its mean", "entry 2"));
  EXPECT_THAT(sink_.mean_data->span(), ElementsAre(3, 4));
}

TEST_F(LogExecutorTest, AnswersAndReportsWhenTheEffectsHaveBeenReceived) {
  Push();
  Execute(TheMeasure());
  Execute(TheApply());
  EXPECT_FALSE(answer_.has_value());
  EXPECT_EQ(port_.executed, 0);
  sink_.Receive();
  ASSERT_TRUE(answer_.has_value() && answer_->ok());
  EXPECT_THAT(ToVector((*answer_)->values), ElementsAre(-3, -4));
  EXPECT_EQ(port_.executed, 2);
}

TEST_F(LogExecutorTest, ALostEffectIsTheAnswer) {
  Push();
  Execute(TheMeasure());
  Execute(TheApply());
  sink_.Receive(absl::UnavailableError("lost"));
  EXPECT_EQ(answer_->status(), absl::UnavailableError("lost"));
  EXPECT_EQ(port_.executed, 0) << "the entries stay in the log";
}

TEST_F(LogExecutorTest, ARepeatIsAnsweredWhenTheDecisionHasBeenReceived) {
  Push();
  Execute(TheMeasure());
  Execute(TheApply());
  sink_.Receive();
  answer_.reset();
  Push();
  EXPECT_FALSE(answer_.has_value());
  sink_.Receive();
  EXPECT_TRUE((*answer_)->duplicate);
}

TEST_F(LogExecutorTest, EmitsAWrite) {
  auto data = std::make_unique<Accumulator>(shard_.store().pool());
  ASSERT_EQ(data->Add(ChunkAt(0), Bytes({1, 2})), absl::OkStatus());
  std::optional<absl::StatusOr<int64_t>> written;
  shard_.Write(std::move(data), {}, [&](absl::StatusOr<int64_t> version) { written = std::move(version); });
  EXPECT_THAT(sink_.effects, ElementsAre("write at version 0"));
  EXPECT_FALSE(written.has_value());
  sink_.Receive();
  EXPECT_EQ(**written, 0);
}

TEST_F(LogExecutorTest, AStateIsCapturedOnlyBetweenUpdates) {
  std::vector<int64_t> versions;
  const auto capture = [&] {
    shard_.Capture([&](const Shard::State& state) { versions.push_back(state.facts.version()); });
  };
  Push();
  capture();
  Execute(TheMeasure());
  capture();
  EXPECT_THAT(versions, ElementsAre(0));
  Execute(TheApply());
  EXPECT_THAT(versions, ElementsAre(0, 1));
}

TEST_F(LogExecutorTest, ExecutesAnEntryWithTheMeanThatComesWithIt) {
  auto mean = std::make_shared<AlignedBuffer>(2);
  mean->data()[0] = 3;
  mean->data()[1] = 4;
  ASSERT_EQ(shard_.AppendWithMean(TheMeasure(), UpdateMean{1, mean}), absl::OkStatus());
  ASSERT_EQ(shard_.AppendWithMean(TheApply(), std::nullopt), absl::OkStatus());
  shard_.Flush();
  EXPECT_EQ(shard_.failure(), absl::OkStatus());
  EXPECT_THAT(ToVector(shard_.store().current()), ElementsAre(-3, -4));
  EXPECT_THAT(sink_.effects, ElementsAre("entry 1", "entry 2")) << "the mean is not new";
}

TEST_F(LogExecutorTest, AnEntryThatHasItsMeanDoesNotWaitForMissingPushes) {
  auto mean = std::make_shared<AlignedBuffer>(2);
  mean->data()[0] = 3;
  mean->data()[1] = 4;
  ASSERT_EQ(shard_.AppendWithMean(TheMeasure(), UpdateMean{1, mean}), absl::OkStatus());
  ASSERT_EQ(shard_.AppendWithMean(TheApply(), std::nullopt), absl::OkStatus());
  shard_.AwaitMissingPushes();  // a promotion between the arrival of the entries and their execution
  shard_.Flush();
  EXPECT_THAT(shard_.Missing(), IsEmpty());
  EXPECT_THAT(ToVector(shard_.store().current()), ElementsAre(-3, -4));
}

TEST_F(LogExecutorTest, RefusesAnEntryOutOfOrder) {
  LogEntry later = TheMeasure();
  later.index = 2;
  EXPECT_EQ(shard_.AppendWithMean(later, std::nullopt),
            absl::FailedPreconditionError("entry 2 of the log arrived, but entry 1 comes next"));
}

TEST_F(LogExecutorTest, AnEntryWithoutItsPushFailsTheJobUnlessItIsAwaited) {
  Shard awaiting{Clipping()};
  awaiting.ConnectTo(&port_);
  awaiting.AwaitMissingPushes();
  awaiting.Append(TheMeasure());
  awaiting.Flush();
  EXPECT_EQ(awaiting.failure(), absl::OkStatus());
  EXPECT_THAT(awaiting.Missing(), ElementsAre(gradient_.key));
  Execute(TheMeasure());
  EXPECT_EQ(shard_.failure().message(),
            "version 1 needs the push of worker 0 (incarnation 1), step 1, which this server does not have");
  EXPECT_THAT(sink_.effects, IsEmpty());
}

// Makes an update of each staged push at once, in the thread that has pushed.
class AsynchronousPort final : public SequencerPort {
 public:
  explicit AsynchronousPort(Shard& shard) : shard_(shard) {}
  void ReportStaged(const Gradient& gradient) override {
    {
      MutexLock lock(mutex_);
      shard_.Append(
          {.index = shard_.next_index(), .action = Apply{.version = ++version_, .contributors = {gradient}}});
    }
    shard_.Flush();
  }
  void ReportSums(Sums) override {}
  void ReportExecuted(int64_t) override {}
  void ReportWaiting(int64_t) override {}

 private:
  Shard& shard_;
  Mutex mutex_;
  int64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(LogExecutor, ThreadsPushReadAndExecuteAtTheSameTime) {
  constexpr int kThreads = 4, kSteps = 100;
  Shard shard({.slices = Vectors({{"a", 1}}), .optimizer = Sgd(1)});
  AsynchronousPort port(shard);
  shard.ConnectTo(&port);
  std::atomic<int> accepted = 0;
  std::vector<Thread> threads;
  for (int worker = 0; worker < kThreads; ++worker) {
    threads.emplace_back("pusher", [&, worker] {
      for (int64_t step = 1; step <= kSteps; ++step) {
        auto push =
            shard.BeginPush({.gradient = {.key = {worker, 1, step}, .examples = 1}, .read_values = true});
        EXPECT_EQ(push->AddChunk(ChunkAt(0), Bytes({1})), absl::OkStatus());
        shard.FinishPush(std::move(push), [&](absl::StatusOr<PushResult> result) {
          accepted += result.ok() && result->outcome == v1::OUTCOME_ACCEPTED;
        });
        shard.Read("", [](const absl::StatusOr<ReadResult>& result) { EXPECT_TRUE(result.ok()); });
        (void)shard.load();
      }
    });
  }
  for (Thread& thread : threads) thread.Join();
  EXPECT_EQ(accepted, kThreads * kSteps);
  EXPECT_THAT(ToVector(shard.store().current()), ElementsAre(-kThreads * kSteps));
  EXPECT_EQ(shard.load().queued, 0);
}

}  // namespace
}  // namespace cairn::ps
