// The embedding tables of a public Job: their description for the servers, and the arguments of the calls with rows.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/job.h"
#include "cairn/rows.h"
#include "cairn/v1/job.pb.h"
#include "client/rows/row_exchange.h"
#include "client/training/job_control.h"
#include "common/core/clock.h"

namespace cairn::api {

// Describes the tables of `job` in `proto`. INVALID_ARGUMENT, naming the table, for one that is invalid.
absl::Status AddTables(const Job& job, v1::Job& proto);

// The arguments of a call, with the servers' numbers of tables. INVALID_ARGUMENT, naming the table, for a table that
// does not exist or that occurs twice, for a number of elements that does not fit the ids, and for an id that the table
// cannot have.
absl::StatusOr<std::vector<client::RowValues>> ToClient(const Job& job, absl::Span<const RowsToRead> rows);
absl::StatusOr<std::vector<client::RowGradients>> ToClient(const Job& job,
                                                           absl::Span<const RowGradients> gradients);

// The rows that training has made of a table.
struct TableContents {
  std::vector<int64_t> ids{};
  std::vector<float> rows{};  // [id][element]
};
// Those of table `table` of the snapshot that is read. INTERNAL for an invalid state; OUT_OF_RANGE, naming the id, for
// a NaN or an infinity. Throws OutOfMemory.
absl::StatusOr<TableContents> ReadContents(const client::TakenSnapshot& taken, int table,
                                           const client::ReadLimit& limit);

}  // namespace cairn::api
