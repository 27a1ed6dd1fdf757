// A worker of a training job: its client and checkpoints, the current step, and the training loop
// (client/training/training_loop.h). Session (include/cairn/session.h) documents every call and exposes it.
//
// All calls come from one thread at a time, except Announce() and Cancel() (any thread).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "api/announcements.h"
#include "api/checkpoints.h"
#include "api/servers.h"
#include "api/tables.h"
#include "cairn/job.h"
#include "cairn/rows.h"
#include "cairn/session.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/session.pb.h"
#include "client/training/job_control.h"
#include "client/training/training_client.h"
#include "client/training/training_loop.h"
#include "client/transport/connection.h"
#include "common/core/clock.h"
#include "common/net/cluster/placement.h"
#include "common/net/data_channel/shared_memory/shared_buffer.h"

namespace cairn::api {

class TrainingSession {
 public:
  // How the servers are reached: ReachServers(), or a test's own servers.
  using Reach = std::function<absl::StatusOr<std::unique_ptr<client::Connection>>(const ReachArgs&)>;
  static absl::StatusOr<std::unique_ptr<TrainingSession>> Open(const Job& job, const SessionOptions& options,
                                                               const Reach& reach = &ReachServers);
  ~TrainingSession();

  absl::Status Run(absl::FunctionRef<absl::Status()> step);

  absl::Span<const float> values() const { return client_->steps().parameters(); }
  // The elements of a variable in the array of all values. The index must be valid.
  struct Range {
    size_t begin = 0, count = 0;
  };
  Range range_of(int variable) const;
  client::ServerSteps& steps() { return client_->steps(); }
  const client::ServerSteps& steps() const { return client_->steps(); }
  absl::Span<float> gradients() { return gradients_.span(); }
  bool finished() const { return loop_->finished(); }
  bool ended() const { return loop_->ended(); }
  int64_t position() const { return loop_->position(); }
  int worker() const { return client_->worker(); }

  absl::Status BeginStep(int64_t examples, absl::Span<const float> gradients);
  absl::Status Announce(int variable);
  absl::StatusOr<client::StepResult> FinishStep();
  // Nullopt: the step has not ended at `until`.
  absl::StatusOr<std::optional<client::StepResult>> FinishStepUntil(TimePoint until);
  absl::Status CancelStep();
  absl::Status AwaitWork();
  absl::Status Pull();

  absl::Status ReadRows(absl::Span<const RowsToRead> rows);
  absl::Status PushRows(absl::Span<const RowGradients> gradients);
  absl::Status WantRows(absl::Span<const RowsToRead> rows);
  bool has_wanted_rows() const { return rows_ == RowsState::kArrived; }

  absl::Status Recover(const absl::Status& failure);
  absl::Status End();
  void Leave(v1::LeaveReason reason, const std::string& message);
  void Cancel();

  // The chief's control. FAILED_PRECONDITION on other workers.
  absl::StatusOr<client::JobControl*> Control();
  absl::Status SaveCheckpoint();
  absl::Status SetGroups(std::vector<v1::GroupSettings> groups);
  absl::StatusOr<TableContents> ReadTable(int table);
  absl::StatusOr<OptimizerState> ReadOptimizerState();

 private:
  // Whether the program wants waits to end. Called by the thread that waits.
  bool stopped() const {
    return cancelled_ || (options_.connect.keep_waiting && !options_.connect.keep_waiting());
  }
  client::ReadLimit SnapshotLimit();
  // Takes a snapshot when no checkpoint is being written, and calls use(); again if it may be retried.
  absl::Status UseSnapshot(absl::string_view what,
                           absl::FunctionRef<absl::Status(const client::TakenSnapshot&)> use);
  enum class StepState { kNone, kBegun, kFinishing };
  enum class RowsState { kNone, kWanted, kArrived };  // the rows that WantRows() named

  TrainingSession(const Job& job, const SessionOptions& options);
  absl::Status Start(const Reach& reach);
  bool chief() const { return options_.worker == 0; }
  // Called when this worker has become a member.
  absl::Status OnJoined();
  // FAILED_PRECONDITION if a step is in progress.
  absl::Status CheckNoStep(const char* call) const;
  // FAILED_PRECONDITION unless a step has begun, and `call` has not been made in it.
  absl::Status CheckRowsOfStep(const char* call, bool made) const;
  void DropStep();

  const Job job_;
  const SessionOptions options_;
  const std::string task_;
  v1::Job declared_;
  std::vector<net::VariableInfo> variables_;
  std::atomic<bool> cancelled_{false};
  std::unique_ptr<client::TrainingClient> client_;
  std::unique_ptr<Checkpoints> checkpoints_;  // the chief's; destroyed before client_
  std::optional<client::TrainingLoop> loop_;  // destroyed before what it refers to
  net::SharedBuffer gradients_;

  std::vector<v1::GroupSettings> groups_;  // as set last; empty: never

  // The current step.
  std::atomic<StepState> state_{StepState::kNone};
  client::StepPushes* step_ = nullptr;
  RowsState rows_ = RowsState::kNone;
  bool rows_pushed_ = false;
  Announcements announced_;
};

}  // namespace cairn::api
