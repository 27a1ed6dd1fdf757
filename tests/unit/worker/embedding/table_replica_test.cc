// A replica whose tables are elsewhere, against a replica of the whole model: the same losses, gradients and rows.
#include "worker/embedding/table_replica.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/device.h"
#include "tests/unit/nn/host_tables.h"
#include "tests/unit/worker/embedding/fake_rows.h"
#include "worker/embedding/table_plan.h"

namespace cairn::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Ids [3] of two layers that share no table, next to two numbers.
constexpr char kTableModel[] = R"({"class_name": "Functional", "config": {"name": "m", "layers": [
  {"class_name": "InputLayer", "name": "ids", "config": {"name": "ids", "batch_input_shape": [null, 3], "dtype": "int64"},
   "inbound_nodes": []},
  {"class_name": "InputLayer", "name": "x", "config": {"name": "x", "batch_input_shape": [null, 2]}, "inbound_nodes": []},
  {"class_name": "Embedding", "name": "e", "config": {"name": "e", "input_dim": 10, "output_dim": 2,
   "embeddings_initializer": "zeros"}, "inbound_nodes": [[["ids", 0, 0, {}]]]},
  {"class_name": "Flatten", "name": "f", "config": {"name": "f"}, "inbound_nodes": [[["e", 0, 0, {}]]]},
  {"class_name": "Concatenate", "name": "c", "config": {"name": "c"}, "inbound_nodes": [[["f", 0, 0, {}], ["x", 0, 0, {}]]]},
  {"class_name": "Dense", "name": "d", "config": {"name": "d", "units": 1}, "inbound_nodes": [[["c", 0, 0, {}]]]}],
  "input_layers": [["ids", 0, 0], ["x", 0, 0]], "output_layers": [["d", 0, 0]]}})";

class TableReplicaTest : public testing::Test {
 protected:
  TableReplicaTest()
      : described_(*nn::Model::FromJson(kTableModel, "m.json")), device_(*kernels::CreateCpuDevice(0, 1)) {
    options_.embedding.tables = "all";
    options_.optimizer.name = "SGD";
    plan_.emplace(**PlanTables(options_, described_));
    without_tables_ = *nn::Replica::Create(plan_->model.model, kLoss, *device_);
    replica_.emplace(*plan_, *without_tables_, rows_, TableReplica::Options{});
  }
  nn::BatchView Batch() const {
    nn::BatchView batch = {.examples = 2, .targets = targets_};
    batch.inputs.push_back({.dtype = DType::kInt64, .shape = {2, 3}, .data = ids_.data()});
    batch.inputs.push_back(TensorView::OfFloats({2, 2}, numbers_));
    return batch;
  }

  static constexpr nn::LossSpec kLoss = {.kind = kernels::LossKind::kMeanSquaredError};
  const std::vector<int64_t> ids_ = {7, 1, 7, 1, 1, 0};
  const std::vector<float> numbers_ = {0.5, -1, 2, 0.25}, targets_ = {1, -1};
  TrainOptions options_;
  const nn::Model described_;
  const std::unique_ptr<kernels::Device> device_;
  std::optional<TablePlan> plan_;
  std::unique_ptr<nn::Replica> without_tables_;
  FakeRows rows_;
  std::optional<TableReplica> replica_;
};

TEST_F(TableReplicaTest, LossAndGradientsAreThoseOfTheWholeModel) {
  const auto whole = *nn::Replica::Create(described_, kLoss, *device_);
  const std::vector<float> dense = {0.1F, -0.2F, 0.3F, 0.4F, -0.5F, 0.6F, 0.7F, -0.8F, 0.9F};
  std::vector<float> parameters(static_cast<size_t>(described_.num_parameters()));
  for (size_t row = 0; row < 10; ++row)
    parameters[2 * row] = parameters[2 * row + 1] = static_cast<float>(row);
  std::copy(dense.begin(), dense.end(), parameters.begin() + 20);
  std::vector<float> expected(parameters.size()), gradients(dense.size());
  const auto ignore = [](int) {};
  const auto of_whole = whole->ForwardBackward(parameters, Batch(), absl::MakeSpan(expected), ignore);
  ASSERT_EQ(of_whole.status(), absl::OkStatus());
  const double loss = of_whole->sums.loss;

  std::vector<int> announced;
  const auto result = replica_->ForwardBackward(dense, Batch(), absl::MakeSpan(gradients),
                                                [&](int variable) { announced.push_back(variable); });
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_EQ(result->sums.loss, loss);
  EXPECT_THAT(announced, ElementsAre(0, 1)) << "kernel and bias, and no gradient of an input";
  EXPECT_EQ(gradients, std::vector<float>(expected.begin() + 20, expected.end()));
  EXPECT_EQ(rows_.pushed.size(), 3u) << "a row that is looked up several times is pushed once";
  for (const auto& [row, gradient] : rows_.pushed) {
    EXPECT_EQ(row.first, 1);
    const auto at = static_cast<size_t>(2 * row.second);
    EXPECT_THAT(gradient, testing::Pointwise(testing::FloatEq(), {expected[at], expected[at + 1]}))
        << row.second;
  }
}

TEST_F(TableReplicaTest, AnEvaluationReadsRowsAndPushesNone) {
  const std::vector<float> dense(9, 0.5F);
  const auto result = replica_->Evaluate(dense, Batch());
  ASSERT_EQ(result.status(), absl::OkStatus());
  EXPECT_THAT(result->outputs, ElementsAre(0.5F * (7 + 7 + 1 + 1 + 7 + 7 + 0.5F - 1) + 0.5F,
                                           0.5F * (1 + 1 + 1 + 1 + 0 + 0 + 2 + 0.25F) + 0.5F));
  EXPECT_EQ(rows_.reads, 1);
  EXPECT_TRUE(rows_.pushed.empty());
}

TEST_F(TableReplicaTest, RowsOfTheNextBatchComeWithTheStepUnlessAnotherBatchFollows) {
  const std::vector<float> dense(9, 0.5F);
  std::vector<float> gradients(dense.size());
  const auto step = [&](const nn::BatchView& batch) {
    const auto result = replica_->ForwardBackward(dense, batch, absl::MakeSpan(gradients), [](int) {});
    EXPECT_EQ(result.status(), absl::OkStatus());
    rows_.pushed.clear();
    return result.ok() ? result->sums.loss : 0;
  };
  const double loss = step(Batch());
  EXPECT_EQ(rows_.reads, 1);
  rows_.Row(1, 7, 2) = {1, 2};
  ASSERT_EQ(replica_->Fetch(Batch()), absl::OkStatus());
  rows_.Row(1, 7, 2) = {7, 7};
  EXPECT_NE(step(Batch()), loss) << "with the rows as they were announced";
  EXPECT_EQ(rows_.reads, 1);
  ASSERT_EQ(replica_->Fetch(Batch()), absl::OkStatus());
  replica_->Forget();
  EXPECT_EQ(step(Batch()), loss);
  EXPECT_EQ(rows_.reads, 2) << "the worker has joined again";
  ASSERT_EQ(replica_->Fetch(Batch()), absl::OkStatus());
  nn::BatchView other = Batch();
  other.seed = 5;
  EXPECT_EQ(step(other), loss);
  EXPECT_EQ(rows_.reads, 3);
}

TEST_F(TableReplicaTest, RowsThatAreReadAheadAreThoseOfTheirBatch) {
  const std::vector<float> dense(9, 0.5F);
  std::vector<float> gradients(dense.size());
  replica_.emplace(*plan_, *without_tables_, rows_, TableReplica::Options{.staleness = 2});
  EXPECT_EQ(replica_->reads_ahead(), 2);
  const auto step = [&](const nn::BatchView& batch) {
    const auto result = replica_->ForwardBackward(dense, batch, absl::MakeSpan(gradients), [](int) {});
    EXPECT_EQ(result.status(), absl::OkStatus());
    rows_.pushed.clear();
    return result.ok() ? result->sums.loss : 0;
  };
  std::vector<nn::BatchView> batches(4, Batch());
  for (size_t i = 0; i < batches.size(); ++i) batches[i].seed = i;
  ASSERT_EQ(replica_->Read(batches[1]), absl::OkStatus());
  ASSERT_EQ(replica_->Read(batches[2]), absl::OkStatus());
  EXPECT_EQ(rows_.begun, 2);
  rows_.Row(1, 7, 2) = {1, 2};
  const double after = step(batches[0]);
  EXPECT_EQ(rows_.reads, 1) << "nothing has been read for the first batch";
  const double before = step(batches[1]);
  EXPECT_NE(before, after);
  EXPECT_EQ(step(batches[2]), before) << "both were read before the update";
  EXPECT_EQ(rows_.reads, 1);
  EXPECT_EQ(rows_.begun, 0);

  ASSERT_EQ(replica_->Read(batches[3]), absl::OkStatus());
  replica_->Forget();
  EXPECT_EQ(rows_.begun, 0);
  rows_.Row(1, 7, 2) = {7, 7};
  EXPECT_EQ(step(batches[3]), before) << "its rows are read again";
  ASSERT_EQ(replica_->Read(batches[1]), absl::OkStatus());
  replica_.reset();
  EXPECT_EQ(rows_.begun, 0);
}

TEST(TablesOfOneInput, HaveTheirOwnRowsAndGradients) {
  const auto described =
      nn::Model::FromJson(R"({"class_name": "Functional", "config": {"name": "m", "layers": [
    {"class_name": "InputLayer", "name": "ids", "config": {"name": "ids", "batch_shape": [null, 3], "dtype": "int64"}},
    {"class_name": "Embedding", "name": "e", "config": {"name": "e", "input_dim": 10, "output_dim": 9},
     "inbound_nodes": [[["ids", 0, 0]]]},
    {"class_name": "Embedding", "name": "w", "config": {"name": "w", "input_dim": 10, "output_dim": 1},
     "inbound_nodes": [[["ids", 0, 0]]]},
    {"class_name": "Concatenate", "name": "c", "config": {"name": "c"}, "inbound_nodes": [[["e", 0, 0], ["w", 0, 0]]]},
    {"class_name": "Flatten", "name": "f", "config": {"name": "f"}, "inbound_nodes": [[["c", 0, 0]]]},
    {"class_name": "Dense", "name": "d", "config": {"name": "d", "units": 1, "use_bias": false},
     "inbound_nodes": [[["f", 0, 0]]]}],
    "input_layers": [["ids", 0, 0]], "output_layers": [["d", 0, 0]]}})",
                          "m.json");
  ASSERT_EQ(described.status(), absl::OkStatus());
  const auto device = *kernels::CreateCpuDevice(0, 1);
  TrainOptions options;
  options.embedding.tables = "all";
  options.optimizer.name = "SGD";
  const TablePlan plan = **PlanTables(options, *described);
  const auto without_tables = *nn::Replica::Create(
      plan.model.model, nn::LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device);
  FakeRows rows;
  TableReplica replica(plan, *without_tables, rows, {});
  for (const std::vector<int64_t>& ids : {std::vector<int64_t>{7, 1, 7}, {3, 3, 2}}) {
    rows.pushed.clear();
    const std::vector<float> targets = {0}, dense(30, 1);
    std::vector<float> gradients(30);
    nn::BatchView batch = {.examples = 1, .targets = targets};
    batch.inputs.push_back({.dtype = DType::kInt64, .shape = {1, 3}, .data = ids.data()});
    const auto result = replica.ForwardBackward(dense, batch, absl::MakeSpan(gradients), [](int) {});
    ASSERT_EQ(result.status(), absl::OkStatus());
    const auto sum = static_cast<float>(10 * (ids[0] + ids[1] + ids[2]));  // a row begins at its id
    EXPECT_EQ(result->sums.loss, sum * sum);
    for (const int64_t id : {ids[1], ids[0]}) {
      const float times = static_cast<float>(std::count(ids.begin(), ids.end(), id));
      EXPECT_EQ((rows.pushed[{1, id}]), std::vector<float>(9, times * 2 * sum));
      EXPECT_EQ((rows.pushed[{2, id}]), std::vector<float>(1, times * 2 * sum));
    }
    EXPECT_EQ(rows.pushed.size(), 4u);
  }
}

TEST_F(TableReplicaTest, AnEmptyBatchPushesNoRows) {
  const std::vector<float> dense(9, 0.5F);
  std::vector<float> gradients(dense.size(), 1);
  nn::BatchView batch = Batch();
  batch.examples = 0;
  batch.targets = {};
  for (TensorView& input : batch.inputs) input = input.Rows(0, 0);
  ASSERT_EQ(replica_->ForwardBackward(dense, batch, absl::MakeSpan(gradients), [](int) {}).status(),
            absl::OkStatus());
  EXPECT_EQ(rows_.pushes, 0);
  EXPECT_EQ(gradients, std::vector<float>(9));
}

// Tables that are looked up once, twice, and by ragged ids, against the tables of a test in host memory.
TEST(RecommenderReplica, GradientsOfSharedAndRaggedLookupsAreThoseOfTablesInMemory) {
  const nn::LossSpec loss = {.kind = kernels::LossKind::kSparseCategoricalCrossentropy, .from_logits = true};
  const nn::Model described = *nn::Model::FromJson(nn::Recommender(), "m.json");
  TrainOptions options;
  options.embedding.tables = "all";
  options.optimizer.name = "SGD";
  const TablePlan plan = **PlanTables(options, described);
  ASSERT_EQ(plan.tables.size(), 3u);
  EXPECT_THAT(plan.table_of_lookup, testing::UnorderedElementsAre(0, 1, 1, 2));
  const auto device = *kernels::CreateCpuDevice(0, 1);
  const auto without_tables = *nn::Replica::Create(plan.model.model, loss, *device);
  nn::HostTables in_memory(described, plan.model);
  FakeRows rows;
  for (size_t table = 0; table < plan.tables.size(); ++table) {
    const std::string layer = plan.tables[table].name().substr(0, plan.tables[table].name().find('/'));
    const std::vector<float>& values = in_memory.tables().at(layer);
    for (size_t key = 0; key < values.size() / 3; ++key) {
      rows.Row(static_cast<int>(table) + 1, static_cast<int64_t>(key), 3)
          .assign(values.begin() + static_cast<std::ptrdiff_t>(3 * key),
                  values.begin() + static_cast<std::ptrdiff_t>(3 * key + 3));
    }
  }
  TableReplica replica(plan, *without_tables, rows, {});
  const nn::IdExamples examples(described, 6);
  for (const nn::BatchView& batch : {examples.Batch(), examples.Batch().Part(2, 3)}) {
    const nn::HostTables::Step expected = in_memory.Run(*without_tables, batch);
    std::vector<float> gradients(in_memory.parameters().size());
    const double expected_loss = expected.result.sums.loss;
    const auto result =
        replica.ForwardBackward(in_memory.parameters(), batch, absl::MakeSpan(gradients), [](int) {});
    ASSERT_EQ(result.status(), absl::OkStatus());
    EXPECT_EQ(result->sums.loss, expected_loss);
    for (size_t table = 0; table < plan.tables.size(); ++table) {
      const std::vector<float>& of_table = expected.gradients.at(plan.tables[table].name());
      for (size_t key = 0; key < of_table.size() / 3; ++key) {
        const auto pushed = rows.pushed.find({static_cast<int>(table) + 1, static_cast<int64_t>(key)});
        for (size_t k = 0; k < 3; ++k) {
          const float gradient = pushed == rows.pushed.end() ? 0 : pushed->second[k];
          EXPECT_NEAR(gradient, of_table[3 * key + k], 1e-6) << plan.tables[table].name() << " " << key;
        }
      }
    }
    rows.pushed.clear();
  }
}

// Bags of ids with weights, against the numbers of TensorFlow 2.21's embedding_lookup_sparse.
class WeightedBags : public testing::Test {
 protected:
  absl::StatusOr<nn::BatchResult> Evaluate(const std::string& combiner, const nn::BatchView& batch) {
    const std::string json = absl::StrCat(R"({"class_name": "Functional", "config": {"name": "m", "layers": [
      {"class_name": "InputLayer", "name": "ids", "inbound_nodes": [],
       "config": {"name": "ids", "batch_shape": [null, null], "dtype": "int64", "ragged": true}},
      {"class_name": "InputLayer", "name": "w", "inbound_nodes": [],
       "config": {"name": "w", "batch_shape": [null, null], "ragged": true}},
      {"class_name": "EmbedReduce", "name": "e", "inbound_nodes": [[["ids", 0, 0, {}], ["w", 0, 0, {}]]],
       "config": {"name": "e", "input_dim": 3, "output_dim": 2, "combiner": ")",
                                          combiner, R"("}},
      {"class_name": "Activation", "name": "a", "config": {"name": "a", "activation": "linear"},
       "inbound_nodes": [[["e", 0, 0, {}]]]}],
      "input_layers": [["ids", 0, 0], ["w", 0, 0]], "output_layers": [["a", 0, 0]]}})");
    described_.emplace(*nn::Model::FromJson(json, "m.json"));
    options_.optimizer.name = "SGD";
    plan_.emplace(**PlanTables(options_, *described_));
    without_tables_ = *nn::Replica::Create(
        plan_->model.model, nn::LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, *device_);
    for (const int64_t key : {0, 1, 2}) {
      rows_.Row(1, key, 2) = {static_cast<float>(2 * key + 1), static_cast<float>(2 * key + 2)};
    }
    replica_.emplace(*plan_, *without_tables_, rows_, TableReplica::Options{});
    rows_.pushed.clear();
    const auto result = replica_->ForwardBackward({}, batch, {}, [](int) {});
    if (!result.ok()) return result.status();
    outputs_.assign(result->outputs.begin(), result->outputs.end());
    return *result;
  }
  nn::BatchView Batch() const {
    nn::BatchView batch = {.examples = 4, .targets = targets_};
    batch.inputs.push_back({DType::kInt64, {5}, ids_.data(), absl::MakeConstSpan(splits_)});
    batch.inputs.push_back({DType::kFloat32, {5}, weights_.data(), absl::MakeConstSpan(weight_splits_)});
    return batch;
  }

  const std::vector<int64_t> ids_ = {0, 1, 2, 0, 0}, splits_ = {0, 2, 2, 5, 5};
  std::vector<int64_t> weight_splits_ = splits_;
  const std::vector<float> weights_ = {1, 3, 2, 0.5F, -1}, targets_ = {0, 0, 0, 0, 0, 0, 0, 0};
  TrainOptions options_;
  const std::unique_ptr<kernels::Device> device_ = *kernels::CreateCpuDevice(0, 1);
  std::optional<nn::Model> described_;
  std::optional<TablePlan> plan_;
  std::unique_ptr<nn::Replica> without_tables_;
  FakeRows rows_;
  std::optional<TableReplica> replica_;
  std::vector<float> outputs_;
};

TEST_F(WeightedBags, ArePooledAsInTensorFlow) {
  const auto near = [](std::vector<float> values) {
    return testing::Pointwise(testing::FloatNear(1e-5F), values);
  };
  ASSERT_EQ(Evaluate("sum", Batch()).status(), absl::OkStatus());
  EXPECT_THAT(outputs_, near({10, 14, 0, 0, 9.5F, 11, 0, 0}));
  ASSERT_EQ(Evaluate("mean", Batch()).status(), absl::OkStatus());
  EXPECT_THAT(outputs_, near({2.5F, 3.5F, 0, 0, 6.3333335F, 7.3333335F, 0, 0}));
  ASSERT_EQ(Evaluate("sqrtn", Batch()).status(), absl::OkStatus());
  EXPECT_THAT(outputs_, near({3.1622777F, 4.4271889F, 0, 0, 4.1461396F, 4.8007936F, 0, 0}));
}

TEST_F(WeightedBags, APartOfABatchHasItsOwnWeights) {
  ASSERT_EQ(Evaluate("sum", Batch().Part(1, 2)).status(), absl::OkStatus());
  EXPECT_THAT(outputs_, ElementsAre(0, 0, 9.5F, 11));
  // The loss is the mean over 2 columns: its gradient is 9.5 and 11 in each example, times the weights.
  EXPECT_EQ(rows_.pushed.size(), 2u);
  const std::vector<float>& of_row_2 = rows_.pushed.at({1, 2});
  EXPECT_FLOAT_EQ(of_row_2[0] / rows_.pushed.at({1, 0})[0], 2 / -0.5F);
}

TEST_F(WeightedBags, ABatchOfEmptyBagsReadsAndPushesNoRows) {
  ASSERT_EQ(Evaluate("mean", Batch().Part(3, 1)).status(), absl::OkStatus());
  EXPECT_THAT(outputs_, ElementsAre(0, 0));
  EXPECT_TRUE(rows_.pushed.empty());
}

TEST_F(WeightedBags, AnotherNumberOfWeightsIsRefused) {
  weight_splits_ = {0, 2, 3, 5, 5};
  EXPECT_THAT(std::string(Evaluate("sum", Batch()).status().message()),
              HasSubstr("layer 'e': example 1 of the batch has 0 ids in input 'ids', but 1 weights"));
}

TEST(PlanTablesTest, LayersThatCannotBeTablesAreRefused) {
  const nn::Model described = *nn::Model::FromJson(kTableModel, "m.json");
  TrainOptions options;
  options.optimizer.name = "SGD";
  options.embedding.tables = "e,d";
  EXPECT_THAT(PlanTables(options, described).status().message(),
              HasSubstr("--embedding_tables: layer 'd' (Dense) has no embedding table; Embedding layers: e"));
  options.embedding.tables = "e";
  options.embedding.optimizer = "Adagrad";
  options.optimizer.learning_rate = 0.25;
  EXPECT_EQ((*PlanTables(options, described))
                ->tables[0]
                .embedding()
                .optimizer()
                .hyperparameters()
                .at("learning_rate"),
            0.25)
      << "that of the other variables";
  options.embedding.learning_rate = 0.5;
  const auto planned = PlanTables(options, described);
  ASSERT_EQ(planned.status(), absl::OkStatus());
  const std::optional<TablePlan>& plan = *planned;
  ASSERT_EQ(plan->tables.size(), 1u);
  EXPECT_EQ(plan->tables[0].name(), "e/embeddings");
  EXPECT_EQ(plan->tables[0].row_elements(), 2);
  EXPECT_EQ(plan->tables[0].embedding().vocabulary_size(), 10);
  EXPECT_EQ(plan->tables[0].embedding().optimizer().name(), "Adagrad");
  EXPECT_EQ(plan->tables[0].embedding().optimizer().hyperparameters().at("learning_rate"), 0.5);
}

TEST(PlanTablesTest, LayersWithMoreRowsThanALimitBecomeTables) {
  const nn::Model described = *nn::Model::FromJson(kTableModel, "m.json");
  TrainOptions options;
  options.optimizer.name = "SGD";
  options.embedding.tables_above = 10;
  EXPECT_FALSE((*PlanTables(options, described)).has_value());
  options.embedding.tables_above = 9;
  const TablePlan plan = **PlanTables(options, described);
  EXPECT_EQ(DescribeTables(plan), "embedding tables on the servers: e/embeddings (10 rows of 2)");
}

TEST(PlanTablesTest, ADynamicTableHasNoVocabulary) {
  const nn::Model described = *nn::Model::FromJson(kTableModel, "m.json");
  TrainOptions options;
  options.optimizer.name = "SGD";
  options.embedding.dynamic_tables = "x";
  EXPECT_THAT(PlanTables(options, described).status().message(),
              HasSubstr("--dynamic_tables: the model has no layer 'x'; Embedding layers: e"));
  options.embedding.dynamic_tables = "e";
  const TablePlan plan = **PlanTables(options, described);
  EXPECT_EQ(plan.tables[0].embedding().vocabulary_size(), 0);
  EXPECT_EQ(DescribeTables(plan), "embedding tables on the servers: e/embeddings (any id of 2)");
}

}  // namespace
}  // namespace cairn::worker
