#include "cli/planner/planned_tables.h"

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nn/model.h"
#include "worker/options/options.h"

namespace cairn::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Two features of 1,000 ids share no table; 4 ids of "words" in each example.
nn::Model ModelOfTables() {
  const auto model = nn::Model::FromJson(R"({"class_name": "Functional", "config": {"name": "m", "layers": [
      {"class_name": "InputLayer", "name": "word", "config": {"name": "word", "batch_shape": [null, 4], "dtype": "int64"}, "inbound_nodes": []},
      {"class_name": "Embedding", "name": "words", "config": {"name": "words", "input_dim": 1000, "output_dim": 8}, "inbound_nodes": [[["word", 0, 0, {}]]]},
      {"class_name": "Flatten", "name": "flat", "config": {"name": "flat"}, "inbound_nodes": [[["words", 0, 0, {}]]]},
      {"class_name": "Dense", "name": "out", "config": {"name": "out", "units": 1}, "inbound_nodes": [[["flat", 0, 0, {}]]]}],
      "input_layers": [["word", 0, 0]], "output_layers": [["out", 0, 0]]},
      "compile_config": {"optimizer": "adam", "loss": "mse"}})",
                                         "model");
  EXPECT_TRUE(model.ok()) << model.status();
  return *model;
}

worker::TrainOptions WithTables() {
  worker::TrainOptions options;
  options.batch_size = 250;
  options.embedding.tables = "all";
  return options;
}

TEST(PlannedTables, AModelWithoutTablesHasNone) {
  const auto none = PlanTables({}, ModelOfTables(), 1, 1, {});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(*none, std::nullopt);
}

TEST(PlannedTables, RowsHaveValuesSlotsAndAnIndex) {
  const auto planned = PlanTables(WithTables(), ModelOfTables(), 4, 1, {});
  ASSERT_TRUE(planned.ok()) << planned.status();
  const PlannedTables::Table& table = (*planned)->tables[0];
  EXPECT_EQ(table.needs.name, "words/embeddings");
  EXPECT_EQ(table.rows, 1000);
  EXPECT_EQ(table.needs.slots, 16);                          // two moments of Adam
  EXPECT_EQ(table.needs.row_bytes(), 4 * (8 + 16) + 26);     // row_store.h
  EXPECT_EQ((*planned)->server_bytes(), 250 * (96 + 26.0));  // a quarter of the rows
  EXPECT_EQ((*planned)->trained.num_parameters(), 4 * 8 + 1);
  EXPECT_EQ(table.ids, 1000);
  EXPECT_NEAR(table.distinct, 1000 * (1 - 0.3677),
              1);  // (1 - 1/1000)^1000 = 0.3677 of the rows are not drawn
}

TEST(PlannedTables, CheckpointsAndBackupsDoubleTheRows) {
  worker::TrainOptions options = WithTables();
  const auto once = PlanTables(options, ModelOfTables(), 2, 1, {});
  const auto saved = PlanTables(options, ModelOfTables(), 2, 1, {.checkpoints = true});
  options.ps_replication = 1;
  const auto replicated = PlanTables(options, ModelOfTables(), 2, 1, {});
  ASSERT_TRUE(once.ok() && saved.ok() && replicated.ok());
  EXPECT_EQ((*saved)->server_bytes(), 2 * (*once)->server_bytes());
  EXPECT_EQ((*replicated)->server_bytes(), 2 * (*once)->server_bytes());
}

TEST(PlannedTables, ATableOfAnyIdNeedsAnAssumption) {
  worker::TrainOptions options;
  options.embedding.dynamic_tables = "words";
  const auto refused = PlanTables(options, ModelOfTables(), 1, 1, {});
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status()));
  EXPECT_THAT(refused.status().message(),
              AllOf(HasSubstr("'words/embeddings'"), HasSubstr("--dynamic_rows")));
  const TableAssumptions assumptions = {.dynamic_rows = 5000, .distinct_ids = 0.5};
  const auto planned = PlanTables(options, ModelOfTables(), 1, 1, assumptions);
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_EQ((*planned)->tables[0].rows, 5000);
  EXPECT_EQ((*planned)->tables[0].distinct, 64);  // half of 32 x 4
  EXPECT_THAT(AsText(**planned, assumptions),
              AllOf(HasSubstr("5,000"), HasSubstr("--dynamic_rows"), HasSubstr("--distinct_ids")));
}

TEST(PlannedTables, ATableThatDoesNotFitIsRefusedInTheWordsOfAServer) {
  TableAssumptions assumptions = {.memory_limit = 1 << 20};
  const auto planned = PlanTables(WithTables(), ModelOfTables(), 1, 2, assumptions);
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_TRUE(CheckPlannedMemory(**planned, assumptions).ok());
  assumptions.memory_limit = 100'000;
  const absl::Status refused = CheckPlannedMemory(**planned, assumptions);
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("may take 97.7 KiB (--memory_limit)"), HasSubstr("other tables 0.116 MiB")));
}

TEST(PlannedTables, TablesThatTrainingRefusesAreRefused) {
  worker::TrainOptions options = WithTables();
  options.embedding.tables = "sentences";
  EXPECT_THAT(PlanTables(options, ModelOfTables(), 1, 1, {}).status().message(),
              HasSubstr("--embedding_tables"));
  options.embedding.tables = "words";
  options.embedding.optimizer = "Lion";
  EXPECT_THAT(PlanTables(options, ModelOfTables(), 1, 1, {}).status().message(),
              AllOf(HasSubstr("table 'words/embeddings'"), HasSubstr("Lion")));
}

}  // namespace
}  // namespace cairn::cli
