// Reads checkpoints, written by any number of servers, into the flat order of a model. Nothing in the files
// is trusted: each byte is under a checksum, each number is checked before it is used.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/net/placement.h"
#include "worker/checkpoint/run_state.h"
#include "worker/checkpoint/state_file.h"
#include "worker/checkpoint/tensors.h"
#include "worker/checkpoint/train_dir.h"

namespace cairn::worker {

// One that was opened: state.json, model.json and the heads of all files are whole and fit each other. Holds
// no file open. Immutable; safe to read from any thread.
class Checkpoint {
 public:
  // NOT_FOUND when there is no such directory; DATA_LOSS naming file and tensor for what is torn, damaged or
  // foreign; FAILED_PRECONDITION for another format's number.
  static absl::StatusOr<Checkpoint> Open(const std::string& directory);

  const std::string& directory() const { return directory_; }
  const RunState& run() const { return state_.run; }
  const std::string& model_json() const { return model_json_; }  // as WriteCheckpoint() was given it
  // Variables by name, then each slot's in the order of run().slots.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const std::vector<FileEntry>& files() const { return state_.files; }
  uint64_t bytes() const;  // of all files with tensors

  // Fills into[0] with the values of `variables`, each at its offset, and into[1 + i] with their slot
  // slots[i] likewise: [1 + slots][elements that the variables take]. What the checkpoint holds besides is
  // left out. FAILED_PRECONDITION naming the tensor when it is not there, has another shape (both are told)
  // or lacks rows; DATA_LOSS naming file and tensor where its checksum tells that it is damaged. On an error
  // `into` holds anything. Blocks while the disk reads.
  absl::Status Load(absl::Span<const net::VariableInfo> variables, absl::Span<const std::string> slots,
                    absl::Span<const absl::Span<float>> into) const;

  // Reads every byte: Load()'s errors, the first one.
  absl::Status Verify() const;

 private:
  Checkpoint(std::string directory, StateFile state, std::string model_json)
      : directory_(std::move(directory)), state_(std::move(state)), model_json_(std::move(model_json)) {}

  absl::Status ReadHeads();
  // Hands the values' bytes to `next_buffer`'s memory piece by piece, and compares their checksum.
  absl::Status ReadRows(const TensorRows& rows,
                        absl::FunctionRef<absl::Span<char>(uint64_t left)> next_buffer) const;

  std::string directory_;
  StateFile state_;
  std::string model_json_;
  std::vector<TensorInfo> tensors_;
};

// The checkpoint of the highest step whose every byte is as it was written. Those that are damaged are passed
// over, each after `skipped` was told why (DATA_LOSS, naming the directory). NOT_FOUND when there is none;
// other errors end the search, FAILED_PRECONDITION for a newer program's checkpoint among them. Blocks while
// the disk reads.
absl::StatusOr<Checkpoint> OpenNewest(const std::string& train_dir,
                                      absl::FunctionRef<void(const absl::Status&)> skipped);

}  // namespace cairn::worker
