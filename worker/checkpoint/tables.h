// The tables of a checkpoint, in the forms that servers and models need.
//
// Any thread; blocks while the disk reads. Errors are those of Checkpoint::Load(), and DATA_LOSS, naming the table, if
// its tensors do not fit together.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/memory/float_blocks.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/run_state.h"

namespace cairn::worker {

// The state of each table (RunState::tables), divided among so many servers: [server][table], in the form of
// embedding/store/table_state.h. The checkpoint may be of any number of servers.
absl::StatusOr<std::vector<std::vector<FloatBlocks>>> LoadTableStates(const Checkpoint& checkpoint,
                                                                      int servers);

// All rows of a table, with their slots.
struct TableRecords {
  std::vector<int64_t> ids;
  std::vector<float> rows;  // [id][values, then slots]
};
absl::StatusOr<TableRecords> LoadTable(const Checkpoint& checkpoint, const TableRun& table);

}  // namespace cairn::worker
