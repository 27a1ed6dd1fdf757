// A session's checkpoints: the state that servers begin with or are restored to, and the writing of new ones.
//
// Created by TrainingSession on the chief, used by its thread; a thread of its own writes. Destroyed before the
// client.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/job.h"
#include "cairn/session.h"
#include "cairn/v1/job.pb.h"
#include "client/job_setup.h"
#include "client/table_states.h"
#include "client/training/job_control.h"
#include "client/training/snapshot_saver.h"
#include "common/core/clock.h"
#include "common/net/cluster/placement.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/train_dir_lock.h"

namespace cairn::api {

class Checkpoints final : public client::StateSource {
 public:
  // All of it must outlive the object.
  struct Args {
    const SessionOptions& options;
    const Job& job;
    const v1::Job& declared;
    const std::vector<net::VariableInfo>& variables;
    client::StopCheck stopped{};
  };
  // Looks for a checkpoint in the directory, if one is given. INVALID_ARGUMENT if the directory cannot be
  // used; UNAVAILABLE if another chief uses it and does not end within 10 s; FAILED_PRECONDITION if the
  // newest checkpoint has other variables, other tables, another optimizer or another work queue; DATA_LOSS if all
  // checkpoints are damaged.
  static absl::StatusOr<std::unique_ptr<Checkpoints>> Create(const Args& args);

  // client::StateSource: the newest undamaged checkpoint, else SessionOptions::first_values. ABORTED if `lost`
  // is set and there is no directory.
  absl::StatusOr<std::optional<v1::Progress>> Find(bool lost) override;
  absl::Status Load(absl::Span<const std::string> slots, absl::Span<const absl::Span<float>> into) override;
  absl::StatusOr<std::unique_ptr<client::TableSource>> OpenTables(const v1::Job& job) override;

  // Takes checkpoints as SessionOptions say, and reports what was saved and what was not. Null without a
  // directory.
  client::SnapshotSaver* saver() { return saver_.has_value() ? &*saver_ : nullptr; }
  // Lets another job of this process use the directory, when the last checkpoint has been written.
  void Unlock() { lock_.reset(); }

 private:
  explicit Checkpoints(const Args& args);
  bool enabled() const { return !options_.checkpoint_directory.empty(); }
  absl::StatusOr<std::optional<worker::Checkpoint>> Newest() const;
  absl::Status CheckSame(const worker::Checkpoint& checkpoint) const;
  absl::Status Write(const client::TakenSnapshot& taken) const;
  void Report(const std::string& text) const {
    if (options_.connect.log) options_.connect.log(text);
  }

  const SessionOptions& options_;
  const Job& job_;
  const v1::Job& declared_;
  const std::vector<net::VariableInfo>& variables_;
  const std::string mode_;
  const SteadyClock clock_;
  std::optional<worker::TrainDirLock> lock_;
  std::optional<worker::Checkpoint> found_;
  std::optional<client::SnapshotSaver> saver_;  // with a directory; last, because its thread uses the rest
};

}  // namespace cairn::api
