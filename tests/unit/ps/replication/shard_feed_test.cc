#include "ps/replication/shard_feed.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/net/wire/update_chunk.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/ps/pieces.h"
#include "tests/unit/ps/recording_port.h"

namespace cairn::ps {
namespace {

using testing::ElementsAre;

// Records what a backup is sent.
class SentToBackup {
 public:
  std::unique_ptr<ReplicationStream> Dial(ReplicationStreamHandler& handler) {
    handler_ = &handler;
    return std::make_unique<Stream>(*this);
  }
  void Hold() {
    v1::ReplicationAck answer;
    answer.set_replicated(last_);
    answer.set_keeper(1);
    handler_->OnAnswer(answer);
  }
  std::vector<ReplicationItem>& items() { return items_; }
  const std::vector<MeanRun>& runs() const { return runs_; }
  void Break() { handler_->OnClosed(absl::UnavailableError("broken")); }
  // The last entry that is an update.
  const ReplicationItem& Update() const {
    const auto is_update = [](const ReplicationItem& item) {
      return item.body.entry().decision().has_apply();
    };
    return *std::find_if(items_.rbegin(), items_.rend(), is_update);
  }

 private:
  class Stream final : public ReplicationStream {
   public:
    explicit Stream(SentToBackup& sent) : sent_(sent) {}
    ~Stream() override { sent_.handler_->OnClosed(absl::CancelledError("closed")); }
    void Send(std::vector<NumberedItem> items) override {
      for (NumberedItem& numbered : items) {
        if (numbered.run.has_value()) {
          sent_.runs_.push_back(*std::move(numbered.run));
        } else {
          sent_.last_ = numbered.number;
          sent_.items_.push_back(std::move(numbered.item));
        }
      }
    }

   private:
    SentToBackup& sent_;
  };
  ReplicationStreamHandler* handler_ = nullptr;
  uint64_t last_ = 0;
  std::vector<ReplicationItem> items_;
  std::vector<MeanRun> runs_;
};

// A shard that feeds a backup which is in sync.
class ShardFeedTest : public testing::Test {
 protected:
  explicit ShardFeedTest(int64_t size = 2)
      : shard_({.slices = Vectors({{"a", size}}), .optimizer = Sgd(1), .speculative_updates = true}) {
    shard_.ConnectTo(&port_);
    shard_.SendEffectsTo(&feed_);
    replicator_.Start();
    for (int i = 0; i < 2; ++i) {
      replicator_.Step();
      sent_.Hold();
    }
    replicator_.Step();
    EXPECT_TRUE(replicator_.was_in_sync());
  }
  ~ShardFeedTest() override { replicator_.Stop(); }

  SentToBackup sent_;
  test::FakeClock clock_;
  RecordingPort port_;
  Shard shard_;
  Replicator replicator_{{.shard = "ps/0",
                          .backup = "ps/1 at host:2",
                          .origin = {},
                          .dial = [this](ReplicationStreamHandler& handler) { return sent_.Dial(handler); },
                          .capture =
                              [this] {
                                feed_.SendState();
                                replicator_.SendState(Replicator::Component::kSequencer, {});
                                replicator_.SendState(Replicator::Component::kMembers, {});
                              },
                          .clock = &clock_}};
  ShardFeed feed_{shard_, replicator_};
};

// The item may still be in flight when the push has been answered and the client writes to its memory again.
TEST_F(ShardFeedTest, SendsACopyOfASingleBorrowedGradient) {
  std::vector<float> at_client = {6, 8};
  const Gradient gradient = {
      .key = {.worker = 0, .incarnation = 1, .step = 1}, .base_version = 0, .examples = 1};
  auto push = shard_.BeginPush({.gradient = gradient, .read_values = true});
  ASSERT_EQ(push->AddChunk(ChunkAt(0), net::Borrowed(at_client)), absl::OkStatus());
  std::optional<absl::StatusOr<PushResult>> answer;
  shard_.FinishPush(std::move(push), [&](absl::StatusOr<PushResult> result) { answer = std::move(result); });
  shard_.Append({shard_.next_index(), Apply{.version = 1, .contributors = {gradient}}});
  shard_.Flush();
  EXPECT_THAT(ToVector(shard_.store().current()), ElementsAre(-6, -8));

  at_client = {0, 0};
  ASSERT_EQ(sent_.Update().floats.size(), 1u);
  EXPECT_THAT(sent_.Update().floats[0]->span(), ElementsAre(6, 8));
  sent_.Hold();
  EXPECT_TRUE(answer.has_value() && answer->ok());
}

// As ShardFeedTest, with speculative updates by one worker.
class SpeculativeFeedTest : public ShardFeedTest {
 protected:
  SpeculativeFeedTest() : ShardFeedTest(kSize) { Step(1); }

  static constexpr int64_t kSize = net::kMinSpeculativeUpdate;
  void Push(int64_t version) {
    gradient_ = {
        .key = {.worker = 0, .incarnation = 1, .step = version}, .base_version = version - 1, .examples = 1};
    auto push = shard_.BeginPush({.gradient = gradient_});
    ASSERT_EQ(push->AddChunk(ChunkAt(0), Bytes(std::vector<float>(kSize, static_cast<float>(version)))),
              absl::OkStatus());
    shard_.FinishPush(std::move(push), [](const absl::StatusOr<PushResult>&) {});
  }
  void Decide(LogEntry::Action action) {
    shard_.Append({shard_.next_index(), std::move(action)});
    shard_.Flush();
  }
  void Step(int64_t version) {
    Push(version);
    Decide(Apply{.version = version, .contributors = {gradient_}});
  }
  int64_t ElementsInRuns() const {
    int64_t elements = 0;
    for (const MeanRun& run : sent_.runs()) elements += run.end - run.begin;
    return elements;
  }

  Gradient gradient_;
};

TEST_F(SpeculativeFeedTest, TheMeanIsSentBeforeTheDecision) {
  EXPECT_EQ(sent_.Update().floats.size(), 1u) << "nothing was predicted for the first update";
  Push(2);
  EXPECT_EQ(ElementsInRuns(), kSize);
  for (const MeanRun& run : sent_.runs()) {
    EXPECT_EQ(run.version, 2);
    EXPECT_EQ(run.mean->data()[run.begin], 2);
  }
  EXPECT_EQ(shard_.store().current().version, 1);
  Decide(Apply{.version = 2, .contributors = {gradient_}});
  EXPECT_TRUE(sent_.Update().body.entry().sent());
  EXPECT_TRUE(sent_.Update().body.entry().mean());
  EXPECT_TRUE(sent_.Update().floats.empty());
}

TEST_F(SpeculativeFeedTest, TheMeanIsSentAgainIfTheUpdateWasNotAsPredicted) {
  Push(2);
  Decide(ConfigChange{.learning_rate = 0.5f});
  Decide(Apply{.version = 2, .contributors = {gradient_}});
  EXPECT_FALSE(sent_.Update().body.entry().sent());
  EXPECT_EQ(sent_.Update().floats.size(), 1u);
}

TEST_F(SpeculativeFeedTest, TheMeanIsSentAgainOnAnotherStream) {
  Push(2);
  sent_.Break();
  for (int i = 0; i < 4; ++i) {
    clock_.Advance(std::chrono::seconds(1));
    replicator_.Step();
    sent_.Hold();
  }
  Decide(Apply{.version = 2, .contributors = {gradient_}});
  EXPECT_FALSE(sent_.Update().body.entry().sent());
  EXPECT_EQ(sent_.Update().floats.size(), 1u);
}

}  // namespace
}  // namespace cairn::ps
