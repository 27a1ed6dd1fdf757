// Writes the snapshot of a job as a checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "client/training/job_control.h"

namespace cairn::worker {

struct SnapshotCheckpoint {
  std::string directory;    // the train_dir
  std::string mode;         // "sync": RunState::mode
  std::string model_json;   // stored unchanged
  int64_t max_to_keep = 5;  // the number of checkpoints, including the new one; 0: all
  // Called when the servers' state has been read, and is to be written. May be null.
  std::function<void()> on_read{};
};

// Reads the snapshot, and returns the directory of the new checkpoint, in which the tables have been written while they
// arrived. Blocks: at most 60 s for each answer of a server, and while the disk writes. Errors are those of
// client::ReadSnapshot() and CheckpointWriter.
absl::StatusOr<std::string> WriteCheckpoint(const client::TakenSnapshot& taken,
                                            const SnapshotCheckpoint& checkpoint);

}  // namespace cairn::worker
