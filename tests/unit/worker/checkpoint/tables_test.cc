#include "worker/checkpoint/tables.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "common/core/status.h"
#include "embedding/keys/key_hash.h"
#include "embedding/store/bucket_range.h"
#include "embedding/store/table_state.h"
#include "tests/unit/worker/checkpoint/small_job.h"
#include "worker/checkpoint/tables.h"
#include "worker/checkpoint/tensors.h"
#include "worker/checkpoint/train_dir.h"
#include "worker/checkpoint/writer.h"

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

  // Writes a checkpoint of the states [server][table], in pieces of `piece` floats in which the servers take turns.
  absl::StatusOr<std::string> Write(const std::vector<std::vector<std::vector<float>>>& states,
                                    size_t piece = 5) {
    const Servers dense(static_cast<int>(states.size()), WholeState());
    CAIRN_ASSIGN_OR_RETURN(const auto writer, CheckpointWriter::Begin(train_dir_, run_.global_step));
    std::vector<std::vector<int64_t>> sizes(states.size());
    size_t longest = 0;
    for (size_t server = 0; server < states.size(); ++server) {
      for (const auto& state : states[server]) {
        sizes[server].push_back(static_cast<int64_t>(state.size()));
        longest = std::max(longest, state.size());
      }
    }
    CAIRN_RETURN_IF_ERROR(writer->BeginTables(*run_.tables, sizes));
    for (size_t table = 0; table < run_.tables->size(); ++table) {
      for (size_t at = 0; at < longest; at += piece) {
        for (size_t server = 0; server < states.size(); ++server) {
          const auto state = absl::MakeConstSpan(states[server][table]);
          if (at >= state.size()) continue;
          CAIRN_RETURN_IF_ERROR(writer->AddTable(server, table, state.subspan(at, piece)));
        }
      }
    }
    return writer->Finish(run_, "{}", dense.states(), {});
  }
  // Writes a checkpoint of so many servers, each with its part of the rows of two tables.
  absl::StatusOr<std::string> Write(int servers, const Rows& users, const Rows& items, size_t piece = 5) {
    std::vector<std::vector<std::vector<float>>> states;
    for (int server = 0; server < servers; ++server) {
      states.push_back({StateOf(users, server, servers), StateOf(items, server, servers)});
    }
    return Write(states, piece);
  }

  // The states for so many servers [server][table], which the checkpoint gives in pieces of at most `piece` floats.
  static absl::StatusOr<std::vector<std::vector<std::vector<float>>>> LoadStates(const Checkpoint& checkpoint,
                                                                                 int servers,
                                                                                 size_t piece = 40) {
    CAIRN_ASSIGN_OR_RETURN(const auto states, TableStates::Open(checkpoint, servers));
    std::vector<std::vector<std::vector<float>>> loaded(states->sizes().size());
    std::vector<float> buffer(piece);
    for (size_t server = 0; server < loaded.size(); ++server) {
      for (size_t table = 0; table < states->sizes()[server].size(); ++table) {
        std::vector<float>& state = loaded[server].emplace_back();
        while (static_cast<int64_t>(state.size()) < states->sizes()[server][table]) {
          CAIRN_ASSIGN_OR_RETURN(const int64_t count,
                                 states->Read(static_cast<int>(server), table, absl::MakeSpan(buffer)));
          state.insert(state.end(), buffer.begin(), buffer.begin() + count);
        }
      }
    }
    return loaded;
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
      const auto states = LoadStates(*checkpoint, after);
      ASSERT_TRUE(states.ok()) << states.status();
      ASSERT_EQ(states->size(), static_cast<size_t>(after));
      for (int server = 0; server < after; ++server) {
        const auto& tables = (*states)[static_cast<size_t>(server)];
        ASSERT_EQ(tables.size(), 2u);
        EXPECT_TRUE(SameFloats(tables[0], StateOf(users, server, after))) << before << " " << after;
        EXPECT_TRUE(SameFloats(tables[1], StateOf(items, server, after))) << before << " " << after;
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
  auto reader = RowReader::Open(*checkpoint, run_.tables->front());
  ASSERT_TRUE(reader.ok()) << reader.status();
  ASSERT_EQ(reader->rows(), 6);
  std::vector<float> record(static_cast<size_t>(reader->record_floats()));
  for (const auto& [place, row] : users) {
    ASSERT_EQ(reader->Read(absl::MakeSpan(record)), absl::OkStatus());
    int64_t id = 0;
    std::memcpy(&id, record.data(), sizeof(id));
    EXPECT_EQ(id, place.second);
    EXPECT_TRUE(SameFloats({record.begin() + embedding::kIdFloats, record.end()}, row)) << place.second;
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
  const auto directory = Write(1, SomeRows(1000), {});
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
  for (const absl::Status& status : {checkpoint->Verify(), LoadStates(*checkpoint, 2).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("tensor 'table/users/embeddings/slot/step'"));
  }
}

TEST_F(TablesTest, RowsInAnotherOrderAreRefused) {
  Rows rows = SomeRows(4);
  const auto first = rows.extract(rows.begin());
  rows[{embedding::kBuckets, first.key().second}] = first.mapped();  // last instead
  std::vector<float> wrong(embedding::kStateHeadFloats);
  const embedding::TableStateHead head = {.rows = 4};
  std::memcpy(wrong.data(), &head, sizeof(head));
  for (const auto& [place, row] : rows) {
    std::array<float, embedding::kIdFloats> id{};
    std::memcpy(id.data(), &place.second, sizeof(place.second));
    wrong.insert(wrong.end(), id.begin(), id.end());
    wrong.insert(wrong.end(), row.begin(), row.end());
  }
  const auto directory = Write({{wrong, StateOf({}, 0, 1)}});
  ASSERT_TRUE(directory.ok()) << directory.status();
  const auto checkpoint = Checkpoint::Open(*directory);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const absl::Status status = LoadStates(*checkpoint, 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("table 'users/embeddings': id"));
}

TEST_F(TablesTest, AStateOfAnotherFormIsNotWritten) {
  const std::vector<float> none = StateOf({}, 0, 1), odd(embedding::kStateHeadFloats + 1);
  const absl::Status status = Write({{none, odd}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("ps/0: the state of table 'items/embeddings'"));
  // It says that it has more rows, or fewer, than its size.
  for (const int64_t rows : {3, 5}) {
    std::vector<float> wrong = StateOf(SomeRows(4), 0, 1);
    const embedding::TableStateHead head = {.rows = rows};
    std::memcpy(wrong.data(), &head, sizeof(head));
    const absl::Status other = Write({{wrong, none}}).status();
    EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument) << other;
    EXPECT_THAT(other.message(), HasSubstr("ps/0: the state of table 'users/embeddings'"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(CheckpointsDirectory(train_dir_))) << "temporary files are left";
}

TEST_F(TablesTest, AnIncompleteStateIsNotPublished) {
  const Servers dense(1, WholeState());
  const std::vector<float> state = StateOf(SomeRows(4), 0, 1), none = StateOf({}, 0, 1);
  const std::vector<std::vector<int64_t>> sizes = {
      {static_cast<int64_t>(state.size()), static_cast<int64_t>(none.size())}};
  const auto writer = CheckpointWriter::Begin(train_dir_, run_.global_step);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_EQ((*writer)->BeginTables(*run_.tables, sizes), absl::OkStatus());
  ASSERT_EQ((*writer)->AddTable(0, 0, absl::MakeConstSpan(state).first(state.size() - 1)), absl::OkStatus());
  ASSERT_EQ((*writer)->AddTable(0, 1, none), absl::OkStatus());
  EXPECT_EQ((*writer)->Finish(run_, "{}", dense.states(), {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenNewest(train_dir_, [](const absl::Status&) {}).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(TablesTest, TheFilesDoNotDependOnThePieces) {
  std::string first;
  for (const size_t piece : {1, 7, 100, 1 << 20}) {
    const auto directory = Write(2, SomeRows(300), SomeRows(7), piece);
    ASSERT_TRUE(directory.ok()) << directory.status();
    std::string bytes;
    std::vector<std::filesystem::path> files;
    for (const auto& file : std::filesystem::directory_iterator(*directory)) files.push_back(file.path());
    std::sort(files.begin(), files.end());
    for (const auto& file : files) {
      std::ifstream in(file, std::ios::binary);
      absl::StrAppend(&bytes, file.filename().string(), "\n",
                      std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()));
    }
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << "pieces of " << piece;
  }
}

}  // namespace
}  // namespace cairn::worker
