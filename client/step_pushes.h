// The pushes of one step, one to each server: sends gradients as they are announced, receives the values in
// the answers into a buffer, and repeats pushes that were lost on the way.
//
//   Begin ─► Announce... ─► End ─► Await ─► Settle        Drop: after a step that failed
//
// All calls come from one thread, except Announce and Wake (any thread).
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
#include "client/gradients/arrivals.h"
#include "client/gradients/compressed_gradients.h"
#include "client/gradients/wire_metrics.h"
#include "client/job_setup.h"
#include "client/transport/connection.h"
#include "client/transport/server_session.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/cluster/placement.h"
#include "common/trace/trace.h"

namespace cairn::client {

class StepPushes {
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
  };
  struct Step {
    int worker = 0;
    uint64_t incarnation = 0;
    int64_t number = 0;  // 1 for the first of this client
    // Gradients of all variables; valid until all answers have arrived, or Drop().
    absl::Span<const float> gradients;
    int64_t examples = 0;                     // 0: no gradients
    int64_t position = 0;                     // PushBegin.position
    absl::Span<const int64_t> base_versions;  // [server], copied
    absl::Span<float> values;  // receives the values of all variables; valid as long as `gradients`
  };

  // `connection` must outlive this object.
  StepPushes(Connection& connection, Options options);
  ~StepPushes() { Drop(); }
  StepPushes(const StepPushes&) = delete;
  StepPushes& operator=(const StepPushes&) = delete;

  // Sets the job of the following steps. `job` and `variables` must stay unchanged until the next call.
  // INVALID_ARGUMENT if an encoding is unknown here or does not suit the variables.
  absl::Status Learn(const LearntJob& job, const std::vector<net::VariableInfo>& variables)
      ABSL_LOCKS_EXCLUDED(mutex_);

  void Begin(const Step& step) ABSL_LOCKS_EXCLUDED(mutex_);
  // The gradient of this variable is final. To be called once per variable, between Begin and End.
  void Announce(int variable) ABSL_LOCKS_EXCLUDED(mutex_);
  // All gradients have been announced.
  void End() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for the answers, [server]. Reopens broken streams and repeats their pushes until the step's time
  // limit, which counts from End(). After the limit, DEADLINE_EXCEEDED or UNAVAILABLE; the error names the
  // server and the workers that the round waits for. ABORTED if a server has been restarted. Otherwise the
  // error of Options::failure.
  absl::StatusOr<std::vector<v1::Done>> Await() ABSL_LOCKS_EXCLUDED(mutex_);
  // Passes the outcomes to the compression: if a push is in no update, the residual of its shard does not
  // change.
  void Settle(absl::Span<const v1::Done> answers) ABSL_LOCKS_EXCLUDED(mutex_);
  // After End(): waits until the new values of the variable are in Step::values. Returns false if they will
  // not all arrive before the answers, or if the wait takes long.
  bool AwaitValues(int variable) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the values that AwaitValues() announced are those of the answers. Otherwise the values are
  // incomplete.
  bool values_intact() const { return arrivals_.intact(); }
  // Closes the streams: no data of the step is sent or received afterwards. Gives a gradient in a
  // SharedBuffer new pages (SharedBuffer::Renew), because a server may still read the old ones.
  void Drop() ABSL_LOCKS_EXCLUDED(mutex_);

  // Makes waiting calls check Options::failure again, and whether shards have moved.
  void Wake() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Push {
    std::unique_ptr<ServerSession> session;
    std::map<v1::Encoding, std::vector<net::Extent>> announced;  // not sent yet
    size_t compressed_sent = 0;                                  // how many of compressed_->ready() were sent
    int64_t announced_elements = 0;                              // elements of `announced`
    uint64_t request_id = 0;
    int moves = 0;  // Connection::moves() of the session
    std::optional<absl::StatusOr<v1::Done>> done;
    // When the first gradient and when all gradients were sent, in nanoseconds, if the step is traced; 0: not
    // yet.
    int64_t began = 0, sent = 0;
    int64_t bytes = 0;
  };
  struct Unanswered {
    std::vector<int> waiting;  // servers that have not answered
    std::vector<int> failed;   // servers whose answer is a failure, or whose stream broke
    // The first failure that is not UNAVAILABLE or, if there is none, the first failure; names the server.
    absl::Status failure;
  };
  // When the first values of an answer arrived: set by one callback of a stream, read by a later one. Null:
  // not traced.
  using FirstValuesAt = std::shared_ptr<int64_t>;

  void Start(int server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  class AnswerSink;  // receives the values of one server's answer
  ServerSession::OnDone OnDone(int server, uint64_t attempt, FirstValuesAt first_values);
  void Answered(int server, absl::StatusOr<v1::Done> result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes waiting calls check again.
  void Rouse() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits until the server has answered, Rouse() is called, or `deadline`.
  void AwaitChange(int server, TimePoint deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Queues `extent` of a variable to be sent in `encoding`.
  void Announce(const net::Extent& extent, v1::Encoding encoding) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendAnnounced(int server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Records that all gradients for `server` have been sent: the start of the push's arrow in the trace.
  void TracePush(int server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Records the answer. `first_values`: when its values began to arrive, in nanoseconds; 0: it had none.
  void TraceAnswer(int server, int64_t first_values) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Unanswered FindUnanswered() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Repeat(int server) ABSL_LOCKS_EXCLUDED(mutex_);

  Connection& connection_;
  const Options options_;

  // Set by Learn() and Begin().
  const LearntJob* job_ = nullptr;
  const std::vector<net::VariableInfo>* variables_ = nullptr;
  // [variable] The encoding of a gradient that is not compressed. Variables of compressed_ have float32 here:
  // it is used when one of their gradients cannot be compressed.
  std::vector<v1::Encoding> encodings_;
  std::vector<AlignedBuffer> encoded_;  // [server] gradients in 16 bits that are being sent
  Step step_;
  bool unanswered_ = false;  // a server may still read step_.gradients in place
  std::vector<int64_t> base_versions_;
  bool traced_ = false;
  TimePoint deadline_;    // the deadline of the answers
  int moves_at_end_ = 0;  // Connection::moves()
  Arrivals arrivals_;     // outlives the sessions

  mutable Mutex mutex_;
  CondVar changed_;
  uint64_t attempt_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t roused_ ABSL_GUARDED_BY(mutex_) = 0;       // number of calls of Rouse()
  std::vector<Push> pushes_ ABSL_GUARDED_BY(mutex_);  // [server]
  // Null if no gradient is compressed.
  std::unique_ptr<CompressedGradients> compressed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::client
