// Checks a job before a server accepts it: its fields, its variables, and the memory that it needs. Pure
// functions. Errors name the field or the variable.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "common/memory/server_memory.h"
#include "common/net/cluster/placement.h"
#include "ps/shard/shard.h"
#include "ps/table/table_factory.h"

namespace cairn::ps {

// INVALID_ARGUMENT, naming the field, for an invalid job.
absl::Status CheckJob(const v1::Job& job);
// RESOURCE_EXHAUSTED if the names and shapes are too large. They do not count against --memory_limit, which
// covers the values only.
absl::Status CheckDescriptions(absl::Span<const net::Slice> slices);
// The group of each slice (Job.variable_groups), [slice]; -1: none. INVALID_ARGUMENT for a variable in two
// groups.
absl::StatusOr<std::vector<int>> GroupsOf(const v1::Job& job, absl::Span<const net::Slice> slices);
// INVALID_ARGUMENT if the optimizer takes norms and a slice divides a band: the sum over a divided band
// depends on where it is divided.
absl::Status CheckNorms(const Shard::Options& shard);
// The bytes that all tables of the job but its variables need here. INVALID_ARGUMENT, naming the table, if its
// description is invalid, or `factory` is null or does not make such tables.
absl::StatusOr<double> TableBytes(const v1::Job& job, const TableFactory* factory);
// As cairn::CheckMemory(). A mistake of the chief, or a malicious request, must not make the server allocate more
// memory than there is.
absl::Status CheckMemory(const v1::Job& job, const Shard::Options& shard, double table_bytes);
// Whether the job's updates are speculative: its rounds take all workers, its optimizer and constraints need no
// norms, and the memory has room for a version that may be discarded (speculative_update.h).
bool UpdatesSpeculatively(const v1::Job& job, const Shard::Options& shard, double table_bytes);

}  // namespace cairn::ps
