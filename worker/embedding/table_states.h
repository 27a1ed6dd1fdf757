// The states of a job's tables in memory, on their way to servers: those that the chief keeps of the best epoch, and
// those that it makes from initial values.
//
// Any thread; one at a time for an object.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "client/snapshot.h"
#include "client/table_states.h"
#include "common/memory/aligned_buffer.h"
#include "worker/embedding/trained_tables.h"

namespace cairn::worker {

// Copies a job's tables as they are, and returns an opener for the copy. Blocks on the network.
using TakeTables = std::function<absl::StatusOr<client::TableOpener>()>;

// Shared by all sources that read the tables, and by their opener.
using SharedTables = std::shared_ptr<const std::vector<TrainedTable>>;

// States for the servers of `job` in which the rows have the values of `tables`, which are in the order of job.tables,
// and the optimizer state of new rows. They are made as they are read: beside `tables`, only the ids are in memory.
// Rows that the job's own first values equal are left out; so are, in a table of any id, those that `tables` do not
// store. INVALID_ARGUMENT if an optimizer has no form for rows.
absl::StatusOr<std::unique_ptr<client::TableSource>> StatesOfTables(const v1::Job& job, SharedTables tables);

// Whether the values of rows in a state depend on the version at which they are read: such a state cannot be written at
// a later version. INVALID_ARGUMENT if an optimizer has no form for rows.
absl::StatusOr<bool> StatesDependOnVersion(const v1::Job& job);

// Keeps the states of a snapshot.
class KeptStates final : public client::TableSink {
 public:
  // Throws OutOfMemory.
  absl::Status Begin(const client::Snapshot& snapshot, const client::TableSizes& sizes) override;
  absl::Status Add(int server, int table, absl::Span<const float> piece) override;
  // To be called once, at the end. The result owns the states.
  client::TableOpener Open();

 private:
  struct States {
    client::TableSizes sizes;
    std::vector<std::vector<AlignedBuffer>> floats;  // [server] [table - 1]
  };
  class Source;

  std::shared_ptr<States> states_;  // shared by the sources that read them, and by their opener
  client::TableSizes added_;        // [server] [table - 1] floats
};

}  // namespace cairn::worker
