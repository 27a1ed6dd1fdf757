// Shared by these tests: the rows of a small table, with their slots, under one optimizer.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "embedding/optimizers/row_optimizer.h"
#include "gtest/gtest.h"

namespace cairn::embedding {

// A row's number and its gradient.
using RowGradient = std::pair<size_t, std::vector<float>>;

class TrainedRows {
 public:
  TrainedRows(const optim::OptimizerConfig& config, const std::vector<std::vector<float>>& values,
              optim::Isa isa = optim::WidestIsa())
      : optimizer_(MakeRowOptimizer(config, static_cast<int>(values[0].size()), isa).value()), rows_(values) {
    const auto slots = static_cast<size_t>(optimizer_->slots());
    for (std::vector<float>& row : rows_) {
      row.resize(row.size() + slots);
      optimizer_->InitSlots(absl::MakeSpan(row).last(slots));
    }
  }

  // One update of the job; with no gradients, one in which no row takes part.
  void Step(const std::vector<RowGradient>& gradients) {
    std::vector<float*> rows;
    std::vector<float> all;
    for (const auto& [row, gradient] : gradients) {
      rows.push_back(rows_[row].data());
      all.insert(all.end(), gradient.begin(), gradient.end());
    }
    optimizer_->Apply(rows, all, {optimizer_->learning_rate(step_), step_ + 1});
    ++step_;
  }

  const RowOptimizer& optimizer() const { return *optimizer_; }
  int64_t step() const { return step_; }
  // Values and slots.
  const std::vector<float>& row(size_t index) const { return rows_[index]; }
  std::vector<float> values(size_t index) const {
    return {rows_[index].begin(), rows_[index].begin() + optimizer_->dim()};
  }
  std::vector<float> slots(size_t index) const {
    return {rows_[index].begin() + optimizer_->dim(), rows_[index].end()};
  }
  // The values as a worker reads them now.
  std::vector<float> ReadValues(size_t index) const {
    std::vector<float> values(static_cast<size_t>(optimizer_->dim()));
    const float* row = rows_[index].data();
    optimizer_->Read({&row, 1}, {optimizer_->learning_rate(step_), step_}, absl::MakeSpan(values));
    return values;
  }

 private:
  std::unique_ptr<const RowOptimizer> optimizer_;
  std::vector<std::vector<float>> rows_;
  int64_t step_ = 0;
};

// 1e-6 of values around 1, and relative to larger ones.
inline void ExpectNear(const std::vector<float>& actual, const std::vector<double>& expected,
                       double tolerance = 1e-6) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const double scale = std::max(1.0, std::abs(expected[i]));
    EXPECT_NEAR(actual[i], expected[i], tolerance * scale) << "element " << i;
  }
}

}  // namespace cairn::embedding
