#include "ps/replication/shard_feed.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

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

 private:
  class Stream final : public ReplicationStream {
   public:
    explicit Stream(SentToBackup& sent) : sent_(sent) {}
    ~Stream() override { sent_.handler_->OnClosed(absl::CancelledError("closed")); }
    void Send(std::vector<NumberedItem> items) override {
      sent_.last_ = items.back().number;
      for (NumberedItem& numbered : items) sent_.items_.push_back(std::move(numbered.item));
    }

   private:
    SentToBackup& sent_;
  };
  ReplicationStreamHandler* handler_ = nullptr;
  uint64_t last_ = 0;
  std::vector<ReplicationItem> items_;
};

// The item may still be in flight when the push has been answered and the client writes to its memory again.
TEST(ShardFeed, SendsACopyOfASingleBorrowedGradient) {
  SentToBackup sent;
  test::FakeClock clock;
  RecordingPort port;
  Shard shard({.slices = Vectors({{"a", 2}}), .optimizer = Sgd(1)});
  shard.ConnectTo(&port);
  std::optional<ShardFeed> feed;
  Replicator replicator({.shard = "ps/0",
                         .backup = "ps/1 at host:2",
                         .origin = {},
                         .dial = [&](ReplicationStreamHandler& handler) { return sent.Dial(handler); },
                         .capture =
                             [&] {
                               feed->SendState();
                               replicator.SendState(Replicator::Component::kSequencer, {});
                               replicator.SendState(Replicator::Component::kMembers, {});
                             },
                         .clock = &clock});
  feed.emplace(shard, replicator);
  shard.SendEffectsTo(&*feed);
  replicator.Start();
  for (int i = 0; i < 2; ++i) {
    replicator.Step();
    sent.Hold();
  }
  replicator.Step();
  ASSERT_TRUE(replicator.was_in_sync());

  std::vector<float> at_client = {6, 8};
  const Gradient gradient = {
      .key = {.worker = 0, .incarnation = 1, .step = 1}, .base_version = 0, .examples = 1};
  auto push = shard.BeginPush({.gradient = gradient, .read_values = true});
  ASSERT_EQ(push->AddChunk(At(0), net::Borrowed(at_client)), absl::OkStatus());
  std::optional<absl::StatusOr<PushResult>> answer;
  shard.FinishPush(std::move(push), [&](absl::StatusOr<PushResult> result) { answer = std::move(result); });
  shard.Append({shard.next_index(), Apply{.version = 1, .contributors = {gradient}}});
  shard.Flush();
  EXPECT_THAT(ToVector(shard.store().current()), ElementsAre(-6, -8));

  at_client = {0, 0};
  const auto update = std::find_if(sent.items().begin(), sent.items().end(),
                                   [](const ReplicationItem& item) { return item.body.has_entry(); });
  ASSERT_NE(update, sent.items().end());
  ASSERT_EQ(update->floats.size(), 1u);
  EXPECT_THAT(update->floats[0]->span(), ElementsAre(6, 8));
  sent.Hold();
  EXPECT_TRUE(answer.has_value() && answer->ok());
  replicator.Stop();
}

}  // namespace
}  // namespace cairn::ps
