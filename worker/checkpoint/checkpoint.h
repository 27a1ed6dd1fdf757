// Reads checkpoints, written by any number of servers, into a model's flat order. Nothing in the files is
// trusted: every byte is covered by a checksum, and every number is checked before it is used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/net/cluster/placement.h"
#include "worker/checkpoint/file_io.h"
#include "worker/checkpoint/run_state.h"
#include "worker/checkpoint/state_file.h"
#include "worker/checkpoint/tensors.h"
#include "worker/checkpoint/train_dir.h"

namespace cairn::worker {

// An open checkpoint: state.json, model.json and the headers of all tensor files are complete and consistent.
// Keeps no file open. Immutable; safe to read from any thread.
class Checkpoint {
 public:
  // NOT_FOUND if the directory does not exist; DATA_LOSS naming file and tensor if the checkpoint is
  // incomplete, damaged or not written by Cairn; FAILED_PRECONDITION for another format number.
  static absl::StatusOr<Checkpoint> Open(const std::string& directory);

  const std::string& directory() const { return directory_; }
  const RunState& run() const { return state_.run; }
  const std::string& model_json() const { return model_json_; }  // as passed to WriteCheckpoint()
  // The variables, sorted by name, then the tensors of each slot, in the order of run().slots.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const std::vector<FileEntry>& files() const { return state_.files; }
  uint64_t bytes() const;  // the size of all tensor files together

  // Fills into[0] with the values of `variables`, each at its offset, and into[1 + i] with their slots named
  // slots[i], at the same offsets. `into` [1 + slots][elements of the variables]. Other contents of the
  // checkpoint are ignored. FAILED_PRECONDITION naming the tensor if it is missing, has another shape (the
  // message has both) or lacks rows; DATA_LOSS naming file and tensor if its checksum does not match. After
  // an error the contents of `into` are undefined. Blocks while the disk reads.
  absl::Status Load(absl::Span<const net::VariableInfo> variables, absl::Span<const std::string> slots,
                    absl::Span<const absl::Span<float>> into) const;

  // Passes the bytes of a tensor of tensors(), in the order of its rows, in pieces of whole elements. Errors are those
  // of Load(): DATA_LOSS may come after all pieces.
  absl::Status Read(const TensorInfo& tensor, absl::FunctionRef<void(absl::Span<const char>)> piece) const;

  // Reads and checks every byte. Errors are those of Load().
  absl::Status Verify() const;

 private:
  Checkpoint(std::string directory, StateFile state, std::string model_json)
      : directory_(std::move(directory)), state_(std::move(state)), model_json_(std::move(model_json)) {}

  absl::Status ReadHeads();

  std::string directory_;
  StateFile state_;
  std::string model_json_;
  std::vector<TensorInfo> tensors_;
};

// Reads the bytes of a tensor in the order of its rows, which may be in several files, and verifies their checksums.
// One thread; keeps one file open.
class TensorReader {
 public:
  // A tensor of checkpoint.tensors() for which CheckRows() returns OK. Both must outlive the reader.
  TensorReader(const Checkpoint& checkpoint, const TensorInfo& tensor)
      : checkpoint_(checkpoint), tensor_(tensor) {}

  // Fills `into` with the next bytes; there must be so many left. Errors are those of Checkpoint::Load(): DATA_LOSS may
  // come with the last bytes of a run of rows.
  absl::Status Read(absl::Span<char> into);

 private:
  absl::Status OpenFile(const TensorRows& rows);
  absl::Status ReadSome(absl::Span<char> into);  // of the run of rows that is being read

  const Checkpoint& checkpoint_;
  const TensorInfo& tensor_;
  size_t next_ = 0;  // run of rows
  // The run of rows that is being read:
  std::optional<InputFile> input_;
  std::string where_;    // for messages
  uint64_t offset_ = 0;  // in the file
  uint64_t left_ = 0;    // bytes
  uint32_t crc_ = 0;
};

// Opens the undamaged checkpoint with the highest step; every byte is checked. `skipped` is called with the
// reason for each damaged checkpoint (DATA_LOSS, naming the directory) of a higher step. NOT_FOUND if there
// is no undamaged checkpoint. Any other error ends the search, such as FAILED_PRECONDITION for a checkpoint
// of a newer program. Blocks while the disk reads.
absl::StatusOr<Checkpoint> OpenNewest(const std::string& train_dir,
                                      absl::FunctionRef<void(const absl::Status&)> skipped);

// As OpenNewest(), for a run that continues in `train_dir`: nullopt if there are no checkpoints. If all are
// damaged, returns DATA_LOSS, so that training does not start over.
absl::StatusOr<std::optional<Checkpoint>> FindNewest(const std::string& train_dir,
                                                     absl::FunctionRef<void(const absl::Status&)> skipped);

}  // namespace cairn::worker
