// Pooled rows of embedding tables: forward against the definition in double, backward against central differences, and
// the same bits from every backend.
#include "kernels/bag_pool.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/core/random.h"
#include "kernels/cpu/device.h"
#include "tests/conformance/backends.h"
#include "tests/conformance/numerical.h"

namespace cairn::conformance {
namespace {

using kernels::BagPool;
using kernels::BagPoolParams;
using kernels::Combiner;
using kernels::DeviceMemory;
using kernels::TableBegin;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// A batch in host memory. The values of the rows have gaps between tables, where they are not aligned.
struct Batch {
  BagPoolParams params;
  std::vector<int64_t> unique_rows{};  // [table]
  std::vector<int32_t> splits = {0}, unique{};
  std::vector<float> weights{};  // empty: without weights
  std::vector<double> values{};

  std::vector<TableBegin> tables() const { return kernels::TableBegins(params.widths, unique_rows); }
  void AddLookup(int table, Combiner combiner, const std::vector<std::vector<int32_t>>& bags) {
    params.lookups.push_back(
        {.table = table, .combiner = combiner, .bags = static_cast<int64_t>(bags.size())});
    for (const std::vector<int32_t>& bag : bags) {
      unique.insert(unique.end(), bag.begin(), bag.end());
      splits.push_back(static_cast<int32_t>(unique.size()));
    }
  }
  void DrawValues(uint64_t seed) {
    Random random(seed, "rows");
    values.resize(static_cast<size_t>(tables().back().floats));
    for (double& value : values) value = random.NextUniform(-1, 1);
  }
  void DrawWeights() {
    Random random(1, "weights");
    for (size_t p = 0; p < unique.size(); ++p) weights.push_back(random.NextUniform(-1, 2));
  }
  int64_t pooled_floats() const { return kernels::PooledBegins(params).back(); }

  // Calls visit(lookup, bag, begin of its pooled row).
  template <typename Visit>
  void ForEachBag(const Visit& visit) const {
    const std::vector<int64_t> begins = kernels::PooledBegins(params);
    size_t bag = 0;
    for (size_t i = 0; i < params.lookups.size(); ++i) {
      const BagPoolParams::Lookup& lookup = params.lookups[i];
      const int64_t width = params.widths[static_cast<size_t>(lookup.table)];
      for (int64_t b = 0; b < lookup.bags; ++b, ++bag)
        visit(lookup, bag, static_cast<size_t>(begins[i] + b * width));
    }
  }

  // The pooled rows in double; what no lookup writes is 0.
  std::vector<double> Definition() const {
    std::vector<double> pooled(static_cast<size_t>(pooled_floats()));
    const std::vector<TableBegin> begins = tables();
    ForEachBag([&](const BagPoolParams::Lookup& lookup, size_t bag, size_t to) {
      const auto width = static_cast<size_t>(params.widths[static_cast<size_t>(lookup.table)]);
      const auto begin = static_cast<size_t>(splits[bag]), end = static_cast<size_t>(splits[bag + 1]);
      double sum = 0, squares = 0;
      for (size_t p = begin; p < end; ++p) {
        const double weight = weights.empty() ? 1 : static_cast<double>(weights[p]);
        sum += weight;
        squares += weight * weight;
        const size_t row = static_cast<size_t>(begins[static_cast<size_t>(lookup.table)].floats) +
                           static_cast<size_t>(unique[p]) * width;
        for (size_t j = 0; j < width; ++j) {
          double& y = pooled[to + j];
          if (lookup.combiner != Combiner::kMax) {
            y += (lookup.combiner == Combiner::kNone ? 1 : weight) * values[row + j];
          } else if (p == begin || values[row + j] > y) {
            y = values[row + j];
          }
        }
      }
      const double divisor = lookup.combiner == Combiner::kMean    ? sum
                             : lookup.combiner == Combiner::kSqrtn ? std::sqrt(squares)
                                                                   : 1;
      for (size_t j = 0; j < width; ++j) pooled[to + j] = divisor == 0 ? 0 : pooled[to + j] / divisor;
    });
    return pooled;
  }
};

// The op for a batch on a device, with the batch in its memory.
class OnDevice {
 public:
  OnDevice(kernels::Device& device, const Batch& batch) : device_(device), batch_(batch) {
    auto made = device.ops().MakeBagPool(batch.params);
    EXPECT_TRUE(made.ok()) << made.status();
    pool_ = *std::move(made);
    const std::vector<TableBegin> tables = batch.tables();
    arguments_ = {.rows = tables.back().row,
                  .tables = Put(tables),
                  .values = Put(std::vector<float>(batch.values.begin(), batch.values.end())),
                  .splits = Put(batch.splits),
                  .unique = Put(batch.unique),
                  .weights = batch.weights.empty() ? nullptr : Put(batch.weights)};
    PutUses(tables);
  }

  // The pooled rows; what no lookup writes is 0.
  std::vector<float> Forward() {
    auto pooled = device_.Allocate(batch_.pooled_floats(), "test").value();
    Poison(pooled->data(), batch_.pooled_floats());
    EXPECT_TRUE(pool_->Forward(arguments_, pooled->data()).ok());
    const std::vector<float> all = Get(pooled->data(), batch_.pooled_floats());
    std::vector<float> written(all.size());
    batch_.ForEachBag([&](const BagPoolParams::Lookup& lookup, size_t, size_t begin) {
      const auto width = static_cast<size_t>(batch_.params.widths[static_cast<size_t>(lookup.table)]);
      std::copy_n(&all[begin], width, &written[begin]);
    });
    return written;
  }

  // The gradients of the unique rows, without the gaps, for those of the pooled rows of the last Forward().
  std::vector<float> Backward(const std::vector<double>& dpooled) {
    const std::vector<TableBegin> tables = batch_.tables();
    const float* const from = Put(std::vector<float>(dpooled.begin(), dpooled.end()));
    auto to = device_.Allocate(tables.back().floats, "test").value();
    Poison(to->data(), tables.back().floats);
    EXPECT_TRUE(pool_->Backward(arguments_, uses_, from, to->data()).ok());
    std::vector<float> gradients = Get(to->data(), tables.back().floats);
    for (size_t table = 0; table < batch_.unique_rows.size(); ++table) {
      const int64_t end = tables[table].floats + batch_.unique_rows[table] * batch_.params.widths[table];
      std::fill(gradients.begin() + end, gradients.begin() + tables[table + 1].floats, 0.0f);
    }
    return gradients;
  }

 private:
  void PutUses(const std::vector<TableBegin>& tables) {
    std::multimap<int64_t, std::pair<int32_t, float>> uses;  // [unique row] bags in order, and weights
    batch_.ForEachBag([&](const BagPoolParams::Lookup& lookup, size_t bag, size_t) {
      for (auto p = static_cast<size_t>(batch_.splits[bag]); p < static_cast<size_t>(batch_.splits[bag + 1]);
           ++p) {
        uses.emplace(tables[static_cast<size_t>(lookup.table)].row + batch_.unique[p],
                     std::pair(static_cast<int32_t>(bag), batch_.weights.empty() ? 1 : batch_.weights[p]));
      }
    });
    std::vector<int32_t> splits = {0}, bags;
    std::vector<float> weights;
    for (int64_t row = 0; row < tables.back().row; ++row) {
      splits.push_back(splits.back() + static_cast<int32_t>(uses.count(row)));
    }
    for (const auto& [row, use] : uses) {
      bags.push_back(use.first);
      weights.push_back(use.second);
    }
    uses_ = {
        .splits = Put(splits), .bags = Put(bags), .weights = batch_.weights.empty() ? nullptr : Put(weights)};
  }

  template <typename T>
  const T* Put(const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    memory_.push_back(device_.Allocate(bytes / 4 + 1, "test").value());
    EXPECT_TRUE(device_.CopyToDevice(values.data(), memory_.back()->data(), bytes).ok());
    EXPECT_TRUE(device_.Synchronize().ok());
    return reinterpret_cast<const T*>(memory_.back()->data());
  }
  void Poison(float* memory, int64_t floats) {
    const std::vector<float> poison(static_cast<size_t>(floats), kNaN);
    EXPECT_TRUE(device_.CopyToDevice(poison.data(), memory, floats * 4).ok());
    EXPECT_TRUE(device_.Synchronize().ok());
  }
  std::vector<float> Get(const float* memory, int64_t floats) {
    std::vector<float> values(static_cast<size_t>(floats));
    EXPECT_TRUE(device_.CopyToHost(memory, values.data(), floats * 4).ok());
    EXPECT_TRUE(device_.Synchronize().ok());
    return values;
  }

  kernels::Device& device_;
  const Batch& batch_;
  std::unique_ptr<BagPool> pool_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
  kernels::BagBatch arguments_;
  kernels::BagUses uses_;
};

class BagPoolConformance : public ConformanceTest {
 protected:
  // Bags of one lookup without weights, of a table with these rows of one float.
  std::vector<float> PoolColumn(Combiner combiner, const std::vector<double>& column,
                                const std::vector<std::vector<int32_t>>& bags) {
    Batch batch = OfColumn(column);
    batch.AddLookup(0, combiner, bags);
    std::vector<float> pooled = OnDevice(device(), batch).Forward();
    pooled.resize(bags.size());
    return pooled;
  }
  static Batch OfColumn(const std::vector<double>& column) {
    Batch batch{.params = {.widths = {1}}, .unique_rows = {static_cast<int64_t>(column.size())}};
    batch.values = column;
    batch.values.resize(static_cast<size_t>(batch.tables().back().floats));
    return batch;
  }

  static std::vector<double> RandomGradients(const Batch& batch) {
    return RandomTensor({batch.pooled_floats()}, 5).values;
  }
  // Forward and backward against the definition.
  void Check(Batch batch) {
    for (double& value : batch.values) value = static_cast<float>(value);
    OnDevice op(device(), batch);
    ExpectNear(op.Forward(), batch.Definition(), 64);
    const std::vector<double> dpooled =
        Rounded(RandomTensor({batch.pooled_floats()}, 5), DType::kFloat32).values;
    const std::vector<float> gradients = op.Backward(dpooled);
    ExpectGradient(gradients, batch.values, [&] { return Dot(batch.Definition(), dpooled); });
  }
};

// Bags with several rows, one row, no row, and a row twice; a row that no bag has.
const std::vector<std::vector<int32_t>> kBags = {{0, 1, 3}, {}, {2}, {4, 0, 4, 1, 2}, {3, 3}, {}};
constexpr Combiner kCombiners[] = {Combiner::kSum, Combiner::kMean, Combiner::kSqrtn, Combiner::kMax};

TEST_P(BagPoolConformance, EveryCombinerInEveryWidth) {
  for (const Combiner combiner : kCombiners) {
    for (const int64_t width : {1, 3, 4, 16, 21, 40, 130}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(combiner) << ", width " << width);
      Batch batch{.params = {.widths = {width}}, .unique_rows = {6}};
      batch.AddLookup(0, combiner, kBags);
      batch.DrawValues(static_cast<uint64_t>(width));
      Check(batch);
      if (combiner == Combiner::kMax) continue;
      batch.DrawWeights();
      Check(batch);
    }
  }
}

TEST_P(BagPoolConformance, SingleRowsAreCopied) {
  for (const int64_t width : {1, 3, 16, 40}) {
    Batch batch{.params = {.widths = {width}}, .unique_rows = {3}};
    batch.AddLookup(0, Combiner::kNone, {{2}, {0}, {2}, {2}, {1}});
    batch.DrawValues(3);
    Check(batch);
  }
  const std::vector<float> pooled = PoolColumn(Combiner::kNone, {-0.0, 2}, {{1}, {0}});
  EXPECT_EQ(pooled[0], 2);
  EXPECT_TRUE(std::signbit(pooled[1])) << "the bits of the row";
}

TEST_P(BagPoolConformance, LookupsShareTablesOfDifferentWidths) {
  Batch batch{.params = {.widths = {3, 16, 1}}, .unique_rows = {5, 5, 7}};
  batch.AddLookup(1, Combiner::kMean, kBags);
  batch.AddLookup(0, Combiner::kMax, kBags);
  batch.AddLookup(2, Combiner::kNone, {{6}, {0}, {5}, {6}});
  batch.AddLookup(1, Combiner::kSum, {{4}, {4, 4}, {}});
  batch.AddLookup(0, Combiner::kSqrtn, {{1, 2}});
  batch.DrawValues(7);
  Check(batch);
}

TEST_P(BagPoolConformance, ARowMayHaveManyUsesAndABagManyRows) {
  Batch batch{.params = {.widths = {5, 40}}, .unique_rows = {300, 2}};
  std::vector<std::vector<int32_t>> bags(3), of_two;
  for (int32_t row = 0; row < 300; ++row) bags[0].push_back(row);
  for (int i = 0; i < 1000; ++i) of_two.push_back({i % 7 == 0 ? 1 : 0});
  bags[2] = {299, 0};
  batch.AddLookup(0, Combiner::kSum, bags);
  batch.AddLookup(1, Combiner::kNone, of_two);
  batch.AddLookup(1, Combiner::kMean, {std::vector<int32_t>(500, 1), {}});
  batch.DrawValues(9);
  OnDevice op(device(), batch);
  ExpectNear(op.Forward(), batch.Definition(), 500);
  const std::vector<double> dpooled = RandomGradients(batch);
  std::vector<double> expected(batch.values.size());
  const std::vector<TableBegin> tables = batch.tables();
  batch.ForEachBag([&](const BagPoolParams::Lookup& lookup, size_t bag, size_t from) {
    const auto table = static_cast<size_t>(lookup.table),
               width = static_cast<size_t>(batch.params.widths[table]);
    const int32_t begin = batch.splits[bag], end = batch.splits[bag + 1];
    const double scale = lookup.combiner == Combiner::kMean ? 1.0 / (end - begin) : 1.0;
    for (int32_t p = begin; p < end; ++p) {
      const size_t to = static_cast<size_t>(tables[table].floats) +
                        static_cast<size_t>(batch.unique[static_cast<size_t>(p)]) * width;
      for (size_t j = 0; j < width; ++j) expected[to + j] += scale * dpooled[from + j];
    }
  });
  ExpectNear(op.Backward(dpooled), expected, 1500);
}

TEST_P(BagPoolConformance, TheBitsAreThoseOfTheCpu) {
  const auto cpu = kernels::CreateCpuDevice(0, 1).value();
  Random random(4, "bags");
  Batch batch{.params = {.widths = {16, 7}}, .unique_rows = {40, 40}};
  for (const Combiner combiner : kCombiners) {
    for (const int table : {0, 1}) {
      std::vector<std::vector<int32_t>> bags(200);
      for (std::vector<int32_t>& bag : bags) {
        for (uint64_t rows = random.NextBelow(9); rows > 0; --rows) {
          bag.push_back(static_cast<int32_t>(random.NextBelow(40) * random.NextBelow(40) / 40));
        }
      }
      batch.AddLookup(table, combiner, bags);
    }
  }
  batch.DrawValues(11);
  batch.DrawWeights();
  OnDevice here(device(), batch), there(*cpu, batch);
  EXPECT_EQ(here.Forward(), there.Forward());
  const std::vector<double> dpooled = RandomGradients(batch);
  const std::vector<float> gradients = here.Backward(dpooled);
  EXPECT_EQ(gradients, there.Backward(dpooled));
  EXPECT_EQ(gradients, here.Backward(dpooled)) << "on every run";
}

TEST_P(BagPoolConformance, WeightedBagsAreThoseOfTensorFlow) {
  Batch batch{.params = {.widths = {2}}, .unique_rows = {3}};
  const std::vector<std::vector<int32_t>> bags = {{0, 1}, {}, {2, 0, 0}, {}};
  for (const Combiner combiner : {Combiner::kSum, Combiner::kMean, Combiner::kSqrtn}) {
    batch.AddLookup(0, combiner, bags);
    for (const float weight : {1.0f, 3.0f, 2.0f, 0.5f, -1.0f}) batch.weights.push_back(weight);
  }
  batch.values = {1, 2, 3, 4, 5, 6, 0, 0};
  std::vector<float> pooled = OnDevice(device(), batch).Forward();
  // The numbers are those of TensorFlow 2.21's embedding_lookup_sparse.
  const std::vector<float> expected[] = {{10, 14, 0, 0, 9.5f, 11, 0, 0},
                                         {2.5f, 3.5f, 0, 0, 6.3333335f, 7.3333335f, 0, 0},
                                         {3.1622777f, 4.4271889f, 0, 0, 4.1461396f, 4.8007936f, 0, 0}};
  for (size_t i = 0; i < 3; ++i) {
    for (size_t k = 0; k < 8; ++k) EXPECT_NEAR(pooled[64 * i + k], expected[i][k], 1e-6f) << i << " " << k;
  }
}

TEST_P(BagPoolConformance, BagsThatAreEmptyOrWhoseWeightsCancelGive0) {
  for (const Combiner combiner : kCombiners) {
    EXPECT_THAT(PoolColumn(combiner, {3, 4}, {{}, {}}), ElementsAre(0, 0));
    Batch none{.params = {.widths = {2}}, .unique_rows = {0}};
    none.AddLookup(0, combiner, {{}, {}, {}});
    OnDevice op(device(), none);
    EXPECT_THAT(op.Forward(), testing::Each(0));
    EXPECT_THAT(op.Backward(std::vector<double>(static_cast<size_t>(none.pooled_floats()), 1)),
                testing::IsEmpty());
  }
  Batch batch = OfColumn({5, 7});
  batch.AddLookup(0, Combiner::kMean, {{0, 1}});
  batch.AddLookup(0, Combiner::kSqrtn, {{0, 1}});
  batch.weights = {1, -1, 0, 0};
  OnDevice op(device(), batch);
  EXPECT_THAT(op.Forward(), testing::Each(0));
  EXPECT_THAT(op.Backward(std::vector<double>(128, 1)), testing::Each(0));
}

TEST_P(BagPoolConformance, TheGradientOfAMaximumGoesToTheFirstLargest) {
  Batch batch{.params = {.widths = {2}}, .unique_rows = {3}};
  batch.AddLookup(0, Combiner::kMax, {{1, 0, 2, 1}});
  batch.values = {5, 1, 5, 0, 3, 1, 0, 0};
  OnDevice op(device(), batch);
  op.Forward();
  std::vector<double> dpooled(64);
  dpooled[0] = 7;
  dpooled[1] = 9;
  EXPECT_THAT(op.Backward(dpooled), ElementsAre(0, 9, 7, 0, 0, 0, 0, 0));
}

TEST_P(BagPoolConformance, NaNAndInfinityPassThrough) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<double> column = {1, kNaN, -kInfinity, 2, kNaN};
  for (const Combiner combiner : kCombiners) {
    const std::vector<float> pooled = PoolColumn(combiner, column, {{0, 1, 3}, {3, 2}, {0, 3}});
    EXPECT_TRUE(std::isnan(pooled[0])) << static_cast<int>(combiner);
    EXPECT_EQ(pooled[1], combiner == Combiner::kMax ? 2 : -kInfinity) << static_cast<int>(combiner);
    EXPECT_TRUE(std::isfinite(pooled[2])) << static_cast<int>(combiner);
  }
  Batch batch = OfColumn(column);
  batch.AddLookup(0, Combiner::kMax, {{0, 1, 4, 3}});
  OnDevice op(device(), batch);
  op.Forward();
  std::vector<double> dpooled(64, 1);
  EXPECT_THAT(op.Backward(dpooled), ElementsAre(0, 0, 0, 0, 1, 0, 0, 0)) << "the last NaN";
}

TEST_P(BagPoolConformance, InvalidParametersAreRefused) {
  const auto message = [&](const BagPoolParams& params) {
    return std::string(device().ops().MakeBagPool(params).status().message());
  };
  EXPECT_THAT(message({.widths = {0}}), HasSubstr("cannot pool rows of 0 floats"));
  EXPECT_THAT(message({.widths = {4}, .lookups = {{.table = 1, .bags = 2}}}),
              HasSubstr("cannot pool 2 bags of table 1 among 1 tables"));
  EXPECT_THAT(message({.widths = {4}, .lookups = {{.table = 0, .bags = 0}}}),
              HasSubstr("cannot pool 0 bags"));
  EXPECT_THAT(message({.widths = {1024}, .lookups = {{.table = 0, .bags = 1 << 21}}}),
              HasSubstr("cannot pool more than 1073741823 floats at once"));
}

// Pooled rows are float32 in every precision.
INSTANTIATE_CONFORMANCE_OF_ALL_TYPES(BagPoolConformance);

TEST(ParseCombiner, KnowsTheFourNames) {
  EXPECT_EQ(kernels::ParseCombiner("sum").value(), Combiner::kSum);
  EXPECT_EQ(kernels::ParseCombiner("mean").value(), Combiner::kMean);
  EXPECT_EQ(kernels::ParseCombiner("sqrtn").value(), Combiner::kSqrtn);
  EXPECT_EQ(kernels::ParseCombiner("max").value(), Combiner::kMax);
  EXPECT_EQ(kernels::ParseCombiner("avg").status().message(),
            "combiner 'avg' is not one of sum, mean, sqrtn, max");
}

}  // namespace
}  // namespace cairn::conformance
