// Rows of tables between workers and servers: pushed with the steps, wanted with the answers, and read.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/job_setup.h"
#include "client/snapshot.h"
#include "client/table_states.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/gate.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/toy_job.h"
#include "tests/unit/ps/counting_table.h"

namespace cairn::test {
namespace {

using client::RowGradients;
using client::RowValues;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

using Rows = std::map<int64_t, std::vector<float>>;

// Row r is on server r mod S; no server stores row 404.
class ModuloPartitioner final : public net::Partitioner {
 public:
  explicit ModuloPartitioner(int servers) : servers_(servers) {}
  int ServerOf(int64_t row) const override {
    return row == 404 ? -1 : static_cast<int>(static_cast<uint64_t>(row) % static_cast<uint64_t>(servers_));
  }

 private:
  const int servers_;
};

// Rows as the calls take them. Moving keeps the memory.
struct FlatRows {
  FlatRows(int table_in, const Rows& rows) : table(table_in) {
    for (const auto& [key, row] : rows) {
      keys.push_back(key);
      elements.insert(elements.end(), row.begin(), row.end());
    }
  }
  FlatRows(int table_in, std::vector<int64_t> keys_in, size_t row_elements)
      : table(table_in), keys(std::move(keys_in)), elements(keys.size() * row_elements, -99) {}
  RowValues values() { return {.table = table, .keys = keys, .rows = absl::MakeSpan(elements)}; }
  RowGradients gradients() const { return {.table = table, .keys = keys, .gradients = elements}; }
  std::vector<float> operator[](int64_t key) const {
    const auto at = static_cast<size_t>(std::find(keys.begin(), keys.end(), key) - keys.begin());
    const size_t of_row = elements.size() / keys.size();
    return {elements.begin() + static_cast<int64_t>(at * of_row),
            elements.begin() + static_cast<int64_t>((at + 1) * of_row)};
  }

  int table;
  std::vector<int64_t> keys;
  std::vector<float> elements;
};

// A job of one variable and the tables "t" of rows of two elements and "u" of rows of three.
class RowsTest : public testing::TestWithParam<int> {
 protected:
  void Start(int servers, int workers, v1::Mode mode = v1::MODE_SYNC,
             v1::Encoding encoding = v1::ENCODING_FLOAT32) {
    workers_.clear();
    cluster_ = std::make_unique<InProcessCluster>(ClusterOptions{.servers = servers, .tables = &kinds_});
    toy_ = std::make_unique<ToyJob>(workers, std::vector<ToyVariable>{{"a", {4}, {0, 0, 0, 0}}});
    toy_->split_bytes = 4;
    toy_->job.set_mode(mode);
    if (mode == v1::MODE_SSP) toy_->job.set_max_staleness(2);
    toy_->job.set_wire(encoding);
    toy_->job.set_ps_replication(replication_);
    for (const auto& [name, row_elements] : {std::pair("t", 2), std::pair("u", 3)}) {
      v1::Table& table = *toy_->job.add_tables();
      table.set_name(name);
      table.set_kind("counting");
      table.set_row_elements(row_elements);
    }
    toy_->make_partitioner = [](const v1::Table&, int of_servers) {
      return std::make_unique<ModuloPartitioner>(of_servers);
    };
    workers_ = StartAll(*cluster_, *toy_);
  }
  client::TrainingClient& client(int worker = 0) { return workers_[static_cast<size_t>(worker)]->client(); }
  client::RowExchange& exchange(int worker = 0) { return *client(worker).exchange().rows; }

  absl::StatusOr<client::StepResult> Step(int worker, const std::vector<RowGradients>& gradients,
                                          const std::vector<RowValues>& wanted, int64_t examples = 1) {
    const std::vector<float> zeros(4);
    client::Step& step = client(worker).steps().BeginStep(zeros, examples);
    absl::Status status = exchange(worker).WantRows(wanted);
    if (examples > 0) step.Announce(0);
    status.Update(exchange(worker).PushRows(gradients));
    if (!status.ok()) return status;
    return step.Finish();
  }
  // A step of all workers: worker w pushes pushed[w] and wants `wanted`. Returns what each got.
  std::vector<FlatRows> Round(const std::vector<FlatRows>& pushed, const FlatRows& wanted) {
    std::vector<FlatRows> got(pushed.size(), wanted);
    InParallel(static_cast<int>(pushed.size()), [&](int worker) {
      const auto w = static_cast<size_t>(worker);
      const auto result = Step(worker, {pushed[w].gradients()}, {got[w].values()});
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->outcome, v1::OUTCOME_ACCEPTED);
    });
    return got;
  }
  FlatRows Read(FlatRows rows, int worker = 0) {
    EXPECT_EQ(exchange(worker).ReadRows({rows.values()}), absl::OkStatus());
    return rows;
  }
  void ReadOverABreak(bool noticed_between_reads);
  // The frames of rows that worker 0 has sent to a server from now on, with and without known ids.
  struct Sent {
    std::atomic<int> known{0}, with_ids{0};
  };
  std::shared_ptr<Sent> CountFrames(int server) {
    auto sent = std::make_shared<Sent>();
    cluster_->link("worker/0", server).TapClientFrames([sent](const v1::ClientHeader& header) {
      if (header.has_rows() && !header.rows().wanted())
        ++(header.rows().has_known() ? sent->known : sent->with_ids);
      return Fate::kDeliver;
    });
    return sent;
  }

  const ps::CountingTables kinds_;
  int replication_ = 0;
  std::unique_ptr<InProcessCluster> cluster_;
  std::unique_ptr<ToyJob> toy_;
  ToyWorkers workers_;
};
INSTANTIATE_TEST_SUITE_P(Servers, RowsTest, testing::Values(1, 2, 3));

// The states of tables in memory, which move in pieces of at most three floats.
class TablesInMemory final : public client::TableSink, public client::TableSource {
 public:
  absl::Status Begin(const client::Snapshot&, const client::TableSizes& sizes) override {
    sizes_ = sizes;
    states_.assign(sizes.size(), std::vector<std::vector<float>>(sizes[0].size()));
    return absl::OkStatus();
  }
  absl::Status Add(int server, int table, absl::Span<const float> piece) override {
    std::vector<float>& state = StateOf(server, table);
    EXPECT_LE(piece.size(), 3u);
    state.insert(state.end(), piece.begin(), piece.end());
    ++pieces_;
    return absl::OkStatus();
  }
  int64_t max_piece() const override { return 3; }

  const client::TableSizes& sizes() const override { return sizes_; }
  absl::StatusOr<int64_t> Read(int server, int table, absl::Span<float> into) override {
    if (fails_at_ == ++reads_) return absl::DataLossError("the disk is damaged");
    const std::vector<float>& state = StateOf(server, table);
    size_t& at = read_[{server, table}];
    const size_t count = std::min<size_t>(3, state.size() - at);
    std::copy_n(state.begin() + static_cast<int64_t>(at), count, into.begin());
    at += count;
    return static_cast<int64_t>(count);
  }
  // From the beginning; the n-th read fails, unless `fails_at` is 0.
  void ReadAgain(int fails_at) {
    read_.clear();
    reads_ = 0;
    fails_at_ = fails_at;
  }
  int pieces() const { return pieces_; }

 private:
  std::vector<float>& StateOf(int server, int table) {
    return states_[static_cast<size_t>(server)][static_cast<size_t>(table) - 1];
  }

  client::TableSizes sizes_;
  std::vector<std::vector<std::vector<float>>> states_;  // [server][table]
  std::map<std::pair<int, int>, size_t> read_;
  int pieces_ = 0, reads_ = 0, fails_at_ = 0;
};

class BorrowedTables final : public client::TableSource {
 public:
  explicit BorrowedTables(TablesInMemory& tables) : tables_(tables) {}
  const client::TableSizes& sizes() const override { return tables_.sizes(); }
  absl::StatusOr<int64_t> Read(int server, int table, absl::Span<float> into) override {
    return tables_.Read(server, table, into);
  }

 private:
  TablesInMemory& tables_;
};

// A snapshot with tables, as a chief restores it.
class SnapshotWithTables final : public client::StateSource {
 public:
  SnapshotWithTables(const client::Snapshot& snapshot, TablesInMemory& tables)
      : snapshot_(snapshot), tables_(tables) {}
  absl::StatusOr<std::optional<v1::Progress>> Find(bool) override { return snapshot_.progress; }
  absl::Status Load(absl::Span<const std::string>, absl::Span<const absl::Span<float>>) override {
    return absl::OkStatus();  // the variable is zero
  }
  absl::StatusOr<std::unique_ptr<client::TableSource>> OpenTables(const v1::Job&) override {
    return std::make_unique<BorrowedTables>(tables_);
  }

 private:
  const client::Snapshot& snapshot_;
  TablesInMemory& tables_;
};

TEST_P(RowsTest, ASnapshotOfTablesMovesInPieces) {
  Start(GetParam(), 1);
  const FlatRows t(1, Rows{{0, {1, 2}}, {1, {3, 4}}, {2, {5, 6}}, {5, {7, 8}}}), u(2, Rows{{7, {1, 2, 3}}});
  ASSERT_TRUE(Step(0, {t.gradients(), u.gradients()}, {}).ok());
  const auto taken = client().control().TakeSnapshot({});
  ASSERT_TRUE(taken.ok()) << taken.status();
  // The next step is not in it.
  ASSERT_TRUE(Step(0, {t.gradients(), u.gradients()}, {}).ok());
  TablesInMemory tables;
  const auto snapshot = taken->read({std::chrono::seconds(10)}, &tables);
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_GT(tables.pieces(), 10);

  // Servers restore it; but not from a file that turns out to be damaged.
  const auto restore = [&](int fails_at) {
    workers_.clear();
    cluster_ = std::make_unique<InProcessCluster>(ClusterOptions{.servers = GetParam(), .tables = &kinds_});
    workers_.push_back(std::make_unique<ToyWorker>(*cluster_, *toy_, 0));
    tables.ReadAgain(fails_at);
    SnapshotWithTables source(*snapshot, tables);
    return client().Initialise(JobFor(*cluster_, *toy_), source);
  };
  EXPECT_EQ(restore(/*fails_at=*/7).code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(client().connection().Describe(0)->state() == v1::STATE_READY);
  ASSERT_EQ(restore(/*fails_at=*/0), absl::OkStatus());
  ASSERT_EQ(client().WaitReady(JobFor(*cluster_, *toy_)), absl::OkStatus());
  ASSERT_EQ(client().Join(), absl::OkStatus());
  EXPECT_EQ(client().steps().version(), 1);
  EXPECT_EQ(Read(t).elements, t.elements);
  EXPECT_EQ(Read(u).elements, u.elements);
}

TEST_P(RowsTest, AWriteReplacesTheTablesAndTheValues) {
  Start(GetParam(), 1);
  const FlatRows t(1, Rows{{0, {1, 2}}, {1, {3, 4}}, {5, {7, 8}}}), u(2, Rows{{7, {1, 2, 3}}});
  ASSERT_TRUE(Step(0, {t.gradients(), u.gradients()}, {}).ok());
  const auto taken = client().control().TakeSnapshot({});
  ASSERT_TRUE(taken.ok()) << taken.status();
  TablesInMemory tables;
  ASSERT_EQ(taken->read({std::chrono::seconds(10)}, &tables).status(), absl::OkStatus());
  const FlatRows later(1, Rows{{0, {9, 9}}, {3, {9, 9}}});
  ASSERT_TRUE(Step(0, {later.gradients(), u.gradients()}, {}).ok());

  int opened = 0;
  const auto open = [&]() -> absl::StatusOr<std::unique_ptr<client::TableSource>> {
    tables.ReadAgain(/*fails_at=*/0);
    ++opened;
    return std::make_unique<BorrowedTables>(tables);
  };
  ASSERT_EQ(client().control().Write(std::vector<float>{1, 2, 3, 4}, open), absl::OkStatus());
  EXPECT_EQ(opened, 1);
  EXPECT_THAT(workers_[0]->Values(), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(Read(t).elements, t.elements);
  EXPECT_EQ(Read(u).elements, u.elements);
  EXPECT_THAT(Read(later)[3], ElementsAre(0, 0)) << "the row began after the snapshot";
  EXPECT_EQ(client().steps().version(), 2);
  // A write without tables leaves them as they are.
  ASSERT_EQ(client().control().Write(std::vector<float>{5, 6, 7, 8}, nullptr), absl::OkStatus());
  EXPECT_EQ(Read(t).elements, t.elements);
}

TEST_P(RowsTest, WantedRowsAreThoseAfterTheUpdate) {
  Start(GetParam(), 2);
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  const FlatRows all(1, {5, kLeast, 0, -1, 1, 2, 77}, 2);
  const auto got = Round({FlatRows(1, Rows{{0, {2, 4}}, {1, {2, 2}}, {2, {6, 6}}, {-1, {8, 0}}}),
                          FlatRows(1, Rows{{0, {4, 4}}, {kLeast, {10, 12}}})},
                         all);
  EXPECT_THAT(got[0][0], ElementsAre(3, 4));
  EXPECT_THAT(got[0][1], ElementsAre(1, 1));
  EXPECT_THAT(got[0][2], ElementsAre(3, 3));
  EXPECT_THAT(got[0][-1], ElementsAre(4, 0));
  EXPECT_THAT(got[0][kLeast], ElementsAre(5, 6));
  EXPECT_THAT(got[0][77], ElementsAre(0, 0));
  EXPECT_EQ(got[1].elements, got[0].elements);
  EXPECT_EQ(Read(all).elements, got[0].elements);
  EXPECT_EQ(Read(all, 1).elements, got[0].elements);
}

TEST_P(RowsTest, KeysThatTheStepBeforeWantedAreNotSentAgain) {
  Start(GetParam(), 1);
  std::vector<std::shared_ptr<Sent>> sent;
  for (int server = 0; server < GetParam(); ++server) sent.push_back(CountFrames(server));
  FlatRows rows(1, {4, 3, 2, 1, 0, -1}, 2);
  for (int step = 1; step <= 3; ++step) {
    std::iota(rows.elements.begin(), rows.elements.end(), 1.0f);
    rows = Round({rows}, rows)[0];
    for (size_t i = 0; i < rows.elements.size(); ++i)
      EXPECT_EQ(rows.elements[i], static_cast<float>(step) * static_cast<float>(i + 1));
  }
  for (const auto& of_server : sent) {
    EXPECT_EQ(of_server->with_ids, 1);  // of the first step
    EXPECT_EQ(of_server->known, 2);
  }
  // Other keys than those that were wanted.
  FlatRows fewer(1, Rows{{3, {1, 1}}, {2, {1, 1}}, {1, {1, 1}}});
  fewer = Round({fewer}, fewer)[0];
  EXPECT_THAT(fewer[2], ElementsAre(3 * 5 + 1, 3 * 6 + 1));
  EXPECT_EQ(sent[0]->known, 2);
}

TEST_P(RowsTest, AStepHasRowsOfSeveralTables) {
  Start(GetParam(), 1);
  const FlatRows t(1, Rows{{1, {1, 2}}, {2, {3, 4}}}), u(2, Rows{{1, {5, 6, 7}}, {3, {8, 9, 10}}});
  FlatRows wanted_t(1, {2, 3}, 2), wanted_u(2, {3, 2, 1}, 3);
  for (int step = 1; step <= 2; ++step) {
    const auto result = Step(0, {t.gradients(), u.gradients()}, {wanted_u.values(), wanted_t.values()});
    ASSERT_TRUE(result.ok()) << result.status();
    const auto n = static_cast<float>(step);
    EXPECT_THAT(wanted_t.elements, ElementsAre(3 * n, 4 * n, 0, 0));
    EXPECT_THAT(wanted_u.elements, ElementsAre(8 * n, 9 * n, 10 * n, 0, 0, 0, 5 * n, 6 * n, 7 * n));
  }
  FlatRows read_t(1, {1, 2}, 2), read_u(2, {1}, 3);
  ASSERT_EQ(exchange().ReadRows({read_t.values(), read_u.values()}), absl::OkStatus());
  EXPECT_THAT(read_t.elements, ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(read_u.elements, ElementsAre(10, 12, 14));
}

TEST_P(RowsTest, AStepMayHaveNoRowsAndNoExamples) {
  Start(GetParam(), 2);
  const FlatRows none(1, std::vector<int64_t>{}, 2), some(1, Rows{{1, {4, 8}}});
  Round({none, some}, none);
  EXPECT_THAT(Read(some)[1], ElementsAre(2, 4)) << "the mean is over the examples of both";
  FlatRows wanted(1, {1}, 2);
  InParallel(2, [&](int worker) {
    const auto result =
        worker == 0 ? Step(0, {some.gradients()}, {wanted.values()}, /*examples=*/0) : Step(1, {}, {});
    EXPECT_EQ(result.status(), absl::OkStatus());
  });
  EXPECT_THAT(wanted[1], ElementsAre(2, 4)) << "the gradient of no examples is not sent";
  EXPECT_EQ(exchange().ReadRows({}), absl::OkStatus());
  EXPECT_EQ(Read(none).elements.size(), 0u);
}

TEST_P(RowsTest, ManyKeysTravelInSeveralFrames) {
  Start(GetParam(), 2);
  std::vector<int64_t> keys(100'000);
  std::iota(keys.begin(), keys.end(), -50'000);
  std::replace(keys.begin(), keys.end(), int64_t{404}, int64_t{1'000'000});
  FlatRows rows(1, keys, 2);
  for (size_t i = 0; i < rows.elements.size(); ++i) rows.elements[i] = static_cast<float>(i % 1000);
  const std::vector<float> gradients = rows.elements;
  const auto sent = CountFrames(0);
  for (int step = 1; step <= 2; ++step) {
    rows.elements = gradients;
    const auto got = Round({rows, rows}, rows);
    for (size_t i = 0; i < gradients.size(); ++i) {
      ASSERT_EQ(got[0].elements[i], static_cast<float>(step) * gradients[i]) << i;
    }
    EXPECT_EQ(got[1].elements, got[0].elements);
  }
  EXPECT_GE(sent->known, 2);
  EXPECT_EQ(sent->with_ids, sent->known);
}

TEST_P(RowsTest, RowsHaveTheEncodingOfTheJob) {
  Start(GetParam(), 1, v1::MODE_SYNC, v1::ENCODING_BFLOAT16);
  constexpr float kMore = 1.0f / 1024;  // beyond the precision of bfloat16
  std::vector<int64_t> keys(30'001);
  std::iota(keys.begin(), keys.end(), 1000);
  FlatRows rows(2, keys, 3);
  std::fill(rows.elements.begin(), rows.elements.end(), 1 + kMore);
  rows = Round({rows}, rows)[0];
  EXPECT_THAT(rows.elements, Each(1));
  std::fill(rows.elements.begin(), rows.elements.end(), kMore);
  EXPECT_THAT(Round({rows}, rows)[0].elements, Each(1)) << "rounded on its way back";
  EXPECT_THAT(Read(rows).elements, Each(1));
}

TEST_P(RowsTest, RowsAreReadWhileStepsAreMade) {
  Start(GetParam(), 1);
  const FlatRows pushed(1, Rows{{0, {1, 2}}, {1, {1, 2}}, {2, {1, 2}}});
  std::vector<FlatRows> ahead(6, FlatRows(1, {2, 0, 1, 7}, 2));
  for (size_t step = 0; step < 4; ++step) {
    for (size_t read = step == 0 ? 0 : step + 2; read < step + 3; ++read)
      ASSERT_EQ(exchange().BeginRead({ahead[read].values()}), absl::OkStatus());
    const auto result = Step(0, {pushed.gradients()}, {});
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(exchange().FinishRead(), absl::OkStatus());
    const float least = step < 3 ? 0 : 1;  // the updates that had been made when the read began
    EXPECT_GE(ahead[step][0][0], least);
    EXPECT_LE(ahead[step][0][0], static_cast<float>(step + 1));
    EXPECT_EQ(ahead[step][0][1], 2 * ahead[step][0][0]);
    EXPECT_THAT(ahead[step][7], ElementsAre(0, 0));
  }
  exchange().DropReads();
  EXPECT_THAT(Read(pushed).elements, ElementsAre(4, 8, 4, 8, 4, 8)) << "the streams are opened again";
  FlatRows unknown(1, {404}, 2);
  EXPECT_EQ(exchange().BeginRead({unknown.values()}).code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(RowsTest, AReadWhoseStreamBreaksIsRepeated) {
  for (const Fate fate : {Fate::kBreakBefore, Fate::kBreakAfter}) {
    Start(GetParam(), 1);
    const FlatRows pushed(1, Rows{{0, {1, 2}}, {1, {3, 4}}, {2, {5, 6}}});
    Round({pushed}, pushed);
    const auto seen = std::make_shared<std::atomic<int>>(0);
    cluster_->link("worker/0", GetParam() - 1).TapServerFrames([seen, fate](const v1::ServerHeader& header) {
      return header.has_rows() && ++*seen == 1 ? fate : Fate::kDeliver;
    });
    std::vector<FlatRows> ahead(3, FlatRows(1, {2, 1, 0}, 2));
    for (FlatRows& rows : ahead) ASSERT_EQ(exchange().BeginRead({rows.values()}), absl::OkStatus());
    for (const FlatRows& rows : ahead) {
      ASSERT_EQ(exchange().FinishRead(), absl::OkStatus());
      EXPECT_THAT(rows.elements, ElementsAre(5, 6, 3, 4, 1, 2));
    }
    EXPECT_GE(*seen, 2);
  }
}

// Reads are begun two ahead, and the stream of the first to the last server breaks.
void RowsTest::ReadOverABreak(bool noticed_between_reads) {
  Start(GetParam(), 1);
  const FlatRows pushed(1, Rows{{0, {1, 2}}, {1, {3, 4}}, {2, {5, 6}}});
  Round({pushed}, pushed);
  const auto requests = std::make_shared<std::atomic<int>>(0),
             answers = std::make_shared<std::atomic<int>>(0);
  const auto broken = std::make_shared<Gate>();
  auto& link = cluster_->link("worker/0", GetParam() - 1);
  link.TapClientFrames([requests](const v1::ClientHeader& header) {
    *requests += header.has_read_rows() ? 1 : 0;
    return Fate::kDeliver;
  });
  link.TapServerFrames([answers, broken](const v1::ServerHeader& header) {
    if (!header.has_rows() || ++*answers > 1) return Fate::kDeliver;
    broken->Open();
    return Fate::kBreakBefore;
  });
  constexpr int kAhead = 2, kReads = 20;
  std::deque<FlatRows> ahead;
  for (int read = 0; read < kReads + kAhead; ++read) {
    if (read < kReads) {
      ASSERT_EQ(exchange().BeginRead({ahead.emplace_back(1, std::vector<int64_t>{2, 1, 0}, 2).values()}),
                absl::OkStatus());
    }
    if (read == 1 && noticed_between_reads) {
      ASSERT_TRUE(broken->Wait());
      absl::SleepFor(absl::Milliseconds(20));  // for the client to notice
    }
    if (read < kAhead) continue;
    ASSERT_EQ(exchange().FinishRead(), absl::OkStatus());
    EXPECT_THAT(ahead.front().elements, ElementsAre(5, 6, 3, 4, 1, 2));
    ahead.pop_front();
  }
  EXPECT_LE(*requests, kReads + kAhead + 1)
      << "of all reads only those on the stream that broke are repeated";
}

TEST_P(RowsTest, ReadsThatBeginAfterABreakAreNotRepeated) {
  ReadOverABreak(/*noticed_between_reads=*/false);
}

TEST_P(RowsTest, ReadsThatBeginAfterANoticedBreakAreNotRepeated) {
  ReadOverABreak(/*noticed_between_reads=*/true);
}

TEST_P(RowsTest, AsynchronousStepsGetTheRowsAfterTheirUpdate) {
  for (const v1::Mode mode : {v1::MODE_ASYNC, v1::MODE_SSP}) {
    Start(GetParam(), 2, mode);
    const FlatRows rows(1, Rows{{1, {1, 2}}, {2, {1, 2}}});
    InParallel(2, [&](int worker) {
      for (int step = 1; step <= 20; ++step) {
        FlatRows wanted(1, {1, 2}, 2);
        const auto result = Step(worker, {rows.gradients()}, {wanted.values()});
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_GE(wanted[1][0], static_cast<float>(step));
        EXPECT_EQ(wanted[1][1], 2 * wanted[1][0]);
      }
    });
    EXPECT_THAT(Read(rows).elements, ElementsAre(40, 80, 40, 80));
  }
}

// The stream of worker 0 to the last server breaks at this moment of its first step.
struct Moment {
  const char* name;
  bool (*of_client)(const v1::ClientHeader&);
  bool (*of_server)(const v1::ServerHeader&);
  Fate fate;
};
const Moment kMoments[] = {
    {"before the wanted keys", [](const v1::ClientHeader& h) { return h.rows().wanted(); }, nullptr,
     Fate::kBreakBefore},
    {"after the gradients", [](const v1::ClientHeader& h) { return h.has_rows() && !h.rows().wanted(); },
     nullptr, Fate::kBreakAfter},
    {"before the end", [](const v1::ClientHeader& h) { return h.has_end(); }, nullptr, Fate::kBreakBefore},
    {"after the end", [](const v1::ClientHeader& h) { return h.has_end(); }, nullptr, Fate::kBreakAfter},
    {"before the rows", nullptr, [](const v1::ServerHeader& h) { return h.has_rows(); }, Fate::kBreakBefore},
    {"after the rows", nullptr, [](const v1::ServerHeader& h) { return h.has_rows(); }, Fate::kBreakAfter},
    {"before the answer's end", nullptr, [](const v1::ServerHeader& h) { return h.has_done(); },
     Fate::kBreakBefore},
};

TEST_P(RowsTest, APushWhoseStreamBrokeCountsOnce) {
  for (const Moment& moment : kMoments) {
    for (const int broken_step : {1, 2}) {
      SCOPED_TRACE(absl::StrCat(moment.name, " in step ", broken_step));
      Start(GetParam(), 2);
      Link& link = cluster_->link("worker/0", GetParam() - 1);
      const auto seen = std::make_shared<std::atomic<int>>(0);
      if (moment.of_client != nullptr) {
        link.TapClientFrames([&moment, seen, broken_step](const v1::ClientHeader& header) {
          return moment.of_client(header) && ++*seen == broken_step ? moment.fate : Fate::kDeliver;
        });
      } else {
        link.TapServerFrames([&moment, seen, broken_step](const v1::ServerHeader& header) {
          return moment.of_server(header) && ++*seen == broken_step ? moment.fate : Fate::kDeliver;
        });
      }
      const FlatRows pushed(1, Rows{{0, {2, 4}}, {1, {6, 8}}, {2, {10, 12}}}), wanted(1, {2, 1, 0}, 2);
      const FlatRows same_keys(1, {0, 1, 2}, 2);
      for (int step = 1; step <= 3; ++step) {
        const auto got = Round({pushed, pushed}, step == 1 ? same_keys : wanted);
        const auto n = static_cast<float>(step);
        for (const FlatRows& rows : got) {
          EXPECT_THAT(rows[0], ElementsAre(2 * n, 4 * n));
          EXPECT_THAT(rows[1], ElementsAre(6 * n, 8 * n));
          EXPECT_THAT(rows[2], ElementsAre(10 * n, 12 * n));
        }
      }
      EXPECT_GE(*seen, broken_step);
    }
  }
}

TEST_P(RowsTest, AStepThatIsGivenUpDoesNotCount) {
  Start(GetParam(), 1);
  {
    const std::vector<float> zeros(4);
    const FlatRows pushed(1, Rows{{1, {1, 2}}, {2, {3, 4}}});
    FlatRows wanted(1, {1, 2}, 2);
    client().steps().BeginStep(zeros, 1);
    ASSERT_EQ(exchange().WantRows({wanted.values()}), absl::OkStatus());
    ASSERT_EQ(exchange().PushRows({pushed.gradients()}), absl::OkStatus());
    client().steps().Drop();
    EXPECT_THAT(wanted.elements, Each(-99));
  }
  const FlatRows pushed(1, Rows{{1, {5, 6}}, {2, {7, 8}}});
  EXPECT_THAT(Round({pushed}, pushed)[0].elements, ElementsAre(5, 6, 7, 8));
}

TEST_P(RowsTest, AKeyThatNoServerStoresIsNamed) {
  Start(GetParam(), 1);
  FlatRows rows(2, {1, 404}, 3);
  for (const absl::Status& status :
       {exchange().ReadRows({rows.values()}), Step(0, {}, {rows.values()}).status(),
        Step(0, {rows.gradients()}, {}).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("table 'u'"));
    EXPECT_THAT(status.message(), HasSubstr("no server stores the row 404"));
  }
}

// Wanted keys are not replicated: a worker that loses a server asks again.
TEST_P(RowsTest, ABackupGoesOnWithTheRows) {
  if (GetParam() == 1) GTEST_SKIP() << "a single server has no backup";
  replication_ = 1;
  Start(GetParam(), 2);
  const FlatRows pushed(1, Rows{{0, {2, 4}}, {1, {6, 8}}, {2, {10, 12}}});
  for (int step = 1; step <= 6; ++step) {
    std::vector<FlatRows> got(2, pushed);
    InParallel(3, [&](int worker) {
      if (worker == 2) {
        if (step == 3) cluster_->Kill(1);
        return;
      }
      FlatRows& wanted = got[static_cast<size_t>(worker)];
      const auto result = Step(worker, {pushed.gradients()}, {wanted.values()});
      ASSERT_TRUE(result.ok()) << result.status();
    });
    const auto n = static_cast<float>(step);
    for (const FlatRows& rows : got) {
      EXPECT_THAT(rows.elements, ElementsAre(2 * n, 4 * n, 6 * n, 8 * n, 10 * n, 12 * n));
    }
  }
}

}  // namespace
}  // namespace cairn::test
