#include "worker/embedding/table_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/core/status.h"
#include "worker/options/job.h"

namespace cairn::worker {
namespace {

constexpr char kFlag[] = "--embedding_tables";

absl::StatusOr<std::vector<std::string>> LayersOf(const EmbeddingFlags& flags, const nn::Model& described) {
  std::vector<std::string> known = nn::EmbeddingLayers(described);
  if (known.empty())
    return absl::InvalidArgumentError(absl::StrCat(kFlag, ": the model has no Embedding layer"));
  if (flags.tables == "all") return known;
  std::vector<std::string> layers;
  for (const absl::string_view name : absl::StrSplit(flags.tables, ',')) {
    layers.emplace_back(absl::StripAsciiWhitespace(name));
  }
  return layers;
}

v1::EmbeddingTable::Distribution DistributionOf(const nn::InitializerSpec& spec) {
  using Distribution = nn::InitializerSpec::Distribution;
  switch (spec.distribution) {
    case Distribution::kUniform:
      return v1::EmbeddingTable::DISTRIBUTION_UNIFORM;
    case Distribution::kNormal:
      return v1::EmbeddingTable::DISTRIBUTION_NORMAL;
    case Distribution::kTruncatedNormal:
      return v1::EmbeddingTable::DISTRIBUTION_TRUNCATED_NORMAL;
    default:
      return v1::EmbeddingTable::DISTRIBUTION_CONSTANT;
  }
}

absl::StatusOr<v1::Table> MakeTable(const TrainOptions& options, const nn::Model& described,
                                    const nn::TableLookup& lookup) {
  using Distribution = nn::InitializerSpec::Distribution;
  const nn::InitializerSpec spec = nn::ResolveFan(lookup.initializer, Shape({lookup.rows, lookup.width}));
  if (spec.distribution == Distribution::kOrthogonal || spec.distribution == Distribution::kIdentity) {
    return absl::InvalidArgumentError(
        absl::StrCat(kFlag, ": the initializer of layer '", lookup.layer,
                     "' computes a whole matrix, but a table creates each row separately"));
  }
  v1::Table table;
  table.set_name(absl::StrCat(lookup.layer, "/embeddings"));
  table.set_kind("embedding");
  table.set_row_elements(lookup.width);
  v1::EmbeddingTable& embedding = *table.mutable_embedding();
  embedding.set_vocabulary_size(lookup.rows);
  embedding.set_seed(spec.seed.value_or(options.seed));
  embedding.set_distribution(DistributionOf(spec));
  embedding.set_center(spec.center);
  embedding.set_spread(spec.spread);
  const EmbeddingFlags& flags = options.embedding;
  if (flags.optimizer.empty() && !flags.learning_rate.has_value()) return table;
  v1::OptimizerConfig& optimizer = *embedding.mutable_optimizer();
  CAIRN_ASSIGN_OR_RETURN(optimizer, MakeOptimizer(options, described));
  if (!flags.optimizer.empty()) {
    optimizer.set_name(flags.optimizer);
    const auto rate = optimizer.hyperparameters().find("learning_rate");
    const std::optional<double> kept =
        rate == optimizer.hyperparameters().end() ? std::nullopt : std::optional<double>(rate->second);
    optimizer.clear_hyperparameters();
    if (kept.has_value()) (*optimizer.mutable_hyperparameters())["learning_rate"] = *kept;
  }
  if (flags.learning_rate.has_value()) {
    optimizer.clear_learning_rate_schedule();
    (*optimizer.mutable_hyperparameters())["learning_rate"] = *flags.learning_rate;
  }
  return table;
}

}  // namespace

absl::StatusOr<TablePlan> PlanTables(const TrainOptions& options, const nn::Model& described) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> layers, LayersOf(options.embedding, described));
  absl::StatusOr<nn::ModelWithoutTables> model = nn::ReplaceEmbeddings(described, layers);
  if (!model.ok()) return Annotate(model.status(), kFlag);
  TablePlan plan = {.model = *std::move(model)};
  for (const nn::TableLookup& lookup : plan.model.lookups) {
    CAIRN_ASSIGN_OR_RETURN(v1::Table table, MakeTable(options, described, lookup));
    const auto found =
        absl::c_find_if(plan.tables, [&](const v1::Table& other) { return other.name() == table.name(); });
    plan.table_of_lookup.push_back(static_cast<int>(found - plan.tables.begin()));
    if (found == plan.tables.end()) plan.tables.push_back(std::move(table));
  }
  return plan;
}

absl::Status RefuseTablesOfDividedModel(const TrainOptions& options) {
  if (options.embedding.tables.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(kFlag, " does not go with a model that --place divides over workers"));
}

}  // namespace cairn::worker
