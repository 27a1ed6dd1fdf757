// A table of rows by id, for tests of jobs with several tables. Each row is the sum of the mean gradients that it
// got, and knows how many there were. A row begins at 0 when it is pushed for the first time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/net/wire/row_frame.h"
#include "optim/store/buffer_pool.h"
#include "ps/table/table_factory.h"

namespace cairn::ps {

class CountingTable final : public Table {
 public:
  // Bytes of a row in the budget.
  static int64_t RowBytes(int64_t row_elements) { return (row_elements + 4) * int64_t{sizeof(float)}; }

  CountingTable(int64_t row_elements, int64_t version, std::shared_ptr<optim::MemoryBudget> budget)
      : row_elements_(row_elements), budget_(std::move(budget)), version_(version) {}

  std::unique_ptr<TablePush> BeginPush(const PushRequest& request) override {
    return std::make_unique<Push>(request, *this);
  }

  absl::StatusOr<TableRows> ReadRows(absl::Span<const int64_t> ids) const override {
    const int64_t size = static_cast<int64_t>(ids.size()) * row_elements_;
    optim::BufferPool pool(size, /*max_idle=*/0, budget_);
    const std::shared_ptr<AlignedBuffer> elements = pool.TryAcquire();
    if (elements == nullptr) return pool.Refusal("rows that are read");
    std::fill(elements->span().begin(), elements->span().end(), 0.0f);
    MutexLock lock(mutex_);
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto row = rows_.find(ids[i]);
      if (row == rows_.end()) continue;
      std::copy(row->second.elements.begin(), row->second.elements.end(),
                elements->data() + static_cast<int64_t>(i) * row_elements_);
    }
    return TableRows{version_, elements};
  }

  // [row]: id, elements
  absl::StatusOr<TableMean> Mean(const TableUpdate& update) override {
    int64_t examples = 0;
    std::map<int64_t, std::vector<float>> sums;
    for (const TableUpdate::Contribution& contribution : update.contributions) {
      const int64_t weight = contribution.gradient->examples;
      examples += weight;
      if (contribution.data == nullptr || weight == 0) continue;
      for (const auto& [id, row] : static_cast<const Rows&>(*contribution.data).rows) {
        std::vector<float>& sum = sums.try_emplace(id, row.size()).first->second;
        for (size_t i = 0; i < row.size(); ++i) sum[i] += static_cast<float>(weight) * row[i];
      }
    }
    if (examples == 0) return TableMean();
    auto mean = std::make_shared<AlignedBuffer>(static_cast<int64_t>(sums.size()) * (2 + row_elements_));
    float* next = mean->data();
    for (const auto& [id, sum] : sums) {
      next = Put(id, next);
      for (const float element : sum) *next++ = element / static_cast<float>(examples);
    }
    return TableMean(std::move(mean));
  }

  absl::StatusOr<std::vector<optim::SliceSquares>> Measure(optim::Norms, const TableUpdate&) override {
    return std::vector<optim::SliceSquares>();
  }

  absl::Status Apply(const TableUpdate& update) override {
    TableMean mean;
    if (update.mean != nullptr) {
      mean = *update.mean;
    } else {
      CAIRN_ASSIGN_OR_RETURN(mean, Mean(update));
    }
    const int64_t size = mean == nullptr ? 0 : mean->size(), of_row = 2 + row_elements_;
    if (size % of_row != 0) return absl::InvalidArgumentError("the mean of a table is cut in a row");
    MutexLock lock(mutex_);
    version_ = update.version;
    for (int64_t at = 0; at < size; at += of_row) {
      Row& row = RowOf(Get(mean->data() + at));
      ++row.count;
      for (size_t i = 0; i < row.elements.size(); ++i) {
        row.elements[i] += mean->data()[at + 2 + static_cast<int64_t>(i)];
      }
    }
    return absl::OkStatus();
  }

  // The number of rows, then [row]: id, count, elements.
  absl::StatusOr<TableState> Save(bool) override {
    MutexLock lock(mutex_);
    auto head = std::make_shared<AlignedBuffer>(2);
    auto rows = std::make_shared<AlignedBuffer>(static_cast<int64_t>(rows_.size()) * (4 + row_elements_));
    Put(static_cast<int64_t>(rows_.size()), head->data());
    float* next = rows->data();
    for (const auto& [id, row] : rows_) {
      next = Put(row.count, Put(id, next));
      next = std::copy(row.elements.begin(), row.elements.end(), next);
    }
    return TableState{std::move(head), std::move(rows)};
  }

  absl::Status CheckState(const TableState& state) const override {
    const std::vector<float> words = Joined(state);
    if (words.size() >= 2 &&
        static_cast<int64_t>(words.size()) == 2 + Get(words.data()) * (4 + row_elements_)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(words.size(), " words are not the state of a table"));
  }

  void Restore(int64_t version, TableState state) override {
    const std::vector<float> words = Joined(state);
    MutexLock lock(mutex_);
    version_ = version;
    rows_.clear();
    for (const float* next = words.data() + 2; next != words.data() + words.size();) {
      Row& row = RowOf(Get(next));
      row.count = Get(next + 2);
      std::copy_n(next + 4, row_elements_, row.elements.data());
      next += 4 + row_elements_;
    }
  }

  absl::string_view name() const override { return "counting"; }
  void FillStatus(v1::TableStatus& status) const override {
    MutexLock lock(mutex_);
    status.set_row_elements(row_elements_);
    status.set_rows(static_cast<int64_t>(rows_.size()));
  }

 private:
  struct Row {
    int64_t count = 0;
    std::vector<float> elements;
  };
  struct Rows final : TableGradient {
    std::map<int64_t, std::vector<float>> rows;
  };
  class Push final : public TablePush {
   public:
    Push(const PushRequest& request, const CountingTable& table)
        : has_rows_(request.gradient.examples > 0), table_(table) {}
    absl::Status AddChunk(const v1::Chunk&, net::Payload) override {
      return absl::InvalidArgumentError("the gradients of this table are pushed in rows");
    }
    absl::Status AddRows(net::ReceivedRows received) override {
      if (!has_rows_) return absl::OkStatus();
      const auto count = static_cast<int64_t>(received.ids().size());
      const int64_t bytes = count * RowBytes(table_.row_elements_);
      if (!table_.budget_->HasRoomFor(bytes)) return table_.budget_->Refusal("rows", bytes);
      const auto of_row = static_cast<size_t>(table_.row_elements_);
      for (size_t i = 0; i < received.ids().size(); ++i) {
        std::vector<float>& row = gradient_->rows.try_emplace(received.ids()[i], of_row).first->second;
        for (size_t k = 0; k < of_row; ++k) row[k] += received.elements()[i * of_row + k];
      }
      return absl::OkStatus();
    }
    absl::Span<float> DestinationFor(const v1::Chunk&, int64_t) override { return {}; }
    absl::Status CheckComplete() const override { return absl::OkStatus(); }
    std::shared_ptr<const TableGradient> Take() override { return std::move(gradient_); }
    void Keep() override {}
    bool MaySendEarly() const override { return false; }

   private:
    const bool has_rows_;
    const CountingTable& table_;
    std::shared_ptr<Rows> gradient_ = std::make_shared<Rows>();
  };

  static int64_t Get(const float* at) {
    int64_t value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  static float* Put(int64_t value, float* at) {
    std::memcpy(at, &value, sizeof(value));
    return at + 2;
  }
  static std::vector<float> Joined(const TableState& state) {
    std::vector<float> words;
    for (const auto& buffer : state) words.insert(words.end(), buffer->span().begin(), buffer->span().end());
    return words;
  }
  Row& RowOf(int64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto [row, is_new] = rows_.try_emplace(id);
    if (is_new) {
      budget_->Take(RowBytes(row_elements_));
      row->second.elements.resize(static_cast<size_t>(row_elements_));
    }
    return row->second;
  }

  const int64_t row_elements_;
  const std::shared_ptr<optim::MemoryBudget> budget_;
  mutable Mutex mutex_;
  int64_t version_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, Row> rows_ ABSL_GUARDED_BY(mutex_);
};

// Makes tables of the kind "counting", each for at least 100 rows.
class CountingTables final : public TableFactory {
 public:
  absl::StatusOr<double> BytesOf(const v1::Table& table, const v1::Job&) const override {
    if (table.kind() != "counting") {
      return absl::InvalidArgumentError(absl::StrCat("there are no tables of the kind '", table.kind(), "'"));
    }
    return 100.0 * static_cast<double>(CountingTable::RowBytes(table.row_elements()));
  }
  std::unique_ptr<Table> Make(const v1::Table& table, const v1::Job& job, int /*server*/,
                              std::shared_ptr<optim::MemoryBudget> budget) const override {
    return std::make_unique<CountingTable>(table.row_elements(), job.resumed().version(), std::move(budget));
  }
};

}  // namespace cairn::ps
