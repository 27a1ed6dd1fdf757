#include "worker/checkpoint/tables.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "embedding/keys/key_hash.h"
#include "embedding/store/bucket_range.h"
#include "embedding/store/table_state.h"
#include "tests/unit/worker/checkpoint/small_job.h"
#include "worker/checkpoint/tensors.h"

namespace cairn::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kDim = 3, kSlots = 4;

// Rows by (bucket, id), each of values and slots.
using Rows = std::map<std::pair<int, int64_t>, std::vector<float>>;

Rows SomeRows(int count) {
  std::vector<int64_t> ids = {0, -1, std::numeric_limits<int64_t>::min(), (int64_t{1} << 53) + 1};
  for (int i = 4; i < count; ++i) ids.push_back(2 * i);
  Rows rows;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const std::pair<int, int64_t> place(embedding::BucketOf(ids[i]), ids[i]);
    std::vector<float>& row = rows[place];
    for (int64_t j = 0; j < kDim + kSlots; ++j)
      row.push_back(static_cast<float>(100 * i) + static_cast<float>(j));
  }
  return rows;
}

// The state that server `server` of `servers` gives.
std::vector<float> StateOf(const Rows& rows, int server, int servers) {
  std::vector<float> state(embedding::kStateHeadFloats);
  embedding::TableStateHead head = {.learning_rate = 0.25f};
  for (const auto& [place, row] : rows) {
    if (embedding::OwnerOf({}, place.first, servers) != server) continue;
    ++head.rows;
    std::array<float, embedding::kIdFloats> id{};
    std::memcpy(id.data(), &place.second, sizeof(place.second));
    state.insert(state.end(), id.begin(), id.end());
    state.insert(state.end(), row.begin(), row.end());
  }
  std::memcpy(state.data(), &head, sizeof(head));
  return state;
}

class TablesTest : public CheckpointFiles {
 protected:
  TablesTest() {
    TableRun table = {.name = "users/embeddings",
                      .vocabulary_size = 0,
                      .dim = kDim,
                      .seed = 7,
                      .distribution = "uniform",
                      .center = 0,
                      .spread = 0.05,
                      .optimizer = "Adagrad",
                      .hyperparameters = {{"learning_rate", 0.1}},
                      .slots = {"accumulator", "step"},
                      .slot_floats = {3, 1},
                      .learning_rate = 0.25};
    run_.tables = {table};
    table.name = "items/embeddings";
    run_.tables->push_back(table);
  }

  // Writes a checkpoint of so many servers, each with its part of the rows of two tables.
  absl::StatusOr<std::string> Write(int servers, const Rows& users, const Rows& items) {
    const Servers dense(servers, WholeState());
    std::vector<ServerState> states = dense.states();
    std::vector<std::vector<float>> memory;
    for (int server = 0; server < servers; ++server) {
      memory.push_back(StateOf(users, server, servers));
      memory.push_back(StateOf(items, server, servers));
    }
    for (size_t server = 0; server < states.size(); ++server) {
      // The first one in two buffers, as it arrives.
      const absl::Span<const float> whole = memory[2 * server];
      states[server].tables = {{whole.subspan(0, 5), whole.subspan(std::min<size_t>(5, whole.size()))},
                               {memory[2 * server + 1]}};
    }
    return WriteCheckpoint(train_dir_, run_, "{}", states, {});
  }

  static std::vector<float> Joined(const FloatBlocks& blocks) {
    std::vector<float> all;
    for (const absl::Span<const float> span : blocks.spans()) all.insert(all.end(), span.begin(), span.end());
    return all;
  }

  static bool SameFloats(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }
};

TEST_F(TablesTest, AreLoadedOnAnyNumberOfServers) {
  const Rows users = SomeRows(5000), items = SomeRows(40);
  for (const int before : {1, 2, 3}) {
    const auto directory = Write(before, users, items);
    ASSERT_TRUE(directory.ok()) << directory.status();
    const auto checkpoint = Checkpoint::Open(*directory);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    ASSERT_EQ(checkpoint->Verify(), absl::OkStatus());
    EXPECT_EQ(checkpoint->run().tables, run_.tables);
    for (const int after : {1, 2, 5}) {
      const auto states = LoadTableStates(*checkpoint, after);
      ASSERT_TRUE(states.ok()) << states.status();
      ASSERT_EQ(states->size(), static_cast<size_t>(after));
      for (int server = 0; server < after; ++server) {
        const auto& tables = (*states)[static_cast<size_t>(server)];
        ASSERT_EQ(tables.size(), 2u);
        EXPECT_TRUE(SameFloats(Joined(tables[0]), StateOf(users, server, after))) << before << " " << after;
        EXPECT_TRUE(SameFloats(Joined(tables[1]), StateOf(items, server, after))) << before << " " << after;
      }
    }
  }
}

TEST_F(TablesTest, HaveTensorsOfTheirOwn) {
  const Rows users = SomeRows(6);
  const auto directory = Write(2, users, {});
  ASSERT_TRUE(directory.ok()) << directory.status();
  const auto checkpoint = Checkpoint::Open(*directory);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  std::vector<std::string> found;
  for (const TensorInfo& tensor : checkpoint->tensors()) {
    if (tensor.of_table) {
      found.push_back(
          absl::StrCat(tensor.name, " ", NameOf(tensor.type), tensor.shape.ToString(), tensor.slot));
    }
  }
  EXPECT_THAT(found, ElementsAre("table/items/embeddings/ids I64[0]", "table/items/embeddings/rows F32[0,3]",
                                 "table/items/embeddings/slot/accumulator F32[0,3]accumulator",
                                 "table/items/embeddings/slot/step F32[0,1]step",
                                 "table/users/embeddings/ids I64[6]", "table/users/embeddings/rows F32[6,3]",
                                 "table/users/embeddings/slot/accumulator F32[6,3]accumulator",
                                 "table/users/embeddings/slot/step F32[6,1]step"));
  const auto records = LoadTable(*checkpoint, run_.tables->front());
  ASSERT_TRUE(records.ok()) << records.status();
  size_t i = 0;
  for (const auto& [place, row] : users) {
    EXPECT_EQ(records->ids[i], place.second);
    const float* const read = records->rows.data() + i * (kDim + kSlots);
    EXPECT_TRUE(SameFloats({read, read + kDim + kSlots}, row)) << place.second;
    ++i;
  }
  // The variables are what they are without tables.
  std::vector<float> values(kElements);
  EXPECT_EQ(checkpoint->Load(Variables(), {}, {absl::MakeSpan(values)}), absl::OkStatus());
}

TEST_F(TablesTest, AVariableOfALayerNamedTableIsNoTable) {
  EXPECT_FALSE(IsOfTable("table/kernel", run_));
  EXPECT_FALSE(IsOfTable("table/users/embeddings/rows2", run_));
  EXPECT_TRUE(IsOfTable(SlotName("users/embeddings", "step"), run_));
  run_.tables.reset();
  EXPECT_FALSE(IsOfTable(IdsName("users/embeddings"), run_));
}

TEST_F(TablesTest, DamageOfARowIsFoundAndNamed) {
  const auto directory = Write(1, SomeRows(100), {});
  ASSERT_TRUE(directory.ok()) << directory.status();
  std::string largest;
  for (const auto& file : std::filesystem::directory_iterator(*directory)) {
    if (largest.empty() || file.file_size() > std::filesystem::file_size(largest)) largest = file.path();
  }
  std::fstream file(largest, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-10, std::ios::end);
  file.put('x');
  file.close();
  const auto checkpoint = Checkpoint::Open(*directory);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  for (const absl::Status& status : {checkpoint->Verify(), LoadTableStates(*checkpoint, 2).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("tensor 'table/users/embeddings/slot/step'"));
  }
}

TEST_F(TablesTest, RowsInAnotherOrderAreRefused) {
  Rows rows = SomeRows(4);
  const auto first = rows.extract(rows.begin());
  rows[{embedding::kBuckets, first.key().second}] = first.mapped();  // last instead
  const Servers dense(1, WholeState());
  std::vector<ServerState> states = dense.states();
  std::vector<float> wrong(embedding::kStateHeadFloats);
  const embedding::TableStateHead head = {.rows = 4};
  std::memcpy(wrong.data(), &head, sizeof(head));
  for (const auto& [place, row] : rows) {
    std::array<float, embedding::kIdFloats> id{};
    std::memcpy(id.data(), &place.second, sizeof(place.second));
    wrong.insert(wrong.end(), id.begin(), id.end());
    wrong.insert(wrong.end(), row.begin(), row.end());
  }
  const std::vector<float> none = StateOf({}, 0, 1);
  states[0].tables = {{wrong}, {none}};
  const auto directory = WriteCheckpoint(train_dir_, run_, "{}", states, {});
  ASSERT_TRUE(directory.ok()) << directory.status();
  const auto checkpoint = Checkpoint::Open(*directory);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const absl::Status status = LoadTableStates(*checkpoint, 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("table 'users/embeddings': id"));
}

TEST_F(TablesTest, AStateOfAnotherFormIsNotWritten) {
  const Servers dense(1, WholeState());
  std::vector<ServerState> states = dense.states();
  const std::vector<float> none = StateOf({}, 0, 1), odd(embedding::kStateHeadFloats + 1);
  states[0].tables = {{none}, {odd}};
  const absl::Status status = WriteCheckpoint(train_dir_, run_, "{}", states, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("ps/0: the state of table 'items/embeddings'"));
  states[0].tables.pop_back();
  EXPECT_EQ(WriteCheckpoint(train_dir_, run_, "{}", states, {}).status().code(),
            absl::StatusCode::kInvalidArgument)
      << "the state of a table is missing";
}

}  // namespace
}  // namespace cairn::worker
