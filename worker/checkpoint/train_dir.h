// Where checkpoints lie in a job's directory:
//
//   <train_dir>/checkpoints/step-00001000/            one checkpoint
//   <train_dir>/checkpoints/step-00001000.tmp-4711/   one that is being written or removed, or was when a
//                                                     process died: garbage, which the next write removes
//   <train_dir>/checkpoint                            the path of the one written last, for people and
//   scripts
//
// Functions of one thread of one writing process; readers may come at any time.
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
// The step of a checkpoint's directory by its name, without the path; -1: it is none's name.
int64_t StepOf(absl::string_view name);

// The train_dir of a checkpoint's directory; `path` itself if it is none's.
std::string TrainDirOf(const std::string& path);

// The directories of all checkpoints by rising step, damaged ones too. None where there is no such directory;
// otherwise the system's reason and the path.
absl::StatusOr<std::vector<std::string>> ListCheckpoints(const std::string& train_dir);

// Makes train_dir and its checkpoints' directory where they are missing, removes what processes that died
// have left, and makes an empty directory beside the checkpoints, of which it returns the path.
absl::StatusOr<std::string> BeginCheckpoint(const std::string& train_dir, int64_t global_step);

// Gives `temporary`, of BeginCheckpoint(), its name, in place of a checkpoint of that step, and tells it in
// <train_dir>/checkpoint. Returns the new path. It is on the disk when this returns.
absl::StatusOr<std::string> PublishCheckpoint(const std::string& train_dir, int64_t global_step,
                                              const std::string& temporary);

// Removes checkpoints of the lowest steps until `max_to_keep` are left, but never that of `newest_step`.
absl::Status PruneCheckpoints(const std::string& train_dir, int64_t max_to_keep, int64_t newest_step);

}  // namespace cairn::worker
