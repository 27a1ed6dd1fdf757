// The expected values were computed with Keras 3.15's own classes.
#include "worker/training/monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace cairn::worker {
namespace {

using nn::Better;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(BestValue, ImprovesOnTheFirstValueAndThenByMoreThanTheDelta) {
  BestValue lowest(Better::kLower, 0.5);
  EXPECT_TRUE(lowest.Improve(4));
  EXPECT_FALSE(lowest.Improve(3.5));
  EXPECT_EQ(lowest.best(), 4);
  EXPECT_TRUE(lowest.Improve(3.25));
  BestValue highest(Better::kHigher);
  EXPECT_TRUE(highest.Improve(1));
  EXPECT_FALSE(highest.Improve(1));
  EXPECT_TRUE(highest.Improve(1.5));
  EXPECT_EQ(highest.best(), 1.5);
}

struct StopRow {
  std::vector<double> values;  // [epoch]
  EarlyStopping::Options options;
  int64_t stops;  // after this epoch; -1: never
  int64_t best;   // the epoch to restore
};

TEST(EarlyStopping, StopsAndRestoresLikeKeras) {
  const StopRow rows[] = {
      {{3, 2, 1, 1, 1, 1}, {.patience = 2}, 4, 2},
      {{3, 2, 1, 2, 0, 1, 2, 3}, {.patience = 2}, 6, 4},
      {{1, 2, 3}, {.patience = 0}, 1, 0},
      {{1, 1, 1}, {.patience = 1}, 1, 0},
      {{1, 2}, {.patience = 5}, -1, 0},
      {{4, 3.75, 3.5, 3.25, 3}, {.min_delta = 0.5, .patience = 2}, 2, 0},
      {{4, 3.75, 3.25, 3, 2.5}, {.min_delta = 0.5, .patience = 2}, -1, 4},
      {{1, 2, 3, 2, 1}, {.better = Better::kHigher, .patience = 2}, 4, 2},
      {{5, 4, 3, 2.5, 2}, {.patience = 3, .baseline = 1}, -1, 4},
      {{5, 4, 0.5, 3, 2.5, 2}, {.patience = 3, .baseline = 1}, 5, 2},
      {{5, 0.75, 4, 3, 2}, {.patience = 2, .baseline = 1}, 3, 1},
      {{1, 5, 4, 3, 3, 3}, {.patience = 1, .start_from_epoch = 2}, 4, 3},
      {{kNan, 1, 1}, {.patience = 3}, -1, 0},
      {{1, kNan, kNan}, {.patience = 2}, 2, 0},
  };
  for (const StopRow& row : rows) {
    SCOPED_TRACE(testing::Message() << "row " << &row - rows);
    EarlyStopping stopping(row.options);
    int64_t stops = -1, best = -1;
    for (int64_t epoch = 0; stops < 0 && epoch < static_cast<int64_t>(row.values.size()); ++epoch) {
      const auto verdict = stopping.OnEpochEnd(epoch, row.values[static_cast<size_t>(epoch)]);
      if (verdict.best) best = epoch;
      if (verdict.stop) stops = epoch;
    }
    EXPECT_EQ(stops, row.stops);
    EXPECT_EQ(best, row.best);
  }
}

struct ReduceRow {
  std::vector<double> values;  // [epoch]
  ReduceOnPlateau::Options options;
  std::vector<float> rates;  // after each epoch, from 1
};

TEST(ReduceOnPlateau, ReducesLikeKeras) {
  const ReduceRow rows[] = {
      {{1, 1, 1, 1, 1}, {.factor = 0.5, .patience = 2}, {1, 1, 0.5f, 0.5f, 0.25f}},
      {{1, 1, 1}, {.factor = 0.5, .patience = 0}, {1, 0.5f, 0.25f}},
      {{4, 4, 3, 3, 3, 2}, {.factor = 0.5, .patience = 2}, {1, 1, 1, 1, 0.5f, 0.5f}},
      {{1, 1, 1, 1, 1, 1, 1, 1},
       {.factor = 0.5, .patience = 1, .cooldown = 2},
       {1, 0.5f, 0.5f, 0.25f, 0.25f, 0.125f, 0.125f, 0.0625f}},
      {{2, 2, 1.5, 2, 2, 2, 2, 1, 1},
       {.factor = 0.5, .patience = 1, .cooldown = 1},
       {1, 0.5f, 0.5f, 0.25f, 0.125f, 0.0625f, 0.03125f, 0.03125f, 0.015625f}},
      {{1, 1, 1, 1, 1}, {.factor = 0.5, .patience = 1, .min_rate = 0.375}, {1, 0.5f, 0.375f, 0.375f, 0.375f}},
      {{1, 0.75, 0.5, 0.25}, {.factor = 0.5, .min_delta = 0.5, .patience = 1}, {1, 0.5f, 0.25f, 0.25f}},
      {{1, 2, 3, 2, 2, 4},
       {.better = Better::kHigher, .factor = 0.25, .patience = 2},
       {1, 1, 1, 1, 0.25f, 0.25f}},
      {{1, 1, 1}, {.factor = 0, .patience = 1}, {1, 0, 0}},
      {{1, kNan, 0.5, kNan}, {.factor = 0.5, .patience = 1}, {1, 0.5f, 0.5f, 0.25f}},
  };
  for (const ReduceRow& row : rows) {
    SCOPED_TRACE(testing::Message() << "row " << &row - rows);
    ReduceOnPlateau plateau(row.options);
    float rate = 1;
    std::vector<float> rates;
    for (const double value : row.values) {
      rate = plateau.OnEpochEnd(value, rate).value_or(rate);
      rates.push_back(rate);
    }
    EXPECT_EQ(rates, row.rates);
  }
}

TEST(ReduceOnPlateau, RateStaysAtTheMinimum) {
  ReduceOnPlateau plateau({.factor = 0.5, .patience = 0, .min_rate = 0.1});
  EXPECT_EQ(plateau.OnEpochEnd(1, 0.1f), std::nullopt) << "the first value improves";
  EXPECT_EQ(plateau.OnEpochEnd(1, 0.1f), std::nullopt) << "0.1f is no more than 0.1 in float";
}

}  // namespace
}  // namespace cairn::worker
