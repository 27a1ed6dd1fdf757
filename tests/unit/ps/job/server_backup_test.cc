// A server that is promoted in the middle of an update with norms.
#include <chrono>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/net/grpc/grpc_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/job/server.h"
#include "ps/rpc/backup_session.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/ps/pieces.h"
#include "tests/unit/ps/recording_port.h"

namespace cairn::ps {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// A job on two servers, each with a backup on the other; leases of 10 s.
v1::Job ReplicatedJob(int workers) {
  v1::Job job;
  job.set_mode(v1::MODE_SYNC);
  job.set_ps_replication(1);
  for (int i = 0; i < workers; ++i) job.add_workers(absl::StrCat("worker/", i));
  for (const char* host : {"host:1", "host:2"}) job.add_servers(host);
  job.set_lease_seconds(10);
  job.mutable_optimizer()->set_name("SGD");
  return job;
}

std::unique_ptr<ReplicationStream> DialNobody(const std::string&, int, ReplicationStreamHandler&) {
  return nullptr;
}

class DeafSink final : public ReplicationSink {
 public:
  void Answer(const v1::ReplicationAck&) override {}
  void Close(absl::Status) override {}
};

// The backup of ps/1's shard, with two elements, in the process of ps/0; it has been promoted. ps/0 asks for
// the norm of an update whose gradient was lost with the old primary.
class PromotedServer : public testing::Test {
 protected:
  PromotedServer()
      : server_({.index = 1,
                 .host_index = 0,
                 .connect_to_leader =
                     [this](const v1::Job&, std::shared_ptr<Shard> shard, int64_t) {
                       auto port = std::make_unique<RecordingPort>();
                       leader_ = port.get();
                       shard_ = std::move(shard);
                       return port;
                     },
                 .connect_to_backup = DialNobody,
                 .replicates_by_calls = true},
                clock_) {
    v1::ReplicationBody origin, shard, members, whole;
    v1::Job& job = *origin.mutable_origin()->mutable_job();
    job = ReplicatedJob(/*workers=*/1);
    job.set_lease_seconds(300);
    (*job.mutable_optimizer()->mutable_hyperparameters())["global_clipnorm"] = 5;
    for (const net::Slice& slice : Vectors({{"a", 2}}))
      *origin.mutable_origin()->add_slices() = slice.ToProto();
    shard.mutable_shard()->set_next_index(1);
    v1::ReplicatedMember& worker = *members.mutable_members()->add_members();
    worker.set_incarnation(1);
    worker.set_live(true);
    whole.set_in_sync(true);
    Replicate(origin);
    v1::ReplicationHeader floats;
    floats.mutable_floats()->set_state(true);
    EXPECT_EQ(session_.OnFrame(floats, Bytes({1, 2})), absl::OkStatus());
    Replicate(shard, 2);
    Replicate(members);
    Replicate(whole);
    server_.hosted_job().BackupClosed(sink_.get());
    server_.Promote({}, [](const absl::StatusOr<v1::PromoteResponse>& promoted) {
      EXPECT_EQ(promoted.status(), absl::OkStatus());
    });
    shard_->Append(
        {.index = 1,
         .action = Measure{.version = 1, .contributors = {gradient_}, .norms = optim::Norms::kGradient}});
    shard_->Flush();
  }

  void Replicate(const v1::ReplicationBody& body, int64_t floats = 0) {
    v1::ReplicationHeader header;
    v1::ReplicationItem& item = *header.add_items();
    item.set_number(++number_);
    item.set_text(body.SerializeAsString());
    item.set_floats(floats);
    EXPECT_EQ(session_.OnFrame(header, {}), absl::OkStatus());
  }
  void Heartbeat() {
    v1::HeartbeatRequest request;
    request.set_incarnation(1);
    server_.Heartbeat(request, [](const absl::StatusOr<v1::HeartbeatResponse>& response) {
      EXPECT_EQ(response.status(), absl::OkStatus());
    });
  }

  const Gradient gradient_ = {
      .key = {.worker = 0, .incarnation = 1, .step = 1}, .base_version = 0, .examples = 1};
  test::FakeClock clock_;
  RecordingPort* leader_ = nullptr;
  std::shared_ptr<Shard> shard_;
  Server server_;
  std::shared_ptr<DeafSink> sink_ = std::make_shared<DeafSink>();
  BackupSession session_{server_.hosted_job(), sink_};
  uint64_t number_ = 0;
};

TEST_F(PromotedServer, ReportsThatItWaitsForTheGradientOfALiveWorker) {
  for (int minute = 0; minute < 10; ++minute) {
    clock_.Advance(std::chrono::minutes(1));
    Heartbeat();
    server_.Tick();
  }
  EXPECT_THAT(leader_->waiting, SizeIs(10));
  EXPECT_THAT(leader_->waiting, testing::Each(1));
  EXPECT_THAT(leader_->sums, IsEmpty());
  auto push = shard_->BeginPush({.gradient = gradient_});
  EXPECT_EQ(push->AddChunk(ChunkAt(0), Bytes({3, 4})), absl::OkStatus());
  shard_->FinishPush(std::move(push), [](const absl::StatusOr<PushResult>&) {});
  ASSERT_THAT(leader_->sums, SizeIs(1));
  EXPECT_THAT(leader_->sums[0].slices[0].bands, ElementsAre(optim::Squares{.gradient = 25}));
  server_.Tick();
  EXPECT_THAT(leader_->waiting, SizeIs(10));
  EXPECT_TRUE(server_.ready());
}

TEST_F(PromotedServer, DropsTheShardWhenThatWorkersLeaseExpires) {
  clock_.Advance(std::chrono::seconds(299) + kSilent);  // a worker has this long to find the promoted backup
  server_.Tick();
  EXPECT_TRUE(server_.ready());
  clock_.Advance(std::chrono::seconds(2));
  server_.Tick();
  EXPECT_FALSE(server_.ready());
}

// While it is being closed, another item of the stream arrives.
class SinkWithOneMore final : public ReplicationSink {
 public:
  explicit SinkWithOneMore(Server& server) : server_(server) {}
  void Answer(const v1::ReplicationAck&) override {}
  void Close(absl::Status) override {
    v1::ReplicationBody body;
    body.set_echo(1);
    one_more_ = server_.hosted_job().OnReplicated(this, 2, body, {});
  }
  const absl::Status& one_more() const { return one_more_; }

 private:
  Server& server_;
  absl::Status one_more_;
};

// ABORTED would make the primary drop the shard.
TEST(BackupThatIsStopped, DoesNotReportAPromotion) {
  test::FakeClock clock;
  Server server({.index = 0,
                 .host_index = 1,
                 .connect_to_leader = nullptr,
                 .connect_to_backup = DialNobody,
                 .replicates_by_calls = true},
                clock);
  v1::ReplicationOrigin origin;
  *origin.mutable_job() = ReplicatedJob(/*workers=*/1);
  for (const net::Slice& slice : Vectors({{"a", 2}})) *origin.add_slices() = slice.ToProto();
  const auto sink = std::make_shared<SinkWithOneMore>(server);
  ASSERT_EQ(server.hosted_job().OpenBackup(origin, sink).status(), absl::OkStatus());
  server.Shutdown();
  EXPECT_EQ(sink->one_more(),
            absl::CancelledError("ps/1 has no backup of ps/0's shard on this stream any more"));
}

// Records what is sent to the backup.
class RecordingStream final : public ReplicationStream {
 public:
  explicit RecordingStream(std::vector<v1::ReplicationBody>& sent) : sent_(sent) {}
  void Send(std::vector<NumberedItem> items) override {
    for (NumberedItem& numbered : items) sent_.push_back(std::move(numbered.item.body));
  }

 private:
  std::vector<v1::ReplicationBody>& sent_;
};

// ps/0 with its backup, and two workers.
class ReplicatedServer : public testing::Test {
 protected:
  ReplicatedServer()
      : server_({.index = 0,
                 .connect_to_leader = nullptr,
                 .connect_to_backup =
                     [this](const std::string&, int, ReplicationStreamHandler& handler) {
                       handler_ = &handler;
                       return std::make_unique<RecordingStream>(sent_);
                     },
                 .replicates_by_calls = true},
                clock_) {
    v1::CreateRequest create;
    *create.mutable_job() = ReplicatedJob(/*workers=*/2);
    for (const net::Slice& slice : Vectors({{"a", 2}})) *create.add_slices() = slice.ToProto();
    uint64_t layout = 0;
    server_.Create(create, [&](absl::StatusOr<v1::CreateResponse> response) { layout = response->layout(); });
    server_.OnInitialised(layout);
    for (int step = 0; step < 4; ++step) {
      server_.KeepUpBackups();
      v1::ReplicationAck answer;
      answer.set_replicated(sent_.size());
      handler_->OnAnswer(answer);
    }
    server_.Tick();
    EXPECT_TRUE(server_.ready());
    for (int worker : {0, 1}) {
      v1::JoinRequest join;
      join.set_worker(worker);
      server_.Join(join, [](const absl::StatusOr<v1::JoinResponse>&) {});
    }
    sent_.clear();
  }
  // The events of a worker's end that the backup receives, in order.
  std::vector<std::string> Told(int worker) const {
    std::vector<std::string> told;
    for (const v1::ReplicationBody& body : sent_) {
      if (body.has_member() && body.member().worker() == worker)
        told.push_back(body.member().live() ? "lives" : "gone");
      if (body.input().has_left() && body.input().left().worker() == worker) told.push_back("leaves");
    }
    return told;
  }

  test::FakeClock clock_;
  std::vector<v1::ReplicationBody> sent_;
  ReplicationStreamHandler* handler_ = nullptr;
  Server server_;
};

// If the backup receives only the first event before it is promoted, it has a member whose lease will expire.
// If it received only the other one, the worker would never leave the round.
TEST_F(ReplicatedServer, ReplicatesAnExpiredLeaseToTheSequencerFirst) {
  clock_.Advance(std::chrono::seconds(11));
  server_.Tick();
  EXPECT_THAT(Told(1), ElementsAre("leaves", "gone"));
}

TEST_F(ReplicatedServer, ReplicatesALeaveToTheSequencerFirst) {
  v1::LeaveRequest leave;
  leave.set_worker(1);
  leave.set_incarnation(1);
  server_.Leave(leave, [](const absl::StatusOr<v1::LeaveResponse>&) {});
  EXPECT_THAT(Told(1), ElementsAre("leaves", "gone"));
}

// The primary has dropped the shard: the chief rolls the job back, while clients still know the lost server.
TEST(ABackupThatNobodyServes, CreatesTheJobAgainWithANewIncarnation) {
  test::FakeClock clock;
  Server server({.index = 1,
                 .incarnation = 500,
                 .connect_to_leader = [](const v1::Job&, std::shared_ptr<Shard>,
                                         int64_t) { return std::make_unique<RecordingPort>(); },
                 .connect_to_backup = DialNobody,
                 .replicates_by_calls = true},
                clock);
  v1::ReplicationOrigin origin;
  *origin.mutable_job() = ReplicatedJob(/*workers=*/1);
  for (const net::Slice& slice : Vectors({{"a", 2}})) *origin.add_slices() = slice.ToProto();
  origin.set_incarnation(7);
  origin.set_epoch(1);
  ASSERT_TRUE(server.hosted_job().OpenBackup(origin, std::make_shared<DeafSink>()).ok());
  v1::CreateRequest create;
  *create.mutable_job() = ReplicatedJob(/*workers=*/1);
  create.mutable_job()->set_generation(1);
  *create.mutable_slices() = origin.slices();
  server.Create(create, [](const auto& response) { EXPECT_EQ(response.status(), absl::OkStatus()); });
  v1::ConnectRequest request;
  request.set_protocol(net::kProtocolVersion);
  request.set_server(1);
  request.set_incarnation(7);
  request.set_epoch(1);
  server.Connect(request, [](const absl::StatusOr<v1::ConnectResponse>& response) {
    EXPECT_EQ(response->state(), v1::STATE_INITIALISING) << "it has not been dropped";
    EXPECT_NE(response->incarnation(), 7u);
  });
}

}  // namespace
}  // namespace cairn::ps
