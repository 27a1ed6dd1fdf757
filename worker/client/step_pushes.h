// The pushes of one step, one to each server: gradients go as they are announced, the values of the answers
// come into a buffer, and what is lost on the way is sent again.
//
//   Begin ─► Announce... ─► End ─► Await ─► Settle        Drop: after a step that failed
//
// Calls come from one thread, but for Announce and Wake (any).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/session.pb.h"
#include "common/core/aligned_buffer.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/core/trace.h"
#include "common/net/placement.h"
#include "worker/client/arrivals.h"
#include "worker/client/compressed_gradients.h"
#include "worker/client/connection.h"
#include "worker/client/job_setup.h"
#include "worker/client/server_session.h"
#include "worker/client/wire_meters.h"

namespace cairn::client {

class StepPushes {
 public:
  struct Options {
    std::string task;  // "worker/0"
    Duration step_timeout;
    TraceRecorder* trace = nullptr;  // may be
    WireMeters* wire = nullptr;      // may be
    // What heartbeats have found, asked while answers are awaited: why none should be; for whom the round
    // waits, as ps/0 said.
    std::function<absl::Status()> failure;
    std::function<std::string()> waiting_for;
  };
  struct Step {
    int worker = 0;
    uint64_t incarnation = 0;
    int64_t number = 0;                       // 1 for the first of this client
    absl::Span<const float> gradients;        // of all variables; valid until the answers are here or Drop()
    int64_t examples = 0;                     // 0: no gradients
    int64_t position = 0;                     // PushBegin.position
    absl::Span<const int64_t> base_versions;  // [server], copied
    absl::Span<float> values;                 // of all variables: where the answers' go; valid as `gradients`
  };

  // `connection` outlives it.
  StepPushes(Connection& connection, Options options);
  ~StepPushes() { Drop(); }
  StepPushes(const StepPushes&) = delete;
  StepPushes& operator=(const StepPushes&) = delete;

  // Which job the steps from now on are of; `job` and `variables` stay as they are until the next call.
  // INVALID_ARGUMENT for encodings that are unknown here or do not suit the variables.
  absl::Status Learn(const LearntJob& job, const std::vector<net::VariableInfo>& variables)
      ABSL_LOCKS_EXCLUDED(mutex_);

  void Begin(const Step& step) ABSL_LOCKS_EXCLUDED(mutex_);
  // The gradient of this variable is final. Once for each between Begin and End.
  void Announce(int variable) ABSL_LOCKS_EXCLUDED(mutex_);
  // All are.
  void End() ABSL_LOCKS_EXCLUDED(mutex_);
  // The answers [server]. Broken streams are opened again and pushes repeated until the step's limit after
  // End(): DEADLINE_EXCEEDED or UNAVAILABLE then name the server and what the round waits for. ABORTED when a
  // server has been restarted; what Options::failure says.
  absl::StatusOr<std::vector<v1::Done>> Await() ABSL_LOCKS_EXCLUDED(mutex_);
  // Of the answers, those that are parts of updates: what compression left out of the others is kept for the
  // next step.
  void Settle(absl::Span<const v1::Done> answers) ABSL_LOCKS_EXCLUDED(mutex_);
  // After End(): waits until the variable's new values are in Step::values. False: they will not be before
  // the answers are here.
  bool AwaitValues(int variable) ABSL_LOCKS_EXCLUDED(mutex_);
  // What AwaitValues() told of is what the answers left; else they are incomplete.
  bool values_intact() const { return arrivals_.intact(); }
  // Ends the streams: nothing of a step is sent or received any more.
  // Of a SharedBuffer the gradients then lie in other pages (SharedBuffer::Renew).
  void Drop() ABSL_LOCKS_EXCLUDED(mutex_);

  // Who waits looks anew at Options::failure, and at where the servers' parts are.
  void Wake() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Push {
    std::unique_ptr<ServerSession> session;
    std::map<v1::Encoding, std::vector<net::Extent>> announced;  // not sent yet
    size_t compressed_sent = 0;                                  // of compressed_->ready()
    int64_t announced_elements = 0;                              // or floats, of what is compressed
    uint64_t request_id = 0;
    int moves = 0;  // Connection::moves() of the session
    std::optional<absl::StatusOr<v1::Done>> done;
    // Nanoseconds, where the step is recorded: when its first gradient was sent, and all were; 0: not yet.
    int64_t began = 0, sent = 0;
    int64_t bytes = 0;
  };
  struct Unanswered {
    std::vector<int> waiting;  // servers that have not answered
    std::vector<int> failed;   // servers whose answer is a failure, or whose stream broke
    absl::Status failure;      // of one of those: the first that is not UNAVAILABLE, else the first; names it
  };
  // When the first values of an answer came: set by one callback of a stream, read by a later one. Null: not
  // wanted.
  using FirstValuesAt = std::shared_ptr<int64_t>;

  void Start(int server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  class AnswerSink;  // takes the values of one server's answer
  ServerSession::OnDone OnDone(int server, uint64_t attempt, FirstValuesAt first_values);
  void Answered(int server, absl::StatusOr<v1::Done> result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Who waits, looks anew.
  void Rouse() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Until the server has answered, somebody has called Rouse(), or `deadline`.
  void AwaitChange(int server, TimePoint deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `extent` of a variable in `encoding`, to be sent soon.
  void Announce(const net::Extent& extent, v1::Encoding encoding) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendAnnounced(int server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // All gradients for `server` have been sent: where the push's arrow begins.
  void TracePush(int server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Its answer is here; `first_values`, nanoseconds, is when they began to come, 0: there were none.
  void TraceAnswer(int server, int64_t first_values) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Unanswered FindUnanswered() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Repeat(int server) ABSL_LOCKS_EXCLUDED(mutex_);

  Connection& connection_;
  const Options options_;

  // Set by Learn() and Begin().
  const LearntJob* job_ = nullptr;
  const std::vector<net::VariableInfo>* variables_ = nullptr;
  // Of gradients [variable]: for those that compressed_ has but must travel whole, float32.
  std::vector<v1::Encoding> encodings_;
  std::vector<AlignedBuffer> encoded_;  // [server] gradients on their way in 16 bits
  Step step_;
  bool unanswered_ = false;  // a server may use step_.gradients where they are
  std::vector<int64_t> base_versions_;
  bool traced_ = false;
  TimePoint deadline_;    // of the answers
  int moves_at_end_ = 0;  // Connection::moves()
  Arrivals arrivals_;     // outlives the sessions

  mutable Mutex mutex_;
  CondVar changed_;
  uint64_t attempt_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t roused_ ABSL_GUARDED_BY(mutex_) = 0;       // times
  std::vector<Push> pushes_ ABSL_GUARDED_BY(mutex_);  // [server]
  // Null where all gradients travel whole.
  std::unique_ptr<CompressedGradients> compressed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::client
