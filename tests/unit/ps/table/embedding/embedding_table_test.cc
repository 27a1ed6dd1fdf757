// An embedding table through the interface of tables: pushes of rows, means, updates, reads, states, refusals.
#include "ps/table/embedding/embedding_table.h"

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/core/status.h"
#include "common/net/wire/row_frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/table/embedding/embedding_tables.h"

namespace cairn::ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Rows = std::vector<std::pair<int64_t, std::vector<float>>>;

v1::Job JobWith(const std::string& optimizer, double learning_rate) {
  v1::Job job;
  job.add_servers("a:1");
  job.mutable_optimizer()->set_name(optimizer);
  (*job.mutable_optimizer()->mutable_hyperparameters())["learning_rate"] = learning_rate;
  return job;
}

v1::Table TableOf(int64_t dim) {
  v1::Table table;
  table.set_name("words");
  table.set_kind("embedding");
  table.set_row_elements(dim);
  return table;
}

class EmbeddingTableTest : public testing::Test {
 protected:
  EmbeddingTableTest() { Make(JobWith("SGD", 1)); }
  void Make(const v1::Job& job, v1::Table table = TableOf(2), ThreadPool* threads = nullptr) {
    const EmbeddingTables kinds(threads);
    ASSERT_EQ(kinds.BytesOf(table, job).status(), absl::OkStatus());
    table_ = kinds.Make(table, job, /*server=*/0, budget_);
  }

  absl::StatusOr<std::shared_ptr<const TableGradient>> Push(int64_t examples, const Rows& rows) {
    PushRequest request;
    request.gradient.examples = examples;
    const auto push = table_->BeginPush(request);
    for (const auto& [id, elements] : rows) {
      const absl::Span<const char> runs[] = {
          {reinterpret_cast<const char*>(&id), sizeof(id)},
          {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(float)}};
      v1::Rows frame;
      frame.set_table(1);
      frame.set_count(1);
      CAIRN_ASSIGN_OR_RETURN(
          net::ReceivedRows received,
          net::ReceivedRows::Of(frame, net::Payload(runs), static_cast<int64_t>(elements.size())));
      CAIRN_RETURN_IF_ERROR(push->AddRows(std::move(received)));
    }
    push->Keep();
    return push->Take();
  }
  // Makes an update of the gradients, each with its examples.
  absl::Status Update(const std::vector<std::pair<int64_t, Rows>>& pushes) {
    std::vector<Gradient> of(pushes.size());
    TableUpdate update = {.version = ++version_, .learning_rate = rate_, .known = &known_};
    for (size_t i = 0; i < pushes.size(); ++i) {
      of[i].examples = pushes[i].first;
      CAIRN_ASSIGN_OR_RETURN(auto data, Push(pushes[i].first, pushes[i].second));
      update.contributions.push_back({&of[i], std::move(data)});
    }
    return table_->Apply(update);
  }
  std::vector<float> Read(int64_t id) {
    const auto rows = table_->ReadRows({id});
    EXPECT_EQ(rows.status(), absl::OkStatus());
    if (!rows.ok()) return {};
    EXPECT_EQ(rows->version, version_);
    return {rows->elements->span().begin(), rows->elements->span().end()};
  }
  v1::TableStatus StatusOf() {
    v1::TableStatus status;
    table_->FillStatus(status);
    return status;
  }
  // The bits of the state, in which ids are no floats.
  std::vector<uint32_t> State() {
    std::vector<uint32_t> state;
    const auto saved = table_->Save(/*beyond_budget=*/false);
    EXPECT_EQ(saved.status(), absl::OkStatus());
    for (const auto& buffer : *saved) {
      for (const float element : buffer->span()) state.push_back(std::bit_cast<uint32_t>(element));
    }
    return state;
  }

  const std::shared_ptr<optim::MemoryBudget> budget_ = std::make_shared<optim::MemoryBudget>(64 << 20);
  const optim::VariableSquares known_{};
  std::unique_ptr<Table> table_;
  int64_t version_ = 0;
  std::optional<float> rate_;  // set if the chief has changed it
};

TEST_F(EmbeddingTableTest, RowsBeginAtTheirFirstValuesAndFollowTheirGradients) {
  EXPECT_EQ(Update({{4, {{7, {1, 2}}, {-1, {0.5, 0}}}}}), absl::OkStatus());
  EXPECT_THAT(Read(7), ElementsAre(-1, -2));
  EXPECT_THAT(Read(-1), ElementsAre(-0.5, 0));
  EXPECT_THAT(Read(8), ElementsAre(0, 0));
  EXPECT_EQ(Update({{4, {{7, {1, 2}}}}}), absl::OkStatus());
  EXPECT_THAT(Read(7), ElementsAre(-2, -4));
  EXPECT_THAT(Read(-1), ElementsAre(-0.5, 0)) << "a row without a gradient does not change";
}

TEST_F(EmbeddingTableTest, TheStatusCountsLookupsUpdatesAndInserts) {
  EXPECT_EQ(Update({{1, {{7, {1, 2}}, {8, {1, 1}}}}, {1, {{7, {3, 2}}}}}), absl::OkStatus());
  Read(7);
  Read(9);
  const v1::TableStatus status = StatusOf();
  EXPECT_EQ(status.name(), "words");
  EXPECT_EQ(status.row_elements(), 2);
  EXPECT_EQ(status.rows(), 2);
  EXPECT_GT(status.bytes(), 0);
  EXPECT_EQ(status.lookups(), 2);
  EXPECT_EQ(status.hits(), 1);
  EXPECT_EQ(status.gradients(), 3);
  EXPECT_EQ(status.updates(), 2);
  EXPECT_EQ(status.inserts(), 2);
}

TEST_F(EmbeddingTableTest, TheStatusHasTheHottestRows) {
  for (int64_t i = 0; i < 2000; ++i)
    EXPECT_EQ(Update({{1, {{5, {0, 0}}, {100 + i, {0, 0}}}}}), absl::OkStatus());
  const v1::TableStatus status = StatusOf();
  ASSERT_EQ(status.hottest_size(), 1) << "the others occurred once";
  EXPECT_EQ(status.hottest(0).id(), 5);
  EXPECT_NEAR(status.hottest(0).share(), 0.5, 0.2) << "one of 32 ids is counted";
}

TEST_F(EmbeddingTableTest, EveryIntegerIsAnId) {
  constexpr int64_t kIds[] = {0, -1, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(),
                              (int64_t{1} << 53) + 1};
  Rows rows;
  for (const int64_t id : kIds) rows.push_back({id, {static_cast<float>(rows.size() + 1), 0}});
  EXPECT_EQ(Update({{1, rows}}), absl::OkStatus());
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(Read(kIds[i])[0], -static_cast<float>(i + 1));
}

TEST_F(EmbeddingTableTest, TheMeanIsOverTheExamplesOfAllContributors) {
  EXPECT_EQ(Update({{10, {{7, {1, 2}}, {9, {4, 4}}}}, {10, {{7, {3, -2}}}}}), absl::OkStatus());
  EXPECT_THAT(Read(7), ElementsAre(-2, 0));
  EXPECT_THAT(Read(9), ElementsAre(-2, -2)) << "half of the examples do not have the row";
  EXPECT_EQ(Update({{30, {{9, {4, 4}}}}, {10, {}}, {0, {{9, {100, 100}}}}}), absl::OkStatus());
  EXPECT_THAT(Read(9), ElementsAre(-5, -5)) << "weighted by examples, and a push of none has no gradient";
}

TEST_F(EmbeddingTableTest, GradientsOfOneRowAreAddedBeforeTheyAreSquared) {
  Make(JobWith("Adagrad", 0.1));
  EXPECT_EQ(Update({{1, {{1, {.01F, .02F}}}}}), absl::OkStatus());
  EXPECT_EQ(Update({{1, {{1, {.3F, .4F}}, {1, {.1F, -.2F}}}}}), absl::OkStatus());
  const std::vector<float> twice = Read(1);
  Make(JobWith("Adagrad", 0.1));
  version_ = 0;
  EXPECT_EQ(Update({{1, {{1, {.01F, .02F}}}}}), absl::OkStatus());
  EXPECT_EQ(Update({{1, {{1, {.3F + .1F, .4F - .2F}}}}}), absl::OkStatus());
  EXPECT_EQ(Read(1), twice);
}

TEST_F(EmbeddingTableTest, FirstValuesDependOnSeedTableKeyAndColumnOnly) {
  v1::Table table = TableOf(3);
  table.mutable_embedding()->set_distribution(v1::EmbeddingTable::DISTRIBUTION_UNIFORM);
  table.mutable_embedding()->set_spread(0.05);
  Make(JobWith("SGD", 1), table);
  const std::vector<float> first = Read(5);
  for (const float value : first) EXPECT_LE(std::fabs(value), 0.05F);
  EXPECT_NE(first, Read(6));
  EXPECT_EQ(Update({{1, {{5, {0, 0, 0}}}}}), absl::OkStatus());
  EXPECT_EQ(Read(5), first) << "an update of zeros begins the row at the values that readers saw";
  table.mutable_embedding()->set_seed(1);
  Make(JobWith("SGD", 1), table);
  version_ = 0;
  EXPECT_NE(Read(5), first);
}

TEST_F(EmbeddingTableTest, AnUpdateFromItsMeanHasTheSameBits) {
  Make(JobWith("Adam", 0.01));
  std::vector<Gradient> of(2);
  of[0].examples = 3;
  of[1].examples = 5;
  TableUpdate update = {.version = 1, .known = &known_};
  update.contributions = {{&of[0], *Push(3, {{7, {0.1F, 0.2F}}, {8, {1, 1}}})},
                          {&of[1], *Push(5, {{7, {0.3F, 0.7F}}})}};
  const auto mean = table_->Mean(update);
  ASSERT_EQ(mean.status(), absl::OkStatus());
  ASSERT_EQ(table_->Apply(update), absl::OkStatus());
  const std::vector<uint32_t> expected = State();
  Make(JobWith("Adam", 0.01));
  const TableUpdate from_mean = {.version = 1, .mean = &*mean, .known = &known_};
  ASSERT_EQ(table_->Apply(from_mean), absl::OkStatus());
  EXPECT_EQ(State(), expected);
}

TEST_F(EmbeddingTableTest, StatesAndBitsDoNotDependOnTheNumberOfThreads) {
  std::map<int, std::vector<uint32_t>> states;
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    Make(JobWith("Adam", 0.01), TableOf(2), &pool);
    version_ = 0;
    for (int64_t update = 0; update < 5; ++update) {
      Rows rows;
      for (int64_t id = 0; id < 500; ++id) {
        rows.push_back(
            {id * (update + 1) - 300, {static_cast<float>(id), 1.0F / static_cast<float>(id + 1)}});
      }
      ASSERT_EQ(Update({{8, rows}, {8, rows}}), absl::OkStatus());
    }
    states[threads] = State();
    EXPECT_EQ(states[threads], states[1]);
    table_.reset();
  }
}

TEST_F(EmbeddingTableTest, ManyRowsAreReadInTheirOrderByAnyNumberOfThreads) {
  v1::Table table = TableOf(2);
  table.mutable_embedding()->set_distribution(v1::EmbeddingTable::DISTRIBUTION_UNIFORM);
  table.mutable_embedding()->set_spread(0.05);
  std::vector<int64_t> ids(3000);
  std::iota(ids.begin(), ids.end(), -1000);
  Rows rows;
  for (const int64_t id : ids) {
    if (id % 3 == 0) rows.push_back({id, {static_cast<float>(id), 1}});
  }
  ThreadPool threads(3);
  std::vector<std::vector<float>> read;
  for (ThreadPool* const pool : {static_cast<ThreadPool*>(nullptr), &threads}) {
    Make(JobWith("SGD", 1), table, pool);
    version_ = 0;
    EXPECT_EQ(Update({{1, rows}}), absl::OkStatus());
    const auto all = table_->ReadRows(ids);
    ASSERT_EQ(all.status(), absl::OkStatus());
    read.emplace_back(all->elements->span().begin(), all->elements->span().begin() + 2 * 3000);
    for (const size_t place : {0, 1, 1499, 2999}) {
      EXPECT_THAT(Read(ids[place]), ElementsAre(read.back()[2 * place], read.back()[2 * place + 1]));
    }
  }
  EXPECT_EQ(read[0], read[1]);
}

TEST_F(EmbeddingTableTest, AnUpdateOfTheRowsThatWereReadHasTheSameBits) {
  ThreadPool threads(2);
  const auto state_of = [&](bool read, bool restore) {
    Make(JobWith("Adagrad", 0.1), TableOf(2), &threads);
    version_ = 0;
    Rows rows;
    std::vector<int64_t> ids;
    for (int64_t id = 0; id < 5000; ++id) {
      ids.push_back(id);
      rows.push_back({id, {static_cast<float>(id % 7), 1}});
    }
    EXPECT_EQ(Update({{2, {rows.begin(), rows.begin() + 3000}}}), absl::OkStatus());
    if (read) {
      EXPECT_EQ(table_->ReadRows(ids).status(), absl::OkStatus());  // two thousand do not exist
    }
    // Rows that are added or replaced between the read and the update.
    EXPECT_EQ(Update({{2, {rows.begin() + 2500, rows.begin() + 3500}}}), absl::OkStatus());
    if (restore) table_->Restore(version_, *table_->Save(/*beyond_budget=*/false));
    EXPECT_EQ(Update({{2, rows}}), absl::OkStatus());
    return State();
  };
  const std::vector<uint32_t> expected = state_of(false, false);
  EXPECT_EQ(state_of(true, false), expected);
  EXPECT_EQ(state_of(true, true), expected);
}

TEST_F(EmbeddingTableTest, ATableContinuesFromItsState) {
  Make(JobWith("Adam", 0.01));
  for (int update = 0; update < 3; ++update) {
    ASSERT_EQ(Update({{1, {{7, {1, 2}}, {-9, {3, 4}}}}}), absl::OkStatus());
  }
  const absl::StatusOr<TableState> state = table_->Save(/*beyond_budget=*/true);
  ASSERT_EQ(state.status(), absl::OkStatus());
  ASSERT_EQ(Update({{1, {{7, {1, 2}}}}}), absl::OkStatus());
  const std::vector<uint32_t> expected = State();

  Make(JobWith("Adam", 0.01));
  version_ = 3;
  EXPECT_EQ(table_->CheckState(*state), absl::OkStatus());
  table_->Restore(3, *state);
  EXPECT_EQ(StatusOf().rows(), 2);
  ASSERT_EQ(Update({{1, {{7, {1, 2}}}}}), absl::OkStatus());
  EXPECT_EQ(State(), expected);
}

TEST_F(EmbeddingTableTest, TheStateKeepsTheLearningRateOfTheLastUpdate) {
  // The values of Adam with catch_up depend on it.
  v1::Job job = JobWith("Adam", 0.01);
  (*job.mutable_optimizer()->mutable_hyperparameters())["catch_up"] = 1;
  Make(job);
  rate_ = 0.5f;
  ASSERT_EQ(Update({{1, {{7, {1, 2}}}}}), absl::OkStatus());
  ASSERT_EQ(Update({{1, {{8, {1, 2}}}}}), absl::OkStatus());
  const absl::StatusOr<TableState> state = table_->Save(/*beyond_budget=*/true);
  ASSERT_EQ(state.status(), absl::OkStatus());
  const absl::StatusOr<TableRows> before = table_->ReadRows({7});
  Make(job);
  table_->Restore(2, *state);
  const absl::StatusOr<TableRows> after = table_->ReadRows({7});
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_THAT(after->elements->span(), testing::ElementsAreArray(before->elements->span()));
}

TEST_F(EmbeddingTableTest, AStateOfAnotherFormIsRefused) {
  const absl::StatusOr<TableState> state = table_->Save(/*beyond_budget=*/true);
  ASSERT_EQ(state.status(), absl::OkStatus());
  EXPECT_EQ(table_->CheckState(*state), absl::OkStatus()) << "of no rows";
  EXPECT_THAT(table_->CheckState({}).message(), HasSubstr("table 'words'"));
  EXPECT_EQ(table_->CheckState({std::make_shared<AlignedBuffer>(5)}).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(EmbeddingTableTest, AStateInAnotherOrderIsRefused) {
  ASSERT_EQ(Update({{1, {{7, {1, 2}}, {8, {3, 4}}}}}), absl::OkStatus());
  const absl::StatusOr<TableState> state = table_->Save(/*beyond_budget=*/true);
  ASSERT_EQ(state.status(), absl::OkStatus());
  constexpr size_t kHead = 4, kRow = 4;  // floats
  const auto twisted = std::make_shared<AlignedBuffer>(state->front()->size());
  std::copy(state->front()->span().begin(), state->front()->span().end(), twisted->data());
  std::swap_ranges(twisted->data() + kHead, twisted->data() + kHead + kRow, twisted->data() + kHead + kRow);
  EXPECT_THAT(table_->CheckState({twisted}).message(),
              HasSubstr("of a state is not in the order of buckets and ids"));
}

TEST_F(EmbeddingTableTest, AllMemoryCountsInTheBudgetAndIsGivenBack) {
  Rows rows;
  for (int64_t id = 0; id < 10000; ++id) rows.push_back({id, {1, 1}});
  ASSERT_EQ(Update({{1, rows}}), absl::OkStatus());
  // The workspace of the mean has the 10,000 ids twice, and their positions.
  EXPECT_GE(budget_->used(), StatusOf().bytes() + 10000 * (8 + 8 + 4));
  table_.reset();
  EXPECT_EQ(budget_->used(), 0);
}

TEST_F(EmbeddingTableTest, AReaderLeavesRoomForTheNextUpdate) {
  Rows rows;
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < 10000; ++id) {
    rows.push_back({id, {1, 1}});
    ids.push_back(id);
  }
  ASSERT_EQ(Update({{1, rows}}), absl::OkStatus());
  constexpr int64_t kMean = 10000 * (8 + 8), kAnswer = 10000 * 8;
  const int64_t others = (64 << 20) - budget_->used() - kMean - kAnswer;
  budget_->Take(others);
  EXPECT_EQ(table_->ReadRows(ids).status(), absl::OkStatus());
  budget_->Take(64);
  EXPECT_THAT(table_->ReadRows(ids).status().message(), HasSubstr("no memory for rows that are read"));
  budget_->Give(others + 64);
}

TEST_F(EmbeddingTableTest, AStateOrMeanWithRowsOfAnotherServerIsRefused) {
  ASSERT_EQ(Update({{1, {{7, {1, 2}}, {8, {1, 2}}, {9, {1, 2}}, {10, {1, 2}}}}}), absl::OkStatus());
  const absl::StatusOr<TableState> state = table_->Save(/*beyond_budget=*/true);
  ASSERT_EQ(state.status(), absl::OkStatus());
  std::vector<Gradient> of(1);
  of[0].examples = 1;
  TableUpdate update = {.version = 2, .known = &known_};
  update.contributions.push_back({&of[0], *Push(1, {{7, {1, 1}}, {8, {1, 1}}, {9, {1, 1}}, {10, {1, 1}}})});
  const auto mean = table_->Mean(update);
  v1::Job job = JobWith("SGD", 1);
  job.add_servers("b:1");
  Make(job);
  EXPECT_THAT(table_->CheckState(*state).message(), HasSubstr("belongs to ps/1, not to ps/0"));
  const TableUpdate from_mean = {.version = 1, .mean = &*mean, .known = &known_};
  EXPECT_THAT(table_->Apply(from_mean).message(), HasSubstr("belongs to ps/1, not to ps/0"));
}

TEST_F(EmbeddingTableTest, AGradientThatIsNotFiniteChangesNothingAndNamesItsRow) {
  ASSERT_EQ(Update({{1, {{7, {1, 2}}}}}), absl::OkStatus());
  const std::vector<uint32_t> before = State();
  const absl::Status status = Update({{1, {{7, {1, 2}}, {-3, {0, NAN}}}}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("table 'words': the gradient of row -3 is not finite"));
  EXPECT_EQ(State(), before);
}

TEST_F(EmbeddingTableTest, IdsOutsideTheVocabularyAreRefused) {
  v1::Table table = TableOf(2);
  table.mutable_embedding()->set_vocabulary_size(10);
  Make(JobWith("SGD", 1), table);
  EXPECT_EQ(Update({{1, {{0, {1, 1}}, {9, {1, 1}}}}}), absl::OkStatus());
  for (const int64_t id : {int64_t{-1}, int64_t{10}}) {
    EXPECT_THAT(Push(1, {{id, {1, 1}}}).status().message(), HasSubstr("table 'words' has no row"));
    EXPECT_EQ(table_->ReadRows({id}).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(EmbeddingTableTest, RowsOfAnotherServerAreRefused) {
  v1::Job job = JobWith("SGD", 1);
  job.add_servers("b:1");
  Make(job);
  int refused = 0;
  for (int64_t id = 0; id < 1000; ++id) {
    const absl::Status status = Push(1, {{id, {1, 1}}}).status();
    if (status.ok()) continue;
    ++refused;
    EXPECT_THAT(status.message(), HasSubstr("of table 'words' belongs to ps/1, not to ps/0"));
  }
  EXPECT_NEAR(refused, 500, 100);
}

TEST_F(EmbeddingTableTest, RowsThatDoNotFitTheMemoryLimitAreRefusedByName) {
  Rows rows;
  absl::Status status;
  for (int64_t id = 0; status.ok() && id < 100'000'000; id += 100'000) {
    rows.clear();
    for (int64_t i = 0; i < 100'000; ++i) rows.push_back({id + i, {1, 1}});
    status = Update({{1, rows}});
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(status.message(), HasSubstr("--memory_limit"));
}

TEST_F(EmbeddingTableTest, CopiesAndRowsThatAreReadCountInTheBudget) {
  ASSERT_EQ(Update({{1, {{7, {1, 2}}, {8, {1, 2}}}}}), absl::OkStatus());
  const int64_t before = budget_->used();
  auto rows = table_->ReadRows({7, 8, 9});
  const int64_t found = FoundRows::BytesOf(3);
  EXPECT_EQ(budget_->used(), before + found + 3 * 2 * 4);
  auto state = table_->Save(/*beyond_budget=*/false);
  EXPECT_EQ(budget_->used(), before + found + 3 * 2 * 4 + 4 * (4 + 2 * (2 + 2)));
  rows = absl::CancelledError("");
  state = absl::CancelledError("");
  EXPECT_EQ(budget_->used(), before + found);
}

TEST_F(EmbeddingTableTest, ReadsThatAreKeptForAnUpdateGiveWayToACopy) {
  ASSERT_EQ(Update({{1, {{7, {1, 2}}}}}), absl::OkStatus());
  ASSERT_EQ(table_->ReadRows(std::vector<int64_t>(1000)).status(), absl::OkStatus());
  for (int64_t bytes = int64_t{1} << 40; bytes > 0; bytes /= 2) {
    while (budget_->TryTake(bytes)) continue;
  }
  EXPECT_EQ(table_->Save(/*beyond_budget=*/false).status(), absl::OkStatus());
}

TEST(EmbeddingTablesTest, DescriptionsThatNoServerStoresAreRefused) {
  const EmbeddingTables kinds(nullptr);
  v1::Table table = TableOf(2);
  EXPECT_THAT(kinds.BytesOf(table, JobWith("Lion", 1)).status().message(), HasSubstr("Lion"));
  table.mutable_embedding()->set_spread(-1);
  EXPECT_EQ(kinds.BytesOf(table, JobWith("SGD", 1)).status().code(), absl::StatusCode::kInvalidArgument);
  table = TableOf(2000);
  EXPECT_THAT(kinds.BytesOf(table, JobWith("SGD", 1)).status().message(), HasSubstr("must have 1 to 1024"));
  table = TableOf(2);
  table.set_kind("matrix");
  EXPECT_THAT(kinds.BytesOf(table, JobWith("SGD", 1)).status().message(), HasSubstr("'matrix'"));
}

TEST_F(EmbeddingTableTest, TheChiefsChangeOfTheJobsRateMultipliesTheRateOfAnOptimizerOfItsOwn) {
  v1::Table table = TableOf(1);
  table.mutable_embedding()->mutable_optimizer()->set_name("SGD");
  (*table.mutable_embedding()->mutable_optimizer()->mutable_hyperparameters())["learning_rate"] = 0.25;
  Make(JobWith("Adam", 8), table);
  ASSERT_EQ(Update({{1, {{7, {1}}}}}), absl::OkStatus());
  EXPECT_THAT(Read(7), testing::ElementsAre(-0.25f));
  rate_ = 8;  // the chief confirms the rate
  ASSERT_EQ(Update({{1, {{7, {1}}}}}), absl::OkStatus());
  EXPECT_THAT(Read(7), testing::ElementsAre(-0.5f));
  rate_ = 4;
  ASSERT_EQ(Update({{1, {{7, {1}}}}}), absl::OkStatus());
  EXPECT_THAT(Read(7), testing::ElementsAre(-0.625f));
}

}  // namespace
}  // namespace cairn::ps
