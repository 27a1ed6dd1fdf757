// The embedding tables of a job for `cairn plan`: their rows and bytes, and what a batch looks up.
//
// Pure, apart from reading the data set. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "cli/planner/planner.h"
#include "nn/model.h"
#include "worker/embedding/table_needs.h"
#include "worker/options/options.h"

namespace cairn::cli {

// Numbers that a model file does not have.
struct TableAssumptions {
  int64_t dynamic_rows = 0;                 // --dynamic_rows: of each table of any id; 0: counted in the data
  std::optional<double> distinct_ids = {};  // --distinct_ids: share of a batch's ids that are different
  double bag_ids = 1;        // --bag_ids: of an example in a ragged input, unless counted in the data
  bool checkpoints = false;  // --checkpoints
  int64_t memory_limit = 0;  // --memory_limit of each server, in bytes; 0: not given
};

struct PlannedTables {
  struct Table {
    worker::TableNeeds needs;
    std::string combiner{};   // how rows of an example become one; empty: not at all
    int64_t rows = 0;         // in all
    std::string rows_from{};  // "vocabulary"
    double ids = 0;           // that a batch of one worker looks up
    double distinct = 0;      // different ones among them
  };
  std::vector<Table> tables;
  std::string distinct_from{};  // where the numbers of distinct ids come from
  v1::Job job{};                // of the servers and workers that are planned
  nn::Model trained;            // the model without tables

  // For PlanInput::tables.
  std::vector<PlannedTable> traffic() const;
  // The bytes of all rows on one server; with a copy, if the job makes copies.
  double server_bytes() const;
};

// Nullopt if no layer has a table on the servers. INVALID_ARGUMENT in the words of training for what it refuses, and
// for a table of any id whose number of rows is unknown. With options.data.path, rows and lookups are counted there.
absl::StatusOr<std::optional<PlannedTables>> PlanTables(const worker::TrainOptions& options,
                                                        const nn::Model& described, int servers, int workers,
                                                        const TableAssumptions& assumptions);

// A line for each table, and the memory of each server. RESOURCE_EXHAUSTED, in the words of a server, from
// CheckPlannedMemory() if that is more than --memory_limit.
std::string AsText(const PlannedTables& tables, const TableAssumptions& assumptions);
absl::Status CheckPlannedMemory(const PlannedTables& tables, const TableAssumptions& assumptions);

}  // namespace cairn::cli
