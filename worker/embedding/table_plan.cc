#include "worker/embedding/table_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/core/status.h"
#include "worker/options/job.h"
#include "worker/options/schedule.h"

namespace cairn::worker {
namespace {

constexpr char kFlag[] = "--embedding_tables";
constexpr char kDynamicFlag[] = "--dynamic_tables";

// The layers of `list`, the value of `flag`: "all", or names.
absl::StatusOr<std::vector<std::string>> LayersOf(absl::string_view flag, const std::string& list,
                                                  const nn::Model& described) {
  if (list.empty()) return std::vector<std::string>();
  std::vector<std::string> known = nn::EmbeddingLayers(described);
  if (known.empty())
    return absl::InvalidArgumentError(absl::StrCat(flag, ": the model has no Embedding layer"));
  if (list == "all") return known;
  std::vector<std::string> layers;
  for (const absl::string_view name : absl::StrSplit(list, ',')) {
    layers.emplace_back(absl::StripAsciiWhitespace(name));
    CAIRN_RETURN_IF_ERROR(Annotate(nn::CheckIsEmbedding(described, layers.back()), flag));
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
        absl::StrCat("the initializer of layer '", lookup.layer,
                     "' computes a whole matrix, but a table on the servers creates each row separately"));
  }
  v1::Table table;
  table.set_name(TableNameOf(lookup.layer));
  table.set_kind("embedding");
  table.set_row_elements(lookup.width);
  v1::EmbeddingTable& embedding = *table.mutable_embedding();
  embedding.set_vocabulary_size(lookup.rows);
  embedding.set_seed(spec.seed.value_or(options.seed));
  embedding.set_distribution(DistributionOf(spec));
  embedding.set_center(spec.center);
  embedding.set_spread(spec.spread);
  const EmbeddingFlags& flags = options.embedding;
  const nn::KerasObject* const own =
      lookup.table != nullptr && lookup.table->optimizer.has_value() && flags.optimizer.empty()
          ? &*lookup.table->optimizer
          : nullptr;
  if (own == nullptr && flags.optimizer.empty() && !flags.learning_rate.has_value()) return table;
  v1::OptimizerConfig& optimizer = *embedding.mutable_optimizer();
  if (own != nullptr) {
    if (const auto& schedule = lookup.table->learning_rate_schedule; schedule.has_value()) {
      auto made = MakeSchedule(*schedule);
      if (!made.ok()) return Annotate(made.status(), absl::StrCat("layer '", lookup.layer, "'"));
      *optimizer.mutable_learning_rate_schedule() = *std::move(made);
    }
    optimizer.set_name(own->class_name);
    optimizer.mutable_hyperparameters()->insert(own->config.begin(), own->config.end());
  } else {
    CAIRN_ASSIGN_OR_RETURN(optimizer, MakeOptimizer(options, described));
  }
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

std::string TableNameOf(const std::string& layer) {
  return absl::StrCat(layer, "/embeddings");
}

void AddTableOfLookup(v1::Table table, TablePlan& plan) {
  const auto found =
      absl::c_find_if(plan.tables, [&](const v1::Table& other) { return other.name() == table.name(); });
  plan.table_of_lookup.push_back(static_cast<int>(found - plan.tables.begin()));
  if (found == plan.tables.end()) plan.tables.push_back(std::move(table));
}

absl::StatusOr<std::optional<TablePlan>> PlanTables(const TrainOptions& options, const nn::Model& described) {
  const EmbeddingFlags& flags = options.embedding;
  CAIRN_ASSIGN_OR_RETURN(std::vector<std::string> layers, LayersOf(kFlag, flags.tables, described));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> dynamic,
                         LayersOf(kDynamicFlag, flags.dynamic_tables, described));
  layers.insert(layers.end(), dynamic.begin(), dynamic.end());
  if (flags.tables_above.has_value()) {
    for (std::string& layer : nn::EmbeddingLayersAbove(described, *flags.tables_above))
      layers.push_back(std::move(layer));
  }
  const std::vector<std::string> of_rows = nn::LayersOfRowTables(described);
  if (!of_rows.empty()) {
    CAIRN_RETURN_IF_ERROR(Annotate(CheckFlagsWithTables(options),
                                   absl::StrCat("layer '", of_rows[0], "' has a table on the servers")));
    layers.insert(layers.end(), of_rows.begin(), of_rows.end());
  }
  if (layers.empty()) {
    const char* const of_tables = !flags.optimizer.empty()          ? "--embedding_optimizer"
                                  : flags.learning_rate.has_value() ? "--embedding_learning_rate"
                                  : flags.staleness > 0             ? "--embedding_staleness"
                                                                    : nullptr;
    if (of_tables == nullptr) return std::nullopt;
    return absl::InvalidArgumentError(
        absl::StrCat(of_tables, " needs ", kFlag, ": no layer's table is stored by rows"));
  }
  absl::StatusOr<nn::ModelWithoutTables> model = nn::ReplaceEmbeddings(described, layers);
  if (!model.ok()) return flags.make_tables() ? Annotate(model.status(), kFlag) : model.status();
  TablePlan plan = {.model = *std::move(model),
                    .automatic = !of_rows.empty() || flags.tables_above.has_value()};
  for (nn::TableLookup& lookup : plan.model.lookups) {
    CAIRN_ASSIGN_OR_RETURN(v1::Table table, MakeTable(options, described, lookup));
    if (absl::c_linear_search(dynamic, lookup.layer)) {
      lookup.rows = 0;
      table.mutable_embedding()->set_vocabulary_size(0);
    }
    AddTableOfLookup(std::move(table), plan);
  }
  return plan;
}

std::vector<std::string> TablePlan::dynamic_layers() const {
  std::vector<std::string> layers;
  for (const nn::TableLookup& lookup : model.lookups) {
    if (lookup.rows == 0) layers.push_back(lookup.layer);
  }
  return layers;
}

std::string DescribeTables(const TablePlan& plan) {
  return absl::StrCat("embedding tables on the servers: ",
                      absl::StrJoin(plan.tables, ", ", [](std::string* out, const v1::Table& table) {
                        const int64_t rows = table.embedding().vocabulary_size();
                        absl::StrAppend(out, table.name(), " (",
                                        rows == 0 ? "any id" : absl::StrCat(rows, " rows"), " of ",
                                        table.row_elements(), ")");
                      }));
}

absl::Status RefuseTablesOfDividedModel(const TrainOptions& options, const nn::Model& described) {
  const std::vector<std::string> of_rows = nn::LayersOfRowTables(described);
  if (!options.embedding.make_tables() && of_rows.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      of_rows.empty() ? kFlag : absl::StrCat("layer '", of_rows.front(), "', a table on the servers,"),
      " does not go with a model that --place divides over workers"));
}

}  // namespace cairn::worker
