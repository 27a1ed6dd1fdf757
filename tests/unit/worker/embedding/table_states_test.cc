// The states of tables in memory, on their way to servers.
#include "worker/embedding/table_states.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "client/snapshot.h"
#include "client/table_states.h"
#include "embedding/keys/key_hash.h"
#include "embedding/store/bucket_range.h"
#include "embedding/store/table_state.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/embedding/trained_tables.h"

namespace cairn::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A job on two servers with a table of rows of two values, whose optimizer has a slot for each value.
v1::Job JobWithSlots(int64_t vocabulary_size) {
  v1::Job job;
  job.add_servers("host:1");
  job.add_servers("host:2");
  job.mutable_optimizer()->set_name("Adagrad");
  (*job.mutable_optimizer()->mutable_hyperparameters())["initial_accumulator_value"] = 0.25;
  v1::Table& table = *job.add_tables();
  table.set_name("t");
  table.set_kind("embedding");
  table.set_row_elements(2);
  table.mutable_embedding()->set_vocabulary_size(vocabulary_size);
  return job;
}

// The state of the only table on a server, which is read in pieces of at most `piece` floats.
absl::StatusOr<std::vector<float>> ReadState(client::TableSource& source, int server, int64_t piece) {
  std::vector<float> state, into(static_cast<size_t>(piece));
  while (static_cast<int64_t>(state.size()) < source.sizes()[static_cast<size_t>(server)][0]) {
    const auto count = source.Read(server, 1, absl::MakeSpan(into));
    if (!count.ok()) return count.status();
    state.insert(state.end(), into.begin(), into.begin() + *count);
  }
  return state;
}

TEST(StatesOfTables, DivideAllRowsOfAVariableAmongServersInTheirOrder) {
  constexpr int64_t kRows = 50, kRowFloats = 4;
  std::vector<float> values;
  for (int64_t i = 0; i < 2 * kRows; ++i) values.push_back(static_cast<float>(i));
  std::vector<TrainedTable> tables;
  tables.push_back(*TrainedTable::OfVariable("t", 2, std::move(values)));
  const auto source = StatesOfTables(JobWithSlots(kRows),
                                     std::make_shared<const std::vector<TrainedTable>>(std::move(tables)));
  ASSERT_TRUE(source.ok()) << source.status();
  std::map<int64_t, std::vector<float>> rows;
  for (int server = 0; server < 2; ++server) {
    const auto state = ReadState(**source, server, /*piece=*/20);
    ASSERT_TRUE(state.ok()) << state.status();
    embedding::RowOrder order;
    embedding::StateParser parser(kRowFloats);
    EXPECT_TRUE(parser.Add(*state, [&](absl::Span<const float> records) {
      for (; !records.empty(); records.remove_prefix(embedding::kIdFloats + kRowFloats)) {
        int64_t id = 0;
        std::memcpy(&id, records.data(), sizeof(id));
        EXPECT_TRUE(order.Follows(id));
        EXPECT_EQ(embedding::OwnerOf({}, embedding::BucketOf(id), 2), server);
        const auto row = records.subspan(embedding::kIdFloats, kRowFloats);
        rows[id].assign(row.begin(), row.end());
      }
    }));
    EXPECT_TRUE(parser.complete());
  }
  ASSERT_EQ(rows.size(), static_cast<size_t>(kRows));
  for (const auto& [id, row] : rows) {
    const auto first = static_cast<float>(2 * id);
    EXPECT_THAT(row, ElementsAre(first, first + 1, 0.25f, 0.25f));
  }
}

TEST(StatesOfTables, NeedRoomForARow) {
  std::vector<TrainedTable> tables;
  tables.push_back(*TrainedTable::OfVariable("t", 2, {1, 2, 3, 4, 5, 6, 7, 8}));
  const auto source =
      StatesOfTables(JobWithSlots(4), std::make_shared<const std::vector<TrainedTable>>(std::move(tables)));
  ASSERT_TRUE(source.ok()) << source.status();
  const int server = embedding::OwnerOf({}, embedding::BucketOf(0), 2);
  EXPECT_THAT(ReadState(**source, server, /*piece=*/4).status().message(),
              HasSubstr("table 't': a row of 6 floats does not fit into a piece of 4"));
}

TEST(KeptStates, AreReadAgainFromTheirBeginning) {
  KeptStates kept;
  // An attempt to read a snapshot may fail, and be repeated.
  ASSERT_EQ(kept.Begin(client::Snapshot(), {{5}, {1}}), absl::OkStatus());
  ASSERT_EQ(kept.Add(0, 1, {9, 9}), absl::OkStatus());
  ASSERT_EQ(kept.Begin(client::Snapshot(), {{5}, {1}}), absl::OkStatus());
  ASSERT_EQ(kept.Add(0, 1, {1, 2, 3}), absl::OkStatus());
  ASSERT_EQ(kept.Add(1, 1, {6}), absl::OkStatus());
  ASSERT_EQ(kept.Add(0, 1, {4, 5}), absl::OkStatus());
  const client::TableOpener open = kept.Open();
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto source = open();
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_THAT(*ReadState(**source, 0, /*piece=*/2), ElementsAre(1, 2, 3, 4, 5));
    EXPECT_THAT(*ReadState(**source, 1, /*piece=*/2), ElementsAre(6));
  }
}

}  // namespace
}  // namespace cairn::worker
