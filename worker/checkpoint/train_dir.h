// The layout of checkpoints in a job's directory:
//
//   <train_dir>/checkpoints/step-00001000/            a checkpoint
//   <train_dir>/checkpoints/step-00001000.tmp-4711/   a checkpoint that is being written or removed, or the
//                                                     remains of a process that died, which the next write
//                                                     removes
//   <train_dir>/checkpoint                            the newest checkpoint's path, for people and scripts
//
// Only one thread of one process may call functions that write; readers may run at any time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn::worker {

// "<train_dir>/checkpoints"
std::string CheckpointsDirectory(const std::string& train_dir);
// "step-00001000"
std::string StepName(int64_t global_step);
// The step of a checkpoint, from the name of its directory (without the path); -1 for any other name.
int64_t StepOf(absl::string_view name);

// The train_dir of a checkpoint's directory; any other `path` is returned unchanged.
std::string TrainDirOf(const std::string& path);

// The directories of all checkpoints, by increasing step, including damaged ones. Empty if `train_dir` or its
// checkpoints' directory does not exist; other errors have the system's reason and the path.
absl::StatusOr<std::vector<std::string>> ListCheckpoints(const std::string& train_dir);

// Creates train_dir and its checkpoints' directory if they are missing, removes the remains of processes that
// died, and creates an empty directory next to the checkpoints. Returns its path.
absl::StatusOr<std::string> BeginCheckpoint(const std::string& train_dir, int64_t global_step);

// Renames `temporary` (from BeginCheckpoint()) to the checkpoint's final name, replacing a checkpoint of the
// same step, and writes the new path to <train_dir>/checkpoint. Returns the new path, when everything is on
// the disk.
absl::StatusOr<std::string> PublishCheckpoint(const std::string& train_dir, int64_t global_step,
                                              const std::string& temporary);

// Removes the checkpoints of the lowest steps until `max_to_keep` are left, but never the checkpoint of
// `newest_step`.
absl::Status PruneCheckpoints(const std::string& train_dir, int64_t max_to_keep, int64_t newest_step);

}  // namespace cairn::worker
