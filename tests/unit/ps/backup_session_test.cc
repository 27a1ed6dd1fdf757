// The contents that a backup accepts in a replication stream, and those that it refuses: anyone who reaches
// the port may open a stream.
#include "ps/rpc/backup_session.h"

#include <limits>

#include "cairn/v1/policy.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/job/server.h"
#include "ps/policy/policy_proto.h"
#include "ps/replication/replicator.h"
#include "tests/support/fake_clock.h"
#include "tests/support/gate.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::ps {
namespace {

using testing::HasSubstr;

class QuietSink final : public ReplicationSink {
 public:
  void Answer(const v1::ReplicationAck& answer) override {
    replicated = std::max(replicated, answer.replicated());
    ++answers;
  }
  void Close(absl::Status) override {}
  uint64_t replicated = 0;
  int answers = 0;
};

// A stream that has opened the backup of ps/0's shard, with two elements and Adam's two slots, on ps/1.
class BackupSessionTest : public testing::Test {
 protected:
  BackupSessionTest()
      : server_({.index = 0,
                 .host_index = 1,
                 .connect_to_leader = nullptr,
                 .connect_to_backup = [](const std::string&, int, ReplicationStreamHandler&)
                     -> std::unique_ptr<ReplicationStream> { return nullptr; }},
                clock_) {
    v1::ReplicationBody body;
    v1::Job& job = *body.mutable_origin()->mutable_job();
    job.set_mode(v1::MODE_SYNC);
    job.set_ps_replication(1);
    job.set_dynamic_sharding(true);
    job.set_num_examples(4);
    job.set_batch_size(1);
    job.set_epochs(1);
    job.set_elastic(true);
    job.add_workers("worker/0");
    for (const char* host : {"host:1", "host:2"}) job.add_servers(host);
    job.set_lease_seconds(30);
    job.mutable_optimizer()->set_name("Adam");
    for (const net::Slice& slice : Vectors({{"a", 2}}))
      *body.mutable_origin()->add_slices() = slice.ToProto();
    EXPECT_EQ(Item(body), absl::OkStatus());
  }

  absl::Status Item(const v1::ReplicationBody& body, int64_t floats = 0) {
    v1::ReplicationHeader header;
    v1::ReplicationItem& item = *header.add_items();
    item.set_number(++number_);
    item.set_text(body.SerializeAsString());
    item.set_floats(floats);
    return session_.OnFrame(header, {});
  }
  absl::Status Floats(std::vector<float> values, bool state) {
    v1::ReplicationHeader header;
    header.mutable_floats()->set_state(state);
    return session_.OnFrame(header, Bytes(std::move(values)));
  }

  test::FakeClock clock_;
  Server server_;
  std::shared_ptr<QuietSink> sink_ = std::make_shared<QuietSink>();
  BackupSession session_{server_.hosted_job(), sink_};
  uint64_t number_ = 0;
};

TEST_F(BackupSessionTest, TextBeforeTheOriginHasItsOwnLimit) {
  BackupSession stranger(server_.hosted_job(), sink_);
  v1::ReplicationHeader header;
  header.set_text(std::string(size_t{1} << 20, 't'));
  for (int i = 0; i < 16; ++i) ASSERT_EQ(stranger.OnFrame(header, {}), absl::OkStatus());
  EXPECT_THAT(stranger.OnFrame(header, {}).message(),
              HasSubstr("the body of a message exceeds 16777216 bytes"));
}

TEST_F(BackupSessionTest, AStateWithAllValuesAndSlotsIsAccepted) {
  ASSERT_EQ(Floats({1, 2, 3, 4, 5, 6}, true), absl::OkStatus());
  v1::ReplicationBody body;
  body.mutable_shard()->set_next_index(1);
  EXPECT_EQ(Item(body, 6), absl::OkStatus());
  EXPECT_EQ(sink_->replicated, number_);
}

TEST_F(BackupSessionTest, TheItemsOfAFrameAreAcknowledgedOnce) {
  v1::ReplicationHeader header;
  for (const uint64_t incarnation : {7, 8}) {
    v1::ReplicationBody body;
    body.mutable_member()->set_incarnation(incarnation);
    v1::ReplicationItem& item = *header.add_items();
    item.set_number(++number_);
    item.set_text(body.SerializeAsString());
  }
  const int before = sink_->answers;
  ASSERT_EQ(session_.OnFrame(header, {}), absl::OkStatus());
  EXPECT_EQ(sink_->answers, before + 1);
  EXPECT_EQ(sink_->replicated, number_);
}

TEST_F(BackupSessionTest, AFrameMayHaveAnItemWithItsLastValues) {
  ASSERT_EQ(Floats({1, 2, 3, 4}, true), absl::OkStatus());
  v1::ReplicationBody body;
  body.mutable_shard()->set_next_index(1);
  v1::ReplicationHeader header;
  header.mutable_floats()->set_state(true);
  header.mutable_floats()->set_offset(4);
  v1::ReplicationItem& item = *header.add_items();
  item.set_number(++number_);
  item.set_text(body.SerializeAsString());
  item.set_floats(6);
  EXPECT_EQ(session_.OnFrame(header, Bytes({5, 6})), absl::OkStatus());
  EXPECT_EQ(sink_->replicated, number_);
}

TEST_F(BackupSessionTest, AnEmptyFrameIsRefused) {
  EXPECT_THAT(session_.OnFrame({}, {}).message(), HasSubstr("an empty frame"));
}

TEST_F(BackupSessionTest, ValuesMayBeReceivedWhereTheyBelong) {
  v1::ReplicationHeader header;
  header.mutable_floats()->set_state(true);
  header.mutable_floats()->set_offset(2);
  const absl::Span<char> place = session_.DestinationFor(header, 16);
  ASSERT_EQ(place.size(), 16u);
  std::fill(place.begin(), place.end(), '\0');
  const absl::Span<const char> run = place;
  EXPECT_EQ(session_.OnFrame(header, {&run, 1}), absl::OkStatus());
  EXPECT_TRUE(session_.DestinationFor(header, 16).empty()) << "these values have arrived";
  header.mutable_floats()->set_offset(-1);
  EXPECT_TRUE(session_.DestinationFor(header, 16).empty());
}

TEST(PutIntoFrames, SmallItemsShareAFrameAlsoWithTheValuesOfALaterOne) {
  std::vector<NumberedItem> items(5);
  for (size_t i = 0; i < items.size(); ++i) items[i].number = i + 1;
  items[1].item.body.mutable_sequencer()->mutable_policy()->set_value(std::string(70000, 'p'));
  items[3].item.floats = {std::make_shared<AlignedBuffer>(net::kMaxPayloadFloats + 1)};
  std::vector<std::string> frames;
  PutIntoFrames(items, [&](const v1::ReplicationHeader& header, absl::Span<const float> payload,
                           const std::shared_ptr<const void>& owner) {
    EXPECT_EQ(payload.empty(), owner == nullptr);
    std::string frame = absl::StrCat(header.text().empty() ? "" : "text ", payload.size(), ":");
    for (const v1::ReplicationItem& item : header.items()) absl::StrAppend(&frame, " ", item.number());
    frames.push_back(std::move(frame));
  });
  EXPECT_THAT(frames, testing::ElementsAre("0: 1", "text 0:", "text 0:",
                                           absl::StrCat(net::kMaxPayloadFloats, ": 2 3"), "1: 4 5"));
}

TEST_F(BackupSessionTest, AStateOfTheValuesAloneIsRefused) {
  ASSERT_EQ(Floats({1, 2}, false), absl::OkStatus());
  v1::ReplicationBody body;
  body.mutable_shard()->set_next_index(1);
  EXPECT_THAT(Item(body, 2).message(), HasSubstr("a replicated state has 2 values, expected 6"));
}

TEST_F(BackupSessionTest, WrittenValuesAndMeansOfAnotherSizeAreRefused) {
  ASSERT_EQ(Floats({1, 2, 3, 4, 5, 6}, true), absl::OkStatus());
  v1::ReplicationBody written;
  written.set_written(1);
  EXPECT_THAT(Item(written, 6).message(), HasSubstr("6 replicated values do not fit a server that has 2"));
}

TEST_F(BackupSessionTest, AMeanOfAnotherSizeIsRefused) {
  ASSERT_EQ(Floats({1, 2, 3, 4, 5, 6}, true), absl::OkStatus());
  v1::ReplicationBody body;
  v1::Decision& decision = *body.mutable_entry()->mutable_decision();
  decision.set_index(1);
  decision.mutable_apply()->set_version(1);
  v1::StagedGradient& gradient = *decision.mutable_apply()->add_contributors();
  gradient.mutable_key()->set_incarnation(1);
  gradient.mutable_key()->set_step(1);
  gradient.set_examples(1);
  body.mutable_entry()->set_mean(true);
  body.mutable_entry()->set_examples(true);
  EXPECT_THAT(Item(body, 6).message(), HasSubstr("6 replicated values do not fit a server that has 2"));
}

TEST_F(BackupSessionTest, AStateWithoutValuesIsRefused) {
  v1::ReplicationBody body;
  body.mutable_shard()->set_next_index(1);
  EXPECT_THAT(Item(body).message(), HasSubstr("a replicated state has 0 values, expected 6"));
}

TEST_F(BackupSessionTest, AWriteWithoutValuesIsRefused) {
  v1::ReplicationBody written;
  written.set_written(1);
  EXPECT_THAT(Item(written).message(), HasSubstr("0 replicated values do not fit a server that has 2"));
}

// Sends the states of the components, and reports the backup as in sync.
class InSyncBackupTest : public BackupSessionTest {
 protected:
  absl::Status ShardState() {
    EXPECT_EQ(Floats({1, 2, 3, 4, 5, 6}, true), absl::OkStatus());
    v1::ReplicationBody body;
    body.mutable_shard()->set_next_index(1);
    return Item(body, 6);
  }
  absl::Status SequencerState() {
    v1::ReplicationBody body;
    body.mutable_sequencer()->set_next_index(1);
    for (int server = 0; server < 2; ++server) body.mutable_sequencer()->add_executed(0);
    v1::QueuedPolicyState policy;
    *policy.mutable_policy() = Pack(v1::SyncPolicyState());
    *body.mutable_sequencer()->mutable_policy() = Pack(policy);
    return Item(body);
  }
  absl::Status Whole() {
    v1::ReplicationBody body;
    body.set_in_sync(true);
    return Item(body);
  }
};

TEST_F(InSyncBackupTest, IsInSyncWithTheStatesOfAllComponents) {
  ASSERT_EQ(ShardState(), absl::OkStatus());
  ASSERT_EQ(SequencerState(), absl::OkStatus());
  EXPECT_EQ(Whole(), absl::OkStatus());
  EXPECT_TRUE(server_.hosted_job().backup_in_sync());
}

// A payload in the memory of a process that has ended.
class LostBytes final : public net::BorrowedBytes {
 public:
  size_t size() const override { return 8; }
  absl::Status Scatter(size_t, absl::Span<const absl::Span<char>>) const override {
    return absl::UnavailableError("the other end is gone");
  }
};

TEST_F(InSyncBackupTest, StaysInSyncIfThePrimaryEndsWhileItsValuesAreRead) {
  for (const absl::Status& status : {ShardState(), SequencerState(), Whole()})
    ASSERT_EQ(status, absl::OkStatus());
  v1::ReplicationHeader header;
  header.mutable_floats();
  const LostBytes lost;
  EXPECT_EQ(session_.OnFrame(header, net::Payload(lost)).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(server_.hosted_job().backup_in_sync());
}

TEST_F(InSyncBackupTest, IsNotInSyncWithoutTheShardsState) {
  ASSERT_EQ(SequencerState(), absl::OkStatus());
  EXPECT_THAT(Whole().message(),
              HasSubstr("the backup of ps/0's shard is incomplete, but its primary reports it in sync"));
  EXPECT_FALSE(server_.hosted_job().backup_in_sync());
}

TEST_F(InSyncBackupTest, IsNotInSyncWithoutTheSequencersState) {
  ASSERT_EQ(ShardState(), absl::OkStatus());
  EXPECT_THAT(Whole().message(),
              HasSubstr("the backup of ps/0's shard is incomplete, but its primary reports it in sync"));
}

// A mean that comes in runs before its entry.
class SentMeanTest : public InSyncBackupTest {
 protected:
  SentMeanTest() { EXPECT_EQ(ShardState(), absl::OkStatus()); }
  absl::Status Run(int64_t version, int64_t offset, std::vector<float> values) {
    v1::ReplicationHeader header;
    header.mutable_floats()->set_version(version);
    header.mutable_floats()->set_offset(offset);
    return session_.OnFrame(header, Bytes(std::move(values)));
  }
  absl::Status Entry(int64_t version, bool sent) {
    v1::ReplicationBody body;
    v1::ReplicatedEntry& entry = *body.mutable_entry();
    entry.mutable_decision()->set_index(version);
    entry.mutable_decision()->mutable_apply()->set_version(version);
    v1::StagedGradient& gradient = *entry.mutable_decision()->mutable_apply()->add_contributors();
    gradient.mutable_key()->set_incarnation(1);
    gradient.mutable_key()->set_step(version);
    gradient.set_base_version(version - 1);
    gradient.set_examples(1);
    entry.set_mean(true);
    entry.set_examples(true);
    entry.set_sent(sent);
    return Item(body, sent ? 0 : 2);
  }
};

TEST_F(SentMeanTest, BelongsToItsEntryAlsoIfOtherItemsComeBetween) {
  ASSERT_EQ(Run(1, 1, {3}), absl::OkStatus());
  v1::ReplicationBody other;
  other.mutable_member()->set_incarnation(7);
  ASSERT_EQ(Item(other), absl::OkStatus());
  ASSERT_EQ(Run(1, 0, {2}), absl::OkStatus());
  EXPECT_EQ(Entry(1, /*sent=*/true), absl::OkStatus());
  EXPECT_EQ(sink_->replicated, number_);
}

TEST_F(SentMeanTest, IsDroppedIfTheUpdateIsMadeInAnotherWay) {
  ASSERT_EQ(Run(1, 0, {2, 3}), absl::OkStatus());
  ASSERT_EQ(Floats({4, 5}, false), absl::OkStatus());
  ASSERT_EQ(Entry(1, /*sent=*/false), absl::OkStatus());
  EXPECT_THAT(Entry(2, /*sent=*/true).message(),
              HasSubstr("the update to version 2 came without the runs of its mean"));
}

TEST_F(SentMeanTest, IsReplacedByThatOfAnotherVersion) {
  ASSERT_EQ(Run(9, 0, {2, 3}), absl::OkStatus());
  ASSERT_EQ(Run(1, 0, {4, 5}), absl::OkStatus());
  EXPECT_EQ(Entry(1, /*sent=*/true), absl::OkStatus());
}

TEST_F(SentMeanTest, MustBeComplete) {
  ASSERT_EQ(Run(1, 0, {2}), absl::OkStatus());
  EXPECT_THAT(Entry(1, /*sent=*/true).message(),
              HasSubstr("the update to version 1 came without the runs of its mean"));
}

TEST_F(InSyncBackupTest, IsNotInSyncAfterAFailure) {
  for (const absl::Status& status : {ShardState(), SequencerState(), Whole()})
    ASSERT_EQ(status, absl::OkStatus());
  v1::ReplicationBody body;
  v1::Decision& decision = *body.mutable_entry()->mutable_decision();  // its mean does not arrive
  decision.set_index(1);
  decision.mutable_apply()->set_version(1);
  v1::StagedGradient& gradient = *decision.mutable_apply()->add_contributors();
  gradient.mutable_key()->set_incarnation(1);
  gradient.mutable_key()->set_step(1);
  gradient.set_examples(1);
  EXPECT_THAT(Item(body).message(),
              HasSubstr("the backup of ps/0's shard failed: version 1 needs the push of worker 0"));
  EXPECT_FALSE(server_.hosted_job().backup_in_sync());
}

struct StrangeInput {
  void (*fill)(v1::SequencerInput& input);
  const char* refusal;
};
class StrangeInputTest : public BackupSessionTest, public testing::WithParamInterface<StrangeInput> {};
INSTANTIATE_TEST_SUITE_P(
    Sequencer, StrangeInputTest,
    testing::Values(StrangeInput{[](v1::SequencerInput& input) {
                                   input.mutable_marker()->set_token(std::string(257, 'x'));
                                 },
                                 "a marker's name cannot have 257 bytes"},
                    StrangeInput{[](v1::SequencerInput& input) {
                                   input.mutable_config_request()->mutable_config_change()->set_learning_rate(
                                       -1);
                                 },
                                 "a learning rate of -1"},
                    StrangeInput{[](v1::SequencerInput& input) {
                                   input.mutable_measured()->mutable_sums()->add_slices()->add_gradient(-1);
                                 },
                                 "a sum of squares cannot be -1"}));

TEST_P(StrangeInputTest, IsRefused) {
  v1::ReplicationBody body;
  GetParam().fill(*body.mutable_input());
  EXPECT_THAT(Item(body).message(), HasSubstr(GetParam().refusal));
}

class ReplicatedMemberTest : public BackupSessionTest, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(BeyondTheJobs, ReplicatedMemberTest,
                         testing::Values(-1, std::numeric_limits<int>::min(), 4096,
                                         std::numeric_limits<int>::max()));

TEST_P(ReplicatedMemberTest, IsRefusedInAnItemOfItsOwn) {
  v1::ReplicationBody body;
  body.mutable_member()->set_worker(GetParam());
  EXPECT_THAT(Item(body).message(), HasSubstr("a replicated member"));
}

TEST_P(ReplicatedMemberTest, IsRefusedAmongOthers) {
  v1::ReplicationBody body;
  body.mutable_members()->add_members()->set_worker(0);
  body.mutable_members()->add_members()->set_worker(GetParam());
  EXPECT_THAT(Item(body).message(), HasSubstr("a replicated member"));
}

TEST_F(BackupSessionTest, AnInputOfAWorkerThatTheJobLacksIsRefused) {
  v1::ReplicationBody body;
  body.mutable_input()->mutable_joined()->set_worker(-1);
  EXPECT_THAT(Item(body).message(),
              HasSubstr("an input of the sequencer: worker -1, but the number of workers is 4096"));
}

// The job has 4 examples per epoch.
struct ReplicatedWorkItem {
  int64_t epoch, first, count;
  v1::WorkItem ToProto() const {
    v1::WorkItem work_item;
    work_item.set_epoch(epoch);
    work_item.set_first(first);
    work_item.set_count(count);
    return work_item;
  }
};
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

class ReplicatedQueueTest : public BackupSessionTest {
 protected:
  ReplicatedQueueTest() {
    for (int server = 0; server < 2; ++server) body_.mutable_sequencer()->add_executed(0);
    body_.mutable_sequencer()->set_next_index(1);
    *queue_.mutable_policy() = Pack(v1::SyncPolicyState());
    queue_.set_next(2);
  }
  absl::Status SequencerState() {
    *body_.mutable_sequencer()->mutable_policy() = Pack(queue_);
    return Item(body_);
  }

  v1::ReplicationBody body_;
  v1::QueuedPolicyState queue_;
};

TEST_F(ReplicatedQueueTest, WithItemsOfTheJobsEpochsIsAccepted) {
  *queue_.add_returned() = ReplicatedWorkItem{0, 0, 1}.ToProto();
  *queue_.add_holders()->mutable_current() =
      ReplicatedWorkItem{0, 4, 0}.ToProto();  // the epoch had none left
  EXPECT_EQ(SequencerState(), absl::OkStatus());
}

TEST_F(ReplicatedQueueTest, ThatHasAssignedTooManyExamplesIsRefused) {
  queue_.set_next(kMax);
  EXPECT_THAT(SequencerState().message(), HasSubstr(absl::StrCat("next example cannot be ", kMax)));
}

class StrangeWorkItemTest : public ReplicatedQueueTest,
                            public testing::WithParamInterface<ReplicatedWorkItem> {};
INSTANTIATE_TEST_SUITE_P(BeyondTheEpoch, StrangeWorkItemTest,
                         testing::Values(ReplicatedWorkItem{kMax, 0, 1}, ReplicatedWorkItem{-1, 0, 1},
                                         ReplicatedWorkItem{0, -1, 1}, ReplicatedWorkItem{0, 0, 5},
                                         ReplicatedWorkItem{0, 3, 2}, ReplicatedWorkItem{0, 2, -1},
                                         ReplicatedWorkItem{0, kMax, 0}));

TEST_P(StrangeWorkItemTest, IsRefusedAmongReturnedItems) {
  *queue_.add_returned() = GetParam().ToProto();
  EXPECT_THAT(SequencerState().message(),
              HasSubstr(absl::StrCat("replicated: a work item of ", GetParam().count)));
}

TEST_P(StrangeWorkItemTest, IsRefusedAsAWorkersItem) {
  *queue_.add_holders()->add_next() = GetParam().ToProto();
  EXPECT_THAT(SequencerState().message(),
              HasSubstr(absl::StrCat("replicated: a work item of ", GetParam().count)));
}

// A stream to a backup whose end needs a thread that must not wait here.
class SlowToEnd final : public ReplicationStream {
 public:
  explicit SlowToEnd(test::Gate& may_end) : may_end_(may_end) {}
  ~SlowToEnd() override { EXPECT_TRUE(may_end_.Wait()) << "the caller must not wait for this"; }
  void Send(std::vector<NumberedItem>) override {}

 private:
  test::Gate& may_end_;
};

TEST(Drop, DoesNotWaitForTheBackupsStreamToEnd) {
  test::FakeClock clock;
  test::Gate dialled, may_end;
  Server server({.index = 0,
                 .connect_to_leader = nullptr,
                 .connect_to_backup = [&](const std::string&, int,
                                          ReplicationStreamHandler&) -> std::unique_ptr<ReplicationStream> {
                   dialled.Open();
                   return std::make_unique<SlowToEnd>(may_end);
                 }},
                clock);
  v1::CreateRequest create;
  v1::Job& job = *create.mutable_job();
  job.set_mode(v1::MODE_SYNC);
  job.set_ps_replication(1);
  job.add_workers("worker/0");
  for (const char* host : {"host:1", "host:2"}) job.add_servers(host);
  job.set_lease_seconds(30);
  job.mutable_optimizer()->set_name("Adam");
  for (const net::Slice& slice : Vectors({{"a", 2}})) *create.add_slices() = slice.ToProto();
  uint64_t layout = 0;
  server.Create(create, [&](absl::StatusOr<v1::CreateResponse> response) { layout = response->layout(); });
  server.OnInitialised(layout);
  ASSERT_TRUE(dialled.Wait());

  v1::ReplicationBody body;  // from the promoted backup
  v1::ReplicationOrigin& origin = *body.mutable_origin();
  *origin.mutable_job() = job;
  *origin.mutable_slices() = create.slices();
  origin.set_epoch(1);
  v1::ReplicationHeader header;
  v1::ReplicationItem& item = *header.add_items();
  item.set_number(1);
  item.set_text(body.SerializeAsString());
  const auto sink = std::make_shared<QuietSink>();
  BackupSession session(server.hosted_job(), sink);
  EXPECT_EQ(session.OnFrame(header, {}), absl::OkStatus());
  EXPECT_EQ(sink->replicated, 1u) << "this is a backup now";
  may_end.Open();
  server.Tick();
}

}  // namespace
}  // namespace cairn::ps
