// The rows of embedding tables in memory, as a worker exchanges them with servers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/rows/row_exchange.h"

namespace cairn::worker {

// Rows in memory. A row begins at its id in all columns.
class FakeRows final : public client::RowExchange {
 public:
  absl::Status ReadRows(absl::Span<const client::RowValues> tables) override {
    for (const client::RowValues& table : tables) {
      for (size_t i = 0; i < table.keys.size(); ++i) {
        const size_t width = table.rows.size() / table.keys.size();
        const std::vector<float>& row = Row(table.table, table.keys[i], width);
        std::copy(row.begin(), row.end(), table.rows.begin() + static_cast<std::ptrdiff_t>(i * width));
      }
    }
    ++reads;
    return absl::OkStatus();
  }
  absl::Status BeginRead(absl::Span<const client::RowValues> tables) override {
    ++begun;
    return WantRows(tables);
  }
  absl::Status FinishRead() override {
    --begun;
    return absl::OkStatus();
  }
  void DropReads() override { begun = 0; }
  absl::Status PushRows(absl::Span<const client::RowGradients> tables) override {
    ++pushes;
    for (const client::RowGradients& table : tables) {
      for (size_t i = 0; i < table.keys.size(); ++i) {
        const size_t width = table.gradients.size() / table.keys.size();
        const auto begin = table.gradients.begin() + static_cast<std::ptrdiff_t>(i * width);
        EXPECT_TRUE(
            pushed.emplace(std::pair(table.table, table.keys[i]), std::vector(begin, begin + width)).second);
      }
    }
    return absl::OkStatus();
  }
  absl::Status WantRows(absl::Span<const client::RowValues> tables) override {
    --reads;
    return ReadRows(tables);
  }

  std::vector<float>& Row(int table, int64_t key, size_t width) {
    const auto [row, is_new] = rows_.try_emplace({table, key});
    if (is_new) row->second.assign(width, static_cast<float>(key));
    return row->second;
  }
  std::map<std::pair<int, int64_t>, std::vector<float>> pushed;
  int reads = 0, pushes = 0;
  int begun = 0;  // reads that have begun and not been finished

 private:
  std::map<std::pair<int, int64_t>, std::vector<float>> rows_;
};

}  // namespace cairn::worker
