#include "worker/embedding/table_states.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "embedding/keys/key_hash.h"
#include "embedding/optimizers/row_optimizer.h"
#include "embedding/store/bucket_range.h"
#include "embedding/store/table_state.h"
#include "optim/store/optimizer_of.h"
#include "worker/tables/table_run.h"

namespace cairn::worker {
namespace {

// The ids whose rows a state must have, in its order.
std::vector<int64_t> IdsOfState(const TableRun& here, const TrainedTable& table) {
  const TableRun& there = table.description();
  const bool same_first_values = !table.has_all_rows() && here.seed == there.seed &&
                                 here.distribution == there.distribution && here.center == there.center &&
                                 here.spread == there.spread;
  if (table.dynamic() || same_first_values) return {table.ids().begin(), table.ids().end()};
  std::vector<int64_t> ids(static_cast<size_t>(there.vocabulary_size));
  std::iota(ids.begin(), ids.end(), int64_t{0});
  std::sort(ids.begin(), ids.end(), [](int64_t a, int64_t b) {
    return std::pair(embedding::BucketOf(a), a) < std::pair(embedding::BucketOf(b), b);
  });
  return ids;
}

// Makes the states of tables from their rows.
class StatesOfRows final : public client::TableSource {
 public:
  static absl::StatusOr<std::unique_ptr<StatesOfRows>> Create(const v1::Job& job, SharedTables tables) {
    CAIRN_ASSIGN_OR_RETURN(const auto runs, TablesOf(job));
    const int servers = std::max(1, job.servers_size());
    std::unique_ptr<StatesOfRows> source(new StatesOfRows(std::move(tables)));
    source->sizes_.resize(static_cast<size_t>(servers));
    for (size_t t = 0; t < source->tables_->size(); ++t) {
      const TrainedTable& table = (*source->tables_)[t];
      const v1::EmbeddingTable& description = job.tables(static_cast<int>(t)).embedding();
      CAIRN_ASSIGN_OR_RETURN(
          auto optimizer, embedding::MakeRowOptimizer(
                              optim::OptimizerConfigOf(description.has_optimizer() ? description.optimizer()
                                                                                   : job.optimizer()),
                              static_cast<int>(table.dim())));
      source->AddTable(IdsOfState((*runs)[t], table), table.dim(), std::move(optimizer));
    }
    return source;
  }

  const client::TableSizes& sizes() const override { return sizes_; }

  absl::StatusOr<int64_t> Read(int server, int table, absl::Span<float> into) override {
    Table& of = made_[static_cast<size_t>(table) - 1];
    const TrainedTable& from = (*tables_)[static_cast<size_t>(table) - 1];
    const auto at = static_cast<size_t>(server);
    const size_t left = of.ends[at] - of.next;
    if (!of.head_read[at]) {
      of.head_read[at] = true;
      const embedding::TableStateHead head = {.rows = static_cast<int64_t>(left),
                                              .learning_rate = of.optimizer->learning_rate(0)};
      CAIRN_CHECK(static_cast<int64_t>(into.size()) >= embedding::kStateHeadFloats);
      std::memcpy(into.data(), &head, sizeof(head));
      return embedding::kStateHeadFloats;
    }
    const auto dim = static_cast<size_t>(from.dim()), slots = static_cast<size_t>(of.optimizer->slots());
    const size_t record = static_cast<size_t>(embedding::kIdFloats) + dim + slots;
    const size_t rows = std::min(left, into.size() / record);
    if (rows == 0) {
      return absl::ResourceExhaustedError(absl::StrCat("table '", from.name(), "': a row of ", record,
                                                       " floats does not fit into a piece of ", into.size()));
    }
    float* to = into.data();
    for (size_t row = 0; row < rows; ++row) {
      const int64_t id = of.ids[of.next++];
      std::memcpy(to, &id, sizeof(id));
      to += embedding::kIdFloats;
      from.Read(id, {to, dim});
      of.optimizer->InitSlots({to + dim, slots});
      to += dim + slots;
    }
    return static_cast<int64_t>(rows * record);
  }

 private:
  struct Table {
    std::vector<int64_t> ids;  // those of a server follow one another
    std::unique_ptr<const embedding::RowOptimizer> optimizer;
    std::vector<size_t> ends{};     // [server] in ids
    std::vector<bool> head_read{};  // [server]
    size_t next = 0;                // in ids
  };
  explicit StatesOfRows(SharedTables tables) : tables_(std::move(tables)) {}

  void AddTable(std::vector<int64_t> ids, int64_t dim,
                std::unique_ptr<const embedding::RowOptimizer> optimizer) {
    const auto servers = static_cast<int>(sizes_.size());
    Table& table = made_.emplace_back(Table{.ids = std::move(ids), .optimizer = std::move(optimizer)});
    size_t begin = 0;
    for (int server = 0; server < servers; ++server) {
      size_t end = begin;
      while (end < table.ids.size() &&
             embedding::OwnerOf({}, embedding::BucketOf(table.ids[end]), servers) == server) {
        ++end;
      }
      sizes_[static_cast<size_t>(server)].push_back(
          embedding::StateFloats(static_cast<int64_t>(end - begin), dim + table.optimizer->slots()));
      table.ends.push_back(end);
      table.head_read.push_back(false);
      begin = end;
    }
  }

  const SharedTables tables_;
  std::vector<Table> made_;
  client::TableSizes sizes_;
};

// Whether the values of a row that is read depend on the version.
bool CatchesUp(const TableRun& table) {
  const auto found = table.hyperparameters.find("catch_up");
  return found != table.hyperparameters.end() && found->second != 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<client::TableSource>> StatesOfTables(const v1::Job& job, SharedTables tables) {
  return StatesOfRows::Create(job, std::move(tables));
}

absl::StatusOr<bool> StatesDependOnVersion(const v1::Job& job) {
  CAIRN_ASSIGN_OR_RETURN(const auto runs, TablesOf(job));
  return runs.has_value() && std::any_of(runs->begin(), runs->end(), &CatchesUp);
}

// Reads the states from their beginning.
class KeptStates::Source final : public client::TableSource {
 public:
  explicit Source(std::shared_ptr<const States> states) : states_(std::move(states)) {
    for (const std::vector<int64_t>& of_server : states_->sizes) read_.emplace_back(of_server.size());
  }
  const client::TableSizes& sizes() const override { return states_->sizes; }
  absl::StatusOr<int64_t> Read(int server, int table, absl::Span<float> into) override {
    const auto s = static_cast<size_t>(server), t = static_cast<size_t>(table) - 1;
    const absl::Span<const float> next =
        states_->floats[s][t].span().subspan(static_cast<size_t>(read_[s][t]), into.size());
    std::copy(next.begin(), next.end(), into.begin());
    read_[s][t] += static_cast<int64_t>(next.size());
    return static_cast<int64_t>(next.size());
  }

 private:
  const std::shared_ptr<const States> states_;
  client::TableSizes read_;  // [server] [table - 1] floats
};

absl::Status KeptStates::Begin(const client::Snapshot& /*snapshot*/, const client::TableSizes& sizes) {
  states_ = std::make_shared<States>(States{.sizes = sizes, .floats = {}});
  added_.clear();
  for (const std::vector<int64_t>& of_server : sizes) {
    std::vector<AlignedBuffer>& floats = states_->floats.emplace_back();
    for (const int64_t size : of_server) floats.emplace_back(size);
    added_.emplace_back(of_server.size());
  }
  return absl::OkStatus();
}

absl::Status KeptStates::Add(int server, int table, absl::Span<const float> piece) {
  const auto s = static_cast<size_t>(server), t = static_cast<size_t>(table) - 1;
  std::copy(piece.begin(), piece.end(), states_->floats[s][t].data() + added_[s][t]);
  added_[s][t] += static_cast<int64_t>(piece.size());
  return absl::OkStatus();
}

client::TableOpener KeptStates::Open() {
  return [states = std::move(states_)]() -> absl::StatusOr<std::unique_ptr<client::TableSource>> {
    return std::make_unique<Source>(states);
  };
}

}  // namespace cairn::worker
