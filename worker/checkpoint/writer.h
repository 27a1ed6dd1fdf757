// Writes checkpoints. docs/design/checkpoint-format.md describes the files and the order in which they
// appear.
//
// Must be called by one thread of one process at a time. Blocks while the disk writes; needs no memory except
// its arguments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/net/cluster/placement.h"
#include "worker/checkpoint/run_state.h"

namespace cairn::worker {

// The state of one server at one version: its arena and its optimizer slots.
struct ServerState {
  std::vector<net::Slice> slices;  // as reported by the server, by increasing offset
  absl::Span<const float> state;   // [1 + slots][arena elements]: the values, then each slot
  // [table of RunState::tables][buffer] The state of each table, in the form of embedding/store/table_state.h.
  std::vector<std::vector<absl::Span<const float>>> tables{};
};

struct WriteOptions {
  // The number of checkpoints to keep, including the new one; 0: all. The lowest steps are removed first.
  int64_t max_to_keep = 5;
};

// Writes <train_dir>/checkpoints/step-<run.global_step> and returns its path. Replaces an existing checkpoint
// of this step, and creates train_dir if it is missing. `model_json` is stored unchanged. `servers` [server].
// The learning rates of `run.tables` come from the states of ps/0.
//
// After an error all earlier checkpoints still exist, except those that max_to_keep removes.
// FAILED_PRECONDITION naming the variable if rows of it are missing or occur twice, or if the servers
// disagree about its shape; INVALID_ARGUMENT for a name, a slice or the state of a table that a checkpoint
// cannot hold; otherwise the system's reason and the path (RESOURCE_EXHAUSTED: disk full).
absl::StatusOr<std::string> WriteCheckpoint(const std::string& train_dir, const RunState& run,
                                            absl::string_view model_json,
                                            absl::Span<const ServerState> servers,
                                            const WriteOptions& options);

}  // namespace cairn::worker
