// A job of two tables of different kinds, from the frames of its pushes to its snapshots and its backup.
#include "tests/unit/ps/two_tables.h"

#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/replication/replicator.h"
#include "ps/rpc/backup_session.h"

namespace cairn::ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

// A synchronous job of two workers.
class TwoTablesTest : public testing::Test {
 protected:
  TwoTablesTest() { Start({10, 20}, JobOfTwoTables(v1::MODE_SYNC, 2)); }
  void Start(std::vector<float> values, const v1::CreateRequest& request,
             const std::vector<std::vector<float>>& states = {}) {
    client_.reset();
    server_ = std::make_unique<Server>(
        Server::Options{.index = 0, .connect_to_leader = nullptr, .memory_limit = 1 << 20, .tables = &kinds_},
        clock_);
    client_ = std::make_unique<TablesClient>(*server_);
    ASSERT_EQ(client_->Create(request), absl::OkStatus());
    client_->Initialise(std::move(values), states);
    if (client_->done().code() != 0) return;
    for (const int worker : {0, 1}) client_->Join(worker);
  }
  std::vector<float> Values() { return client_->ReadValues()[0]; }
  std::map<int, std::vector<float>> Snapshot(const std::string& token) {
    v1::PlaceMarkerRequest marker;
    marker.set_token(token);
    marker.set_snapshot(true);
    server_->PlaceMarker(marker, [](const absl::StatusOr<v1::PlaceMarkerResponse>& response) {
      EXPECT_EQ(response.status(), absl::OkStatus());
    });
    return client_->ReadValues(token, /*state=*/true);
  }

  const CountingTables kinds_;
  test::FakeClock clock_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<TablesClient> client_;
};

TEST_F(TwoTablesTest, ARoundUpdatesBothTables) {
  client_->Push(0, 0, {1, 2}, {{7, {1, 1}}, {-1, {2, 4}}});
  EXPECT_THAT(client_->Read({7}), ElementsAre(Pair(7, ElementsAre(0, 0)))) << "the round is open";
  client_->Push(1, 0, {3, 4}, {{7, {3, 5}}});
  EXPECT_EQ(client_->done().outcome(), v1::OUTCOME_ACCEPTED);
  EXPECT_EQ(client_->done().version(), 1);
  EXPECT_THAT(Values(), ElementsAre(8, 17));
  EXPECT_THAT(client_->Read({7, -1}), ElementsAre(Pair(-1, ElementsAre(1, 2)), Pair(7, ElementsAre(2, 3))))
      << "the mean is over all examples of the round";
  EXPECT_EQ(client_->done().version(), 1);
}

TEST_F(TwoTablesTest, ReadsDoNotMakeRows) {
  EXPECT_THAT(client_->Read({5}), ElementsAre(Pair(5, ElementsAre(0, 0))));
  EXPECT_EQ(Snapshot("m")[1].size(), 2u) << "a state of no rows";
}

TEST_F(TwoTablesTest, APushMayLackRowsOrExamples) {
  client_->Push(0, 0, {2, 2}, {});
  client_->Push(1, 0, {}, {}, /*examples=*/0);
  EXPECT_EQ(client_->done().outcome(), v1::OUTCOME_ACCEPTED);
  EXPECT_THAT(Values(), ElementsAre(8, 18));
}

TEST_F(TwoTablesTest, ASnapshotHasTheStatesOfBothTablesAtOneVersion) {
  client_->Push(0, 0, {1, 2}, {{7, {1, 1}}});
  client_->Push(1, 0, {1, 2}, {{9, {2, 2}}});
  const auto state = Snapshot("m");
  EXPECT_THAT(state.at(0), ElementsAre(9, 18));
  EXPECT_EQ(state.at(1).size(), 2u + 2 * 6);
  client_->Push(0, 1, {1, 2}, {{7, {1, 1}}});
  client_->Push(1, 1, {1, 2}, {});

  v1::CreateRequest resumed = JobOfTwoTables(v1::MODE_SYNC, 2);
  resumed.mutable_job()->mutable_resumed()->set_version(1);
  Start(state.at(0), resumed, {state.at(1)});
  EXPECT_EQ(client_->done().code(), 0) << client_->done().message();
  EXPECT_THAT(client_->Read({7, 9}), ElementsAre(Pair(7, ElementsAre(0.5, 0.5)), Pair(9, ElementsAre(1, 1))));
  EXPECT_EQ(client_->done().version(), 1);
  EXPECT_EQ(Snapshot("again"), state);
  client_->Push(0, 1, {1, 2}, {{7, {1, 1}}});
  client_->Push(1, 1, {1, 2}, {});
  EXPECT_THAT(client_->Read({7}), ElementsAre(Pair(7, ElementsAre(1, 1))));
}

TEST_F(TwoTablesTest, AResumedJobNeedsTheStateOfEveryTable) {
  v1::CreateRequest resumed = JobOfTwoTables(v1::MODE_SYNC, 2);
  resumed.mutable_job()->mutable_resumed()->set_version(1);
  Start({9, 18}, resumed);
  EXPECT_EQ(client_->done().code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(client_->done().message(), HasSubstr("table 1: 0 words are not the state of a table"));
  Start({9, 18}, resumed, {{0, 0}, {0, 0}});
  EXPECT_THAT(client_->done().message(), HasSubstr("there is no table 2: the job has the tables 0 to 1"));
}

TEST_F(TwoTablesTest, RowsThatDoNotFitTheirTableFailThePush) {
  for (const auto& [table, rows, why] :
       {std::tuple(1, RowMap{{7, {1}}}, "a frame of 1 rows of 16 bytes has a payload of 12"),
        std::tuple(2, RowMap{{7, {1, 1}}}, "there is no table 2"),
        std::tuple(-1, RowMap{{7, {1, 1}}}, "there is no table -1"),
        std::tuple(0, RowMap{{7, {1, 1}}}, "are pushed in chunks, not in rows")}) {
    client_->BeginPush(0, 0);
    client_->Rows(rows, table);
    client_->End();
    EXPECT_THAT(client_->done().message(), HasSubstr(why));
  }
}

TEST_F(TwoTablesTest, ATableIsReadAsItsKindAllows) {
  client_->Read({7}, /*table=*/0);
  EXPECT_THAT(client_->done().message(), HasSubstr("variables are read by ranges of elements"));
  client_->Read({7}, /*table=*/2);
  EXPECT_THAT(client_->done().message(), HasSubstr("there is no table 2"));
}

TEST_F(TwoTablesTest, AnAnswerBringsTheWantedRowsAfterTheUpdate) {
  client_->BeginPush(0, 0);
  client_->Chunk(0, {1, 2});
  client_->Want({7, -1});
  client_->Rows({{7, {1, 1}}});
  client_->Want({9});
  client_->End();
  const uint64_t wanted = client_->request();
  EXPECT_THAT(client_->Answered(wanted, {7, -1, 9}), IsEmpty()) << "the round is open";
  client_->Push(1, 0, {3, 4}, {{-1, {4, 6}}});
  EXPECT_THAT(
      client_->Answered(wanted, {7, -1, 9}),
      ElementsAre(Pair(-1, ElementsAre(2, 3)), Pair(7, ElementsAre(0.5, 0.5)), Pair(9, ElementsAre(0, 0))));
  EXPECT_EQ(Snapshot("m")[1].size(), 2u + 2 * 6) << "the wanted row 9 is not created";
}

TEST_F(TwoTablesTest, APushWithoutExamplesMayWantRows) {
  client_->Push(0, 0, {2, 2}, {{7, {1, 1}}});
  client_->BeginPush(1, 0, /*examples=*/0);
  client_->Want({7});
  client_->End();
  EXPECT_THAT(client_->Answered(client_->request(), {7}), ElementsAre(Pair(7, ElementsAre(1, 1))));
}

TEST_F(TwoTablesTest, ARepeatOfAWaitingPushGetsTheRowsThatItWants) {
  const v1::ClientHeader push = client_->PushHeader(0, 0);
  client_->Frame(push);
  client_->Chunk(0, {1, 2});
  client_->Want({7});
  client_->End();
  v1::ClientHeader again = client_->Next();
  *again.mutable_push() = push.push();
  client_->Frame(again);
  client_->Rows({{7, {5, 5}}});
  client_->Want({9, 7});
  client_->End();
  client_->Push(1, 0, {3, 4}, {{7, {4, 6}}});
  EXPECT_THAT(client_->Answered(push.request_id(), {7}), ElementsAre(Pair(7, ElementsAre(2, 3))));
  EXPECT_THAT(client_->Answered(again.request_id(), {9, 7}),
              ElementsAre(Pair(7, ElementsAre(2, 3)), Pair(9, ElementsAre(0, 0))));
}

TEST_F(TwoTablesTest, ARepeatOfADecidedPushGetsNoRows) {
  const v1::ClientHeader push = client_->PushHeader(0, 0);
  client_->Frame(push);
  client_->Chunk(0, {1, 2});
  client_->End();
  client_->Push(1, 0, {3, 4}, {{7, {4, 6}}});
  v1::ClientHeader again = client_->Next();
  *again.mutable_push() = push.push();
  client_->Frame(again);
  client_->Want({7});
  client_->End();
  EXPECT_TRUE(client_->done().duplicate());
  EXPECT_FALSE(client_->done().has_values());
  EXPECT_THAT(client_->Answered(again.request_id(), {7}), IsEmpty());
}

TEST_F(TwoTablesTest, GradientsMayReferToTheRowsThatThePreviousPushWanted) {
  client_->BeginPush(0, 0);
  client_->Chunk(0, {0, 0});
  client_->Want({7, -1, 9});
  client_->End();
  client_->Push(1, 0, {0, 0}, {});
  // The previous push of the stream, that of worker 1, wanted none.
  client_->BeginPush(0, 1);
  client_->KnownRows(0, {1, 1});
  client_->Chunk(0, {0, 0});
  client_->Want({7, -1, 9});
  client_->End();
  EXPECT_THAT(
      client_->done().message(),
      HasSubstr("a push refers to 1 rows from 0 on of table 1: the previous push of its stream wanted 0"));

  client_->BeginPush(0, 1);
  client_->Chunk(0, {0, 0});
  client_->Want({7, -1, 9});
  client_->End();
  client_->BeginPush(1, 1);
  client_->KnownRows(1, {2, 4, 6, 8});
  client_->Chunk(0, {0, 0});
  client_->End();
  EXPECT_THAT(client_->Read({7, -1, 9}), ElementsAre(Pair(-1, ElementsAre(1, 2)), Pair(7, ElementsAre(0, 0)),
                                                     Pair(9, ElementsAre(3, 4))));
}

TEST_F(TwoTablesTest, ReferencesBeyondTheWantedRowsAreRefused) {
  for (const int64_t known : {int64_t{-1}, int64_t{1}, int64_t{2}, std::numeric_limits<int64_t>::max()}) {
    client_->BeginPush(0, 0);
    client_->Want({7, -1});
    client_->End();
    EXPECT_THAT(client_->done().message(), HasSubstr("elements received"));  // the chunks are missing
    client_->BeginPush(0, 0);
    client_->KnownRows(known, {1, 1, 2, 2});
    client_->End();
    EXPECT_THAT(client_->done().message(), HasSubstr("the previous push of its stream wanted 2")) << known;
  }
}

TEST_F(TwoTablesTest, RowsMayComeIn16Bits) {
  v1::ClientHeader push = client_->PushHeader(0, 0);
  push.mutable_push()->set_values_encoding(v1::ENCODING_BFLOAT16);
  client_->Frame(push);
  client_->Chunk(0, {1, 2});
  client_->Rows({{7, {1, 1.0009765625}}});
  client_->Want({7});
  client_->End();
  client_->Push(1, 0, {3, 4}, {{7, {1, 1.0009765625}}});
  EXPECT_THAT(client_->Answered(push.request_id(), {7}), ElementsAre(Pair(7, ElementsAre(1, 1))));
  EXPECT_THAT(client_->Read({7}, 1, v1::ENCODING_BFLOAT16), ElementsAre(Pair(7, ElementsAre(1, 1))));
  EXPECT_THAT(client_->Read({7}, 1, v1::ENCODING_FLOAT16),
              ElementsAre(Pair(7, ElementsAre(1, 1.0009765625))));
  client_->Read({7}, 1, v1::ENCODING_INT8);
  EXPECT_THAT(client_->done().message(), HasSubstr("values cannot be sent in int8"));
}

TEST_F(TwoTablesTest, RowsOfTablesThatHaveNoneCannotBeWanted) {
  for (const auto& [table, why] :
       {std::pair(0, "variables are read by ranges of elements"), std::pair(2, "there is no table 2"),
        std::pair(-1, "there is no table -1")}) {
    client_->BeginPush(0, 0);
    client_->Want({7}, table);
    client_->End();
    EXPECT_THAT(client_->done().message(), HasSubstr(why));
  }
}

TEST_F(TwoTablesTest, TablesCountInTheMemoryOfTheJob) {
  v1::CreateRequest request = JobOfTwoTables(v1::MODE_SYNC, 2);  // 48 bytes, and 100 rows of 24
  const auto create = [&](int64_t limit) {
    Server server({.index = 0, .connect_to_leader = nullptr, .memory_limit = limit, .tables = &kinds_},
                  clock_);
    return TablesClient(server).Create(request);
  };
  EXPECT_EQ(create(2448), absl::OkStatus());
  EXPECT_EQ(create(2447).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(create(2447).message(), HasSubstr(", other tables "));
}

TEST_F(TwoTablesTest, RowsAreRefusedWhenTheMemoryOfTheJobIsFull) {
  client_.reset();
  server_ = std::make_unique<Server>(
      Server::Options{.index = 0, .connect_to_leader = nullptr, .memory_limit = 2448, .tables = &kinds_},
      clock_);
  client_ = std::make_unique<TablesClient>(*server_);
  ASSERT_EQ(client_->Create(JobOfTwoTables(v1::MODE_SYNC, 2)), absl::OkStatus());
  client_->Initialise({10, 20});
  client_->Join(0);
  RowMap rows;
  for (int64_t id = 0; id < 110; ++id) rows[id] = {1, 1};
  client_->Push(0, 0, {1, 2}, rows);
  EXPECT_EQ(client_->done().code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(client_->done().message(), HasSubstr("no memory for rows"));

  std::vector<int64_t> ids(400);  // 3200 bytes
  std::iota(ids.begin(), ids.end(), 0);
  client_->Read(ids);
  EXPECT_EQ(client_->done().code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(client_->done().message(), HasSubstr("no memory for the ids of wanted rows"));
  client_->BeginPush(0, 0);
  client_->Chunk(0, {1, 2});
  client_->Want(ids);
  client_->Want({0});
  client_->End();
  const uint64_t request = client_->request();
  client_->Join(1);
  client_->Push(1, 0, {1, 2}, {});
  EXPECT_EQ(client_->done().code(), 0) << client_->done().message();
  EXPECT_EQ(client_->done().version(), 1) << "the push counts ...";
  EXPECT_THAT(client_->Answered(request, {0}), IsEmpty()) << "... and its answer has no rows";
  ids.resize(200);
  client_->Read(ids);
  EXPECT_THAT(client_->done().message(), HasSubstr("no memory for rows that are read"));
  ids.resize(100);
  EXPECT_EQ(client_->Read(ids).size(), ids.size());
  EXPECT_EQ(client_->Read(ids).size(), ids.size()) << "what a read has taken is free again";
}

TEST_F(TwoTablesTest, ImpossibleTablesAreRefusedByName) {
  using Change = void (*)(v1::Job& job);
  for (const auto& [change, why] : std::vector<std::pair<Change, const char*>>{
           {[](v1::Job& job) { job.mutable_tables(0)->clear_name(); }, "a table has no name"},
           {[](v1::Job& job) { *job.add_tables() = job.tables(0); }, "table 't' is declared twice"},
           {[](v1::Job& job) { job.mutable_tables(0)->set_row_elements(0); },
            "table 't' has rows of 0 elements"},
           {[](v1::Job& job) { job.mutable_tables(0)->set_kind("hash"); },
            "table 't': there are no tables of the kind 'hash'"},
           {[](v1::Job& job) { job.set_mode(v1::MODE_VARIABLES); },
            "table 't': a job that trains nothing has no tables"}}) {
    v1::CreateRequest request = JobOfTwoTables(v1::MODE_SYNC, 2);
    change(*request.mutable_job());
    Server server({.index = 0, .connect_to_leader = nullptr, .tables = &kinds_}, clock_);
    EXPECT_THAT(TablesClient(server).Create(request).message(), HasSubstr(why));
  }
  Server without({.index = 0, .connect_to_leader = nullptr}, clock_);
  EXPECT_THAT(TablesClient(without).Create(JobOfTwoTables(v1::MODE_SYNC, 2)).message(),
              HasSubstr("table 't': this server stores variables only"));
}

// The stream from the primary of ps/0's shard to its backup. The backup's answers are delivered by Deliver().
class BackupStream final : public ReplicationSink {
 public:
  explicit BackupStream(Server& backup) : backup_(backup) {}

  std::unique_ptr<ReplicationStream> Dial(ReplicationStreamHandler& handler) {
    handler_ = &handler;
    session_ = std::make_unique<BackupSession>(
        backup_.hosted_job(), std::shared_ptr<ReplicationSink>(std::shared_ptr<void>(), this));
    return std::make_unique<Stream>(*this);
  }
  void Deliver() {
    for (; !answers_.empty(); answers_.pop_front()) handler_->OnAnswer(answers_.front());
  }
  void Break() { session_.reset(); }

  void Answer(const v1::ReplicationAck& answer) override { answers_.push_back(answer); }
  void Close(absl::Status) override {}

 private:
  class Stream final : public ReplicationStream {
   public:
    explicit Stream(BackupStream& to) : to_(to) {}
    ~Stream() override { to_.handler_->OnClosed(absl::CancelledError("closed")); }
    void Send(std::vector<NumberedItem> items) override {
      PutIntoFrames(items, [&](const v1::ReplicationHeader& header, absl::Span<const float> payload,
                               const std::shared_ptr<const void>&) {
        std::vector<absl::Span<const char>> runs;
        if (!payload.empty()) {
          runs.emplace_back(reinterpret_cast<const char*>(payload.data()), payload.size() * sizeof(float));
        }
        if (to_.session_ == nullptr) return;
        EXPECT_EQ(to_.session_->OnFrame(header, runs), absl::OkStatus());
      });
    }

   private:
    BackupStream& to_;
  };
  Server& backup_;
  ReplicationStreamHandler* handler_ = nullptr;
  std::unique_ptr<BackupSession> session_;
  std::deque<v1::ReplicationAck> answers_;
};

TEST(TwoTablesBackup, ContinuesWithBothTables) {
  const CountingTables kinds;
  test::FakeClock clock;
  const auto nobody = [](const std::string&, int,
                         ReplicationStreamHandler&) -> std::unique_ptr<ReplicationStream> { return nullptr; };
  Server backup({.index = 0,
                 .host_index = 1,
                 .incarnation = 2,
                 .connect_to_leader = nullptr,
                 .connect_to_backup = nobody,
                 .replicates_by_calls = true,
                 .tables = &kinds},
                clock);
  BackupStream stream(backup);
  Server primary(
      {.index = 0,
       .connect_to_leader = nullptr,
       .connect_to_backup = [&](const std::string&, int,
                                ReplicationStreamHandler& handler) { return stream.Dial(handler); },
       .replicates_by_calls = true,
       .tables = &kinds},
      clock);
  const auto step = [&] {
    for (int i = 0; i < 4; ++i) {
      primary.KeepUpBackups();
      stream.Deliver();
      primary.Tick();
    }
  };
  v1::CreateRequest request = JobOfTwoTables(v1::MODE_ASYNC, 1);
  request.mutable_job()->add_servers("host:2");
  request.mutable_job()->set_ps_replication(1);
  auto client = std::make_unique<TablesClient>(primary);
  ASSERT_EQ(client->Create(request), absl::OkStatus());
  client->Initialise({10, 20});
  step();
  ASSERT_TRUE(backup.hosted_job().backup_in_sync());
  client->Join(0);
  step();
  client->Push(0, 0, {1, 2}, {{7, {1, 1}}, {9, {2, 2}}});
  step();
  EXPECT_EQ(client->done().outcome(), v1::OUTCOME_ACCEPTED);
  client->Push(0, 1, {1, 2}, {});
  step();
  EXPECT_EQ(client->done().version(), 2);

  stream.Break();
  ASSERT_TRUE(backup.hosted_job().backup_in_sync());
  backup.Promote({}, [](const absl::StatusOr<v1::PromoteResponse>& promoted) {
    EXPECT_EQ(promoted.status(), absl::OkStatus());
  });
  TablesClient after(backup);
  after.set_layout(client->layout());
  EXPECT_THAT(after.ReadValues()[0], ElementsAre(8, 16));
  EXPECT_THAT(after.Read({7, 9}), ElementsAre(Pair(7, ElementsAre(1, 1)), Pair(9, ElementsAre(2, 2))));
  EXPECT_EQ(after.done().version(), 2);
  client.reset();
}

}  // namespace
}  // namespace cairn::ps
