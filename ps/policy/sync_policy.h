// Synchronous rounds: an update is the mean over one gradient from each of several workers, all computed from
// the current version.
//
//   waiting for expected workers ──all joined once (or left)──► round open ──enough staged──► closed: Apply
//                                                                   ▲                           │
//                                                                   └─────── version + 1 ───────┘
//
// A round needs min(replicas_to_aggregate, live workers) gradients and takes the first that arrive.
// With backup workers (replicas_to_aggregate below the number of workers), the late gradients are
// refused as stale.
#pragma once

#include <vector>

#include "ps/policy/policy.h"
#include "ps/policy/policy_core.h"

namespace cairn::ps {

class SyncPolicy final : public UpdatePolicy {
 public:
  // `config` as MakePolicy() accepts it.
  explicit SyncPolicy(const PolicyConfig& config) : config_(config), core_(config) {}

  std::vector<Decision> OnJoin(int worker, uint64_t incarnation) override;
  std::vector<Decision> OnLeave(int worker, uint64_t incarnation) override;
  std::vector<Decision> OnGradient(const Gradient& gradient) override;
  std::vector<Decision> OnEnd() override;
  int64_t version() const override { return core_.version; }
  NextUpdate next_update() const override;
  const UpdateCounters& counters() const override { return core_.counters; }
  google::protobuf::Any Save() const override;
  absl::Status Load(const google::protobuf::Any& state) override;

 private:
  bool Started() const;  // every expected worker has joined or left
  // The number of gradients that the open round needs.
  int RoundSize() const;
  const Gradient* StagedOf(int worker) const;  // null if there is none
  void RefuseStaged(int worker, Refuse::Reason reason, std::vector<Decision>& decisions);
  void CloseRoundIfComplete(std::vector<Decision>& decisions);
  // Counts `decisions` and returns them.
  std::vector<Decision> Counted(std::vector<Decision> decisions);

  const PolicyConfig config_;
  PolicyCore core_;
  // Gradients of the open round, in order of arrival, at most one per live worker.
  std::vector<Gradient> staged_;
};

}  // namespace cairn::ps
