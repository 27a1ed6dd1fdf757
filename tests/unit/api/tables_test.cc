// Sessions with embedding tables, on servers in this process.
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "api/training_session.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/table/embedding/embedding_tables.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/toy_job.h"

namespace cairn::api {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

constexpr int64_t kFar = int64_t{1} << 41;

// w = 0 with a rate of 1. Table 0, "users", has rows of two elements for any id, which begin with 1 and have a rate of
// 0.5. Table 1, "items", has rows of one element for 4 ids, which begin with 3 and have the job's rate.
Job WithTables(int workers = 1) {
  Job job;
  job.variables = {{.name = "w", .shape = {1}}};
  job.tables = {{.name = "users",
                 .width = 2,
                 .center = 1,
                 .optimizer = Optimizer{.name = "SGD", .hyperparameters = {{"learning_rate", 0.5}}}},
                {.name = "items", .width = 1, .rows = 4, .center = 3}};
  job.optimizer = {.name = "SGD", .hyperparameters = {{"learning_rate", 1}}};
  job.workers = workers;
  job.updates = 100;
  job.lease = std::chrono::seconds(30);
  return job;
}

class TablesTest : public testing::Test {
 protected:
  ~TablesTest() override { std::filesystem::remove_all(directory_); }

  SessionOptions Options(int worker = 0) {
    SessionOptions options;
    options.worker = worker;
    options.connect.connect_timeout = std::chrono::seconds(20);
    options.step_timeout = std::chrono::seconds(20);
    for (int server = 0; server < cluster_.num_servers(); ++server) {
      options.connect.servers.push_back("host:" + std::to_string(2222 + server));
    }
    return options;
  }
  absl::StatusOr<std::unique_ptr<TrainingSession>> TryOpen(const Job& job, const SessionOptions& options) {
    return TrainingSession::Open(job, options, [this](const ReachArgs& args) {
      return client::Connection::Open(
          cluster_.Stubs(args.task),
          {.task = args.task,
           .connect_timeout = args.options.connect_timeout,
           .stop = args.stop,
           .stub_factory =
               args.backups ? cluster_.StubFactoryFor(args.task) : client::ConnectionOptions::StubFactory()});
    });
  }
  std::unique_ptr<TrainingSession> Open(const Job& job, const SessionOptions& options) {
    return TryOpen(job, options).value();
  }
  static std::vector<float> Read(TrainingSession& session, int table, const std::vector<int64_t>& ids,
                                 size_t width) {
    std::vector<float> rows(ids.size() * width, -99);
    EXPECT_EQ(session.ReadRows({{.table = table, .ids = ids, .rows = rows}}), absl::OkStatus());
    return rows;
  }
  // A step of one example with these gradients of "users".
  static absl::Status Step(TrainingSession& session, const std::vector<int64_t>& ids,
                           const std::vector<float>& gradients, int64_t examples = 1) {
    if (const absl::Status begun = session.BeginStep(examples, {}); !begun.ok()) return begun;
    if (const absl::Status pushed = session.PushRows({{.table = 0, .ids = ids, .gradients = gradients}});
        !pushed.ok()) {
      return pushed;
    }
    return session.FinishStep().status();
  }
  std::string Directory() const { return directory_.string(); }

  ps::EmbeddingTables kinds_{nullptr};
  test::InProcessCluster cluster_{{.servers = 2, .tables = &kinds_}};

 private:
  const std::filesystem::path directory_ = std::filesystem::path(testing::TempDir()) /
                                           (std::string("cairn-tables-") + std::to_string(getpid()) + "-" +
                                            testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(TablesTest, AStepUpdatesTheRowsOfItsGradients) {
  const auto session = Open(WithTables(), Options());
  EXPECT_THAT(Read(*session, 0, {kFar, -7}, 2), ElementsAre(1, 1, 1, 1));
  ASSERT_EQ(Step(*session, {kFar, -7}, {2, 4, -2, 0}), absl::OkStatus());
  EXPECT_THAT(Read(*session, 0, {-7, 5, kFar}, 2), ElementsAre(2, 1, 1, 1, 0, -1));
}

TEST_F(TablesTest, TheAnswerToAStepBringsTheRowsThatItWanted) {
  const auto session = Open(WithTables(), Options());
  const std::vector<int64_t> ids = {1, 2, 3};
  const std::vector<int64_t> items = {0, 3};
  std::vector<float> users_rows(6), items_rows(2);
  ASSERT_EQ(session->BeginStep(1, {}), absl::OkStatus());
  const std::vector<float> gradients = {2, 4};
  ASSERT_EQ(session->PushRows({{.table = 0, .ids = {ids.data(), 1}, .gradients = gradients}}),
            absl::OkStatus());
  ASSERT_EQ(session->WantRows({{.table = 0, .ids = ids, .rows = users_rows},
                               {.table = 1, .ids = items, .rows = items_rows}}),
            absl::OkStatus());
  EXPECT_FALSE(session->has_wanted_rows());
  ASSERT_TRUE(session->FinishStep().ok());
  EXPECT_TRUE(session->has_wanted_rows());
  EXPECT_THAT(users_rows, ElementsAre(0, -1, 1, 1, 1, 1));
  EXPECT_THAT(items_rows, ElementsAre(3, 3));
}

TEST_F(TablesTest, GradientsOfRowsAreMeansOverTheExamplesOfAllWorkers) {
  std::vector<std::unique_ptr<TrainingSession>> sessions;
  for (int worker : {0, 1}) sessions.push_back(Open(WithTables(2), Options(worker)));
  test::InParallel(2, [&](int worker) {
    TrainingSession& session = *sessions[static_cast<size_t>(worker)];
    const absl::Status step =
        worker == 0 ? Step(session, {5}, {4, 8}, 1) : Step(session, {6, 6}, {4, 0, 4, 0}, 3);
    ASSERT_EQ(step, absl::OkStatus());
    // Without examples, gradients do not count.
    ASSERT_EQ(Step(session, {7}, {8, 8}, 0), absl::OkStatus());
  });
  EXPECT_THAT(Read(*sessions[1], 0, {5, 6, 7}, 2), ElementsAre(0.5f, 0, -2, 1, 1, 1));
}

TEST_F(TablesTest, WrongRowsAreRefusedAndNamed) {
  const auto session = Open(WithTables(), Options());
  const std::vector<int64_t> ids = {1, 4};
  std::vector<float> rows(2);
  const auto read = [&](const RowsToRead& entry) {
    return std::string(session->ReadRows({entry}).message());
  };
  EXPECT_THAT(read({.table = 1, .ids = ids, .rows = rows}),
              HasSubstr("table 'items': id 4, must be in [0, 4)"));
  EXPECT_THAT(read({.table = 0, .ids = ids, .rows = rows}),
              HasSubstr("table 'users': 2 elements for 2 rows of 2"));
  EXPECT_THAT(read({.table = 2, .ids = ids, .rows = rows}), HasSubstr("no table 2, the job has 2"));
  EXPECT_THAT(std::string(session->PushRows({}).message()), HasSubstr("PushRows: no step has begun"));
  ASSERT_EQ(session->BeginStep(1, {}), absl::OkStatus());
  const std::vector<float> gradients = {1, 1};
  const RowGradients one = {.table = 1, .ids = {ids.data(), 1}, .gradients = {gradients.data(), 1}};
  EXPECT_THAT(std::string(session->PushRows({one, one}).message()),
              HasSubstr("table 'items' occurs twice in a call"));
  ASSERT_EQ(session->PushRows({one}), absl::OkStatus());
  EXPECT_THAT(std::string(session->PushRows({one}).message()), HasSubstr("called twice in a step"));
  ASSERT_TRUE(session->FinishStep().ok());
  EXPECT_THAT(Read(*session, 1, {1}, 1), ElementsAre(2)) << "the job's rate";
}

TEST_F(TablesTest, WrongTablesAreRefusedAndNamed) {
  const auto error = [&](const Job& job) { return std::string(TryOpen(job, Options()).status().message()); };
  Job job = WithTables();
  job.tables[1].name = "users";
  EXPECT_THAT(error(job), HasSubstr("Job::tables: two are named 'users'"));
  job = WithTables();
  job.tables[0].width = 0;
  EXPECT_THAT(error(job), HasSubstr("table 'users': rows of 0 elements"));
  job = WithTables();
  job.tables[0].optimizer = Optimizer{.name = "torch.Adam"};
  EXPECT_THAT(error(job), HasSubstr("table 'users': unknown optimizer 'torch.Adam' of a table"));
}

TEST_F(TablesTest, AResumedJobHasTheRowsOfTheCheckpoint) {
  SessionOptions options = Options();
  options.checkpoint_directory = Directory();
  {
    const auto session = Open(WithTables(), options);
    ASSERT_EQ(Step(*session, {kFar, -7}, {2, 4, -2, 0}), absl::OkStatus());
    ASSERT_EQ(session->SaveCheckpoint(), absl::OkStatus());
    ASSERT_EQ(Step(*session, {kFar}, {100, 100}), absl::OkStatus());
  }
  for (int server : {0, 1}) cluster_.Restart(server);
  Job other = WithTables();
  other.tables[0].seed = 1;
  other.tables[0].spread = 1;
  other.tables[0].first_values = Table::FirstValues::kUniform;
  EXPECT_THAT(std::string(TryOpen(other, options).status().message()), HasSubstr("table 'users'"));
  const auto session = Open(WithTables(), options);
  EXPECT_EQ(session->steps().version(), 1);
  EXPECT_THAT(Read(*session, 0, {-7, kFar}, 2), ElementsAre(2, 1, 0, -1));
}

TEST_F(TablesTest, ABackupHasTheRows) {
  Job job = WithTables();
  job.backups = 1;
  const auto session = Open(job, Options());
  ASSERT_EQ(Step(*session, {1, 2, 3}, {2, 0, 2, 0, 2, 0}), absl::OkStatus());
  cluster_.Kill(1);
  ASSERT_EQ(Step(*session, {1, 2, 3}, {2, 0, 2, 0, 2, 0}), absl::OkStatus());
  EXPECT_THAT(Read(*session, 0, {1, 2, 3}, 2), ElementsAre(-1, 1, -1, 1, -1, 1));
}

TEST_F(TablesTest, TheChiefReadsAllRowsOfATable) {
  const auto session = Open(WithTables(), Options());
  ASSERT_EQ(Step(*session, {kFar, -7}, {2, 4, -2, 0}), absl::OkStatus());
  const auto users = session->ReadTable(0);
  ASSERT_TRUE(users.ok()) << users.status();
  ASSERT_THAT(users->ids, UnorderedElementsAre(-7, kFar));
  EXPECT_EQ(users->rows,
            (users->ids[0] == -7 ? std::vector<float>{2, 1, 0, -1} : std::vector<float>{0, -1, 2, 1}));
  EXPECT_EQ(session->ReadTable(1)->ids.size(), 0u);
  EXPECT_THAT(std::string(session->ReadTable(2).status().message()), HasSubstr("no table 2"));
}

TEST(UniqueIds, KeepTheOrderOfTheirFirstAppearance) {
  UniqueIds unique;
  const std::vector<int64_t> batch = {7, -1, 7, kFar, -1};
  unique.Compute(batch);
  EXPECT_THAT(unique.ids(), ElementsAre(7, -1, kFar));
  EXPECT_THAT(unique.positions(), ElementsAre(0, 1, 0, 2, 1));
}

}  // namespace
}  // namespace cairn::api
