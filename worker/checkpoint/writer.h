// Writes checkpoints. docs/design/checkpoint-format.md has the files and the order in which they appear.
//
// Called by whoever has read the servers' state, from one thread of one process at a time. Blocks while the
// disk writes; holds nothing in memory but what it is given.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/net/placement.h"
#include "worker/checkpoint/run_state.h"

namespace cairn::worker {

// What one server held at one version: its arena and its optimizer slots.
struct ServerState {
  std::vector<net::Slice> slices;  // as the server describes them, by rising offset
  absl::Span<const float> state;   // [1 + slots][arena elements]: the values, then each slot
};

struct WriteOptions {
  // So many checkpoints are left, the one written among them; 0: all. The lowest steps go first.
  int64_t max_to_keep = 5;
};

// Writes <train_dir>/checkpoints/step-<run.global_step>, in place of one that is there, and returns it; makes
// train_dir where it is missing. `model_json` is kept as it is. `servers` [server].
//
// On an error no checkpoint is lost but those that max_to_keep removes. FAILED_PRECONDITION naming the
// variable when the servers lack rows of one, hold rows twice or know it under two shapes; INVALID_ARGUMENT
// for a name or a slice that a checkpoint cannot hold; otherwise the system's reason and the path
// (RESOURCE_EXHAUSTED: disk full).
absl::StatusOr<std::string> WriteCheckpoint(const std::string& train_dir, const RunState& run,
                                            absl::string_view model_json,
                                            absl::Span<const ServerState> servers,
                                            const WriteOptions& options);

}  // namespace cairn::worker
