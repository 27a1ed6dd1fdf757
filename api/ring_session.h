// A worker of a group without servers: its gradients, the current step, and its membership in the ring of workers
// (worker/allreduce/member.h). AllReduce (include/cairn/all_reduce.h) documents every call and exposes it.
//
// All calls come from one thread at a time, except Announce() and Cancel() (any thread).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "api/announcements.h"
#include "cairn/all_reduce.h"
#include "cairn/job.h"
#include "cairn/session.h"
#include "common/core/clock.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/cluster/placement.h"
#include "common/net/data_channel/shared_memory/shared_buffer.h"
#include "worker/allreduce/member.h"
#include "worker/allreduce/ring.h"
#include "worker/peer/peer_listener.h"

namespace cairn::api {

class RingSession {
 public:
  static absl::StatusOr<std::unique_ptr<RingSession>> Open(const Job& job, const AllReduceOptions& options);
  ~RingSession();

  absl::Span<float> gradients() { return gradients_.span(); }
  absl::Span<float> gradients(int variable);
  int64_t version() const { return version_; }

  absl::Status BeginStep(int64_t examples, bool done);
  absl::Status Announce(int variable);
  absl::StatusOr<AllReduceStep> FinishStep();
  absl::Status CancelStep(bool* loaded);

  AllReduce::Mean mean();
  absl::Status AwaitSent();

  absl::Status Recover(const absl::Status& failure, bool* loaded);
  absl::Status End();
  void Leave(LeaveReason reason, const std::string& message);
  void Cancel();

 private:
  enum class StepState { kNone, kBegun, kFinishing };

  RingSession(std::vector<net::VariableInfo> variables, AllReduceOptions options, int64_t size);
  absl::Status Start(const Job& job);
  // Forms the ring, and loads the state of the worker that is farthest, if that is another one.
  absl::Status Join(bool* loaded);
  absl::Status Enter(const allreduce::Agreement& agreement, bool* loaded);
  v1::RingState Mine() const;
  absl::StatusOr<std::shared_ptr<const AlignedBuffer>> Pack() const;
  absl::Status Load(const AlignedBuffer& state) const;
  absl::StatusOr<allreduce::Ring::Step> Await();
  // Runs `call`, which waits for other workers, on another thread if the program may end the wait: it is to return when
  // the flag is set. CANCELLED if the program has ended the wait, whatever `call` returned.
  absl::Status Wait(absl::AnyInvocable<absl::Status(const std::atomic<bool>* stop)> call);
  bool KeepsWaiting() const { return !options_.connect.keep_waiting || options_.connect.keep_waiting(); }

  const std::vector<net::VariableInfo> variables_;
  const AllReduceOptions options_;
  const std::string name_;  // "worker/1"
  net::SharedBuffer gradients_;
  std::unique_ptr<allreduce::Member> member_;
  std::unique_ptr<worker::PeerListener> listener_;  // null: one worker, or it has left; ends before member_

  bool has_left_ = false;
  // The state that this worker had, or took over, when it joined.
  std::string run_id_;
  bool trained_ = false;
  int64_t version_ = 0;
  int64_t joined_version_ = -1;
  int recoveries_ = 0;  // without a step in between

  // The current step, and the last one's mean.
  std::shared_ptr<allreduce::Ring> ring_;
  int64_t ring_epoch_ = 0;
  std::atomic<StepState> state_{StepState::kNone};
  TimePoint deadline_;  // of FinishStep()
  Announcements announced_;
  allreduce::Ring::Step last_;
};

}  // namespace cairn::api
