// Which layers of a model are stored as embedding tables on the servers, and the model that is left.
//
// Constant after construction; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "nn/model.h"
#include "nn/replace_embeddings.h"
#include "worker/options/options.h"

namespace cairn::worker {

struct TablePlan {
  nn::ModelWithoutTables model;
  std::vector<v1::Table> tables{};     // Job.tables
  std::vector<int> table_of_lookup{};  // [lookup of `model`] index in `tables`
  // Some layers have tables on the servers though no flag names them.
  bool automatic = false;

  // The layers that look up any id.
  std::vector<std::string> dynamic_layers() const;
};

// The name of the table of a layer: that of its variable.
std::string TableNameOf(const std::string& layer);
// Sets the table of the next lookup of plan.model, which may be that of an earlier lookup.
void AddTableOfLookup(v1::Table table, TablePlan& plan);

// The tables of the layers that --embedding_tables, --embedding_tables_above and --dynamic_tables select; none if they
// select none. INVALID_ARGUMENT, naming the flag and the layer, for a layer that cannot be a table.
absl::StatusOr<std::optional<TablePlan>> PlanTables(const TrainOptions& options, const nn::Model& described);

// For the log: the tables of `plan` with their ids and widths.
std::string DescribeTables(const TablePlan& plan);

// For a model that --place divides over workers: INVALID_ARGUMENT with flags that make tables.
absl::Status RefuseTablesOfDividedModel(const TrainOptions& options, const nn::Model& described);

}  // namespace cairn::worker
