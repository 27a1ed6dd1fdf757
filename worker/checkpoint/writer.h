// Writes checkpoints. docs/design/checkpoint-format.md describes the files and the order in which they
// appear.
//
// Must be used by one thread of one process at a time. Blocks while the disk writes; needs no memory except its
// arguments and a few MiB.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/net/cluster/placement.h"
#include "worker/checkpoint/run_state.h"
#include "worker/checkpoint/table_file.h"

namespace cairn::worker {

// The state of one server at one version: its arena and its optimizer slots.
struct ServerState {
  std::vector<net::Slice> slices;  // as reported by the server, by increasing offset
  absl::Span<const float> state;   // [1 + slots][arena elements]: the values, then each slot
};

struct WriteOptions {
  // The number of checkpoints to keep, including the new one; 0: all. The lowest steps are removed first.
  int64_t max_to_keep = 5;
};

// Writes <train_dir>/checkpoints/step-<global_step>. After an error, or if the writer is destroyed before Finish(), all
// earlier checkpoints still exist, except those that max_to_keep removes.
//
// FAILED_PRECONDITION naming the variable if rows of it are missing or occur twice, or if the servers disagree about
// its shape; INVALID_ARGUMENT for a name, a slice or the state of a table that a checkpoint cannot hold; otherwise the
// system's reason and the path (RESOURCE_EXHAUSTED: disk full).
class CheckpointWriter {
 public:
  // Creates train_dir if it is missing, and a temporary directory in it.
  static absl::StatusOr<std::unique_ptr<CheckpointWriter>> Begin(const std::string& train_dir,
                                                                 int64_t global_step);
  // Removes the temporary directory.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // If the run has tables: their states follow, in pieces. `sizes` [server][table]: the number of floats of each state,
  // in the form of embedding/store/table_state.h.
  absl::Status BeginTables(absl::Span<const TableRun> tables, absl::Span<const std::vector<int64_t>> sizes);
  // The next floats of a state. Servers and tables count from 0.
  absl::Status AddTable(size_t server, size_t table, absl::Span<const float> piece);
  // Writes the rest and publishes the checkpoint; returns its path. Replaces an existing checkpoint of this step.
  // `model_json` is stored unchanged. `servers` [server]. The learning rates of `run.tables` come from the states of
  // ps/0; `run.global_step` is that of Begin(). The last call.
  absl::StatusOr<std::string> Finish(RunState run, absl::string_view model_json,
                                     absl::Span<const ServerState> servers, const WriteOptions& options);

 private:
  CheckpointWriter(std::string train_dir, int64_t global_step, std::string temporary)
      : train_dir_(std::move(train_dir)), global_step_(global_step), temporary_(std::move(temporary)) {}
  std::string TablesPath(size_t server) const;

  const std::string train_dir_;
  const int64_t global_step_;
  std::string temporary_;          // empty once the checkpoint is published
  std::vector<TableFile> tables_;  // [server]
};

// Writes the checkpoint of a run without tables, as CheckpointWriter does.
absl::StatusOr<std::string> WriteCheckpoint(const std::string& train_dir, const RunState& run,
                                            absl::string_view model_json,
                                            absl::Span<const ServerState> servers,
                                            const WriteOptions& options);

}  // namespace cairn::worker
