// The tables of a job on their way between its servers and a checkpoint. They are read and written in pieces.
//
// One thread; blocks while the disk writes or reads.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/snapshot.h"
#include "client/table_states.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/tables.h"
#include "worker/checkpoint/writer.h"

namespace cairn::worker {

// Writes the tables of a snapshot. Errors are those of CheckpointWriter.
class TablesToCheckpoint final : public client::TableSink {
 public:
  // `writer` must outlive the object.
  explicit TablesToCheckpoint(CheckpointWriter& writer) : writer_(writer) {}
  absl::Status Begin(const client::Snapshot& snapshot, const client::TableSizes& sizes) override;
  absl::Status Add(int server, int table, absl::Span<const float> piece) override;

 private:
  CheckpointWriter& writer_;
};

// Reads the tables of a checkpoint for so many servers. Errors are those of TableStates.
class StoredTables final : public client::TableSource {
 public:
  // `checkpoint` must outlive the source.
  static absl::StatusOr<std::unique_ptr<client::TableSource>> Open(const Checkpoint& checkpoint, int servers);
  const client::TableSizes& sizes() const override { return states_->sizes(); }
  absl::StatusOr<int64_t> Read(int server, int table, absl::Span<float> into) override;

 private:
  explicit StoredTables(std::unique_ptr<TableStates> states);
  const std::unique_ptr<TableStates> states_;
};

}  // namespace cairn::worker
