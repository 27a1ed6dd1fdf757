// The pushes of one step, one to each server: sends gradients as they are announced, receives the values in
// the answers into a buffer, and repeats pushes that were lost on the way. Gradients of rows are a part of the
// pushes, and the answers may bring rows.
//
//   Begin ─► Announce, PushRows, WantRows... ─► [ComingParameters ─► AwaitComing...] ─► Finish
//                                                                      Drop: after a step that failed
//
// All calls come from one thread, except Announce, MeanOverWorkers and Wake (any thread).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cairn/v1/session.pb.h"
#include "client/gradients/arrivals.h"
#include "client/gradients/outgoing_gradients.h"
#include "client/gradients/wire_metrics.h"
#include "client/job_setup.h"
#include "client/rows/arriving_rows.h"
#include "client/rows/outgoing_rows.h"
#include "client/rows/row_exchange.h"
#include "client/rows/row_tables.h"
#include "client/training/batch_means.h"
#include "client/training/push_repeats.h"
#include "client/training/step_exchange.h"
#include "client/training/step_trace.h"
#include "client/transport/connection.h"
#include "client/transport/server_session.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/net/cluster/placement.h"
#include "common/trace/trace.h"

namespace cairn::client {

class StepPushes final : public Step {
 public:
  struct Options {
    std::string task;  // "worker/0"
    Duration step_timeout;
    TraceRecorder* trace = nullptr;  // may be null
    WireMetrics* wire = nullptr;     // may be null
    // The findings of the heartbeats, queried while answers are awaited. `failure`: the reason to give up;
    // `waiting_for`: the workers that the round waits for, according to ps/0.
    std::function<absl::Status()> failure;
    std::function<std::string()> waiting_for;
    // JoinedJob::Persist().
    std::function<absl::Status(absl::FunctionRef<absl::Status()>)> persist;
    // Called by Finish() with the answers of all servers, [server], none of which is a rejection: makes the
    // values after the step the current ones. Outside the lock.
    std::function<absl::StatusOr<StepResult>(absl::Span<const v1::Done>)> settle;
  };
  struct Input {
    int worker = 0;
    uint64_t incarnation = 0;
    int64_t number = 0;  // 1 for the first of this client
    // Gradients of all variables; valid until all answers have arrived, or Drop().
    absl::Span<const float> gradients;
    int64_t examples = 0;                          // 0: no gradients
    int64_t position = 0;                          // PushBegin.position
    absl::Span<const v1::GroupSettings> groups{};  // PushBegin.groups, copied
    absl::Span<const int64_t> base_versions;       // [server], copied
    absl::Span<float> values;  // receives the values of all variables; valid as long as `gradients`
  };

  // `connection` must outlive this object.
  StepPushes(Connection& connection, Options options);
  ~StepPushes() override { Drop(); }
  StepPushes(const StepPushes&) = delete;
  StepPushes& operator=(const StepPushes&) = delete;

  // Sets the job of the following steps. The arguments must stay unchanged until the next call.
  // INVALID_ARGUMENT if an encoding is unknown here or does not suit the variables.
  absl::Status Learn(const LearntJob& job, const std::vector<net::VariableInfo>& variables,
                     const RowTables& tables) ABSL_LOCKS_EXCLUDED(mutex_);
  void Begin(const Input& step) ABSL_LOCKS_EXCLUDED(mutex_);
  // As in RowExchange.
  absl::Status PushRows(absl::Span<const RowGradients> gradients) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status WantRows(absl::Span<const RowValues> rows) ABSL_LOCKS_EXCLUDED(mutex_);

  // --- Step ---

  void Announce(int variable) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status MeanOverWorkers(absl::Span<double> values) override { return batch_means_.Mean(values); }
  absl::Status SkipMeans() override { return batch_means_.Skip(); }
  // All gradients have been announced. Returns Input::values.
  absl::Span<const float> ComingParameters() override ABSL_LOCKS_EXCLUDED(mutex_);
  // After ComingParameters(): also returns false if the wait takes long.
  bool AwaitComing(int variable) override ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for the answers, and settles the step. Reopens broken streams and repeats their pushes until the
  // step's time limit, which counts from the last Announce(). After the limit, DEADLINE_EXCEEDED or
  // UNAVAILABLE; the error names the server and the workers that the round waits for. ABORTED if a server has
  // been restarted or this worker has lost its lease. Otherwise the error of Options::failure or settle. After
  // an error the streams are closed.
  absl::StatusOr<StepResult> Finish() override ABSL_LOCKS_EXCLUDED(mutex_);
  // As Finish(), but may also return nullopt at about `until`: another call then goes on. While a server that
  // failed is asked whether it is back, a call may take up to 10 s longer.
  absl::StatusOr<std::optional<StepResult>> FinishUntil(TimePoint until) ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether the values that AwaitComing() announced are those of the answers. Otherwise the values are
  // incomplete.
  bool values_intact() const { return arrivals_.intact(); }
  // When all servers have answered: whether the answers have brought all wanted rows.
  bool rows_arrived() const { return arriving_rows_.complete(connection_.num_servers()); }
  // The arguments of WantRows() in this step.
  std::vector<RowValues> wanted_rows() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Closes the streams: no data of the step is sent or received afterwards. Gives a gradient in a
  // SharedBuffer new pages (SharedBuffer::Renew), because a server may still read the old ones.
  void Drop() ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes waiting calls check Options::failure again, and whether shards have moved.
  void Wake() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using FirstValuesAt = StepTrace::FirstValuesAt;
  struct Push {
    std::unique_ptr<ServerSession> session;
    uint64_t request_id = 0;
    int moves = 0;  // Connection::moves() of the session
    std::optional<absl::StatusOr<v1::Done>> done;
  };
  Push& push(int server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return pushes_[static_cast<size_t>(server)];
  }
  const Push& push(int server) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return pushes_[static_cast<size_t>(server)];
  }

  void Start(int server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ServerSession::OnDone OnDone(int server, uint64_t attempt, FirstValuesAt first_values);
  void Answered(int server, absl::StatusOr<v1::Done> result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes waiting calls check again.
  void Rouse() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits until the server has answered, Rouse() is called, or `deadline`.
  void AwaitChange(int server, TimePoint deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sends the gradients that are queued for the server.
  void Send(int server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sends the rows that have not been sent to the server.
  void SendRows(int server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendRowsToAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // All gradients have been announced: sends the rest, and the end of each push.
  void End() ABSL_LOCKS_EXCLUDED(mutex_);
  std::string Name() const { return absl::StrCat("step ", step_.number); }
  std::string Context() const { return absl::StrCat(Name(), " of ", options_.task); }

  Unanswered FindUnanswered() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // PushRepeats::Wait.
  absl::StatusOr<Unanswered> AwaitAnswersOrFailure(TimePoint until, TimePoint* next_report)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until `until` for the answers, and repeats pushes. Returns whether all servers have answered.
  absl::StatusOr<bool> Await(TimePoint until) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Repeat(int server) ABSL_LOCKS_EXCLUDED(mutex_);
  // All servers have answered.
  absl::StatusOr<StepResult> Conclude() ABSL_LOCKS_EXCLUDED(mutex_);

  Connection& connection_;
  const Options options_;

  // Set by Learn() and Begin().
  const LearntJob* job_ = nullptr;
  Input step_;
  bool ended_ = true;        // End() has been called for the step
  bool unanswered_ = false;  // a server may still read step_.gradients in place
  std::vector<int64_t> base_versions_;
  std::vector<v1::GroupSettings> groups_;
  TimePoint deadline_;                  // the deadline of the answers
  std::optional<PushRepeats> repeats_;  // of the step, from its first wait for the answers on
  int moves_at_end_ = 0;                // Connection::moves()
  BatchMeans batch_means_;
  Arrivals arrivals_;           // outlives the sessions
  ArrivingRows arriving_rows_;  // outlives the sessions

  mutable Mutex mutex_;
  CondVar changed_;
  StepTrace trace_ ABSL_GUARDED_BY(mutex_);
  // Set by Learn().
  std::unique_ptr<OutgoingGradients> outgoing_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<OutgoingRows> outgoing_rows_ ABSL_GUARDED_BY(mutex_);
  uint64_t attempt_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t roused_ ABSL_GUARDED_BY(mutex_) = 0;       // number of calls of Rouse()
  std::vector<Push> pushes_ ABSL_GUARDED_BY(mutex_);  // [server]
};

}  // namespace cairn::client
