// The memory that a job's embedding tables need on its servers, and whether the servers accept the job: for
// `cairn plan` and `cairn check`, in the words of cairn-ps.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "common/memory/server_memory.h"
#include "common/net/cluster/placement.h"

namespace cairn::worker {

struct TableNeeds {
  std::string name;
  int64_t vocabulary_size = 0;  // 0: any id
  int dim = 0;
  std::string optimizer{};  // of the rows
  int slots = 0;            // floats of a row's optimizer state
  double index_bytes = 0;   // for each row
  // The bytes of a row on its server: values, slots and index.
  double row_bytes() const { return static_cast<double>(sizeof(float)) * (dim + slots) + index_bytes; }
};

// The tables of `job`, in their order. INVALID_ARGUMENT, naming the table, if a server would refuse it.
absl::StatusOr<std::vector<TableNeeds>> TableNeedsOf(const v1::Job& job);

// The bytes that one server of the job needs for its part of a table of so many rows. With backups or checkpoints it
// counts twice: there is a copy while either is made.
double PartBytes(const TableNeeds& table, int64_t rows, const v1::Job& job);

// The job's memory on the server with the most variables, which has --memory_limit bytes. `table_bytes`: of all tables
// there. INVALID_ARGUMENT for an invalid optimizer.
absl::StatusOr<ServerMemory> ServerMemoryOf(const v1::Job& job, absl::Span<const net::VariableInfo> variables,
                                            double table_bytes, int64_t memory_limit);

}  // namespace cairn::worker
