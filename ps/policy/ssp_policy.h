// Bounded staleness: every gradient makes an update of its own when it is complete, and a worker's clock
// counts the updates that it has made. The answer may be deferred: a worker continues only while the slowest
// live worker is at most max_staleness clocks behind it.
//
//   staged ──► Apply ──not too far ahead──► answered
//                └───deferred──► the slowest worker catches up, or leaves ──► Release: answered
//
// A deferred answer carries the values at its Release. Therefore a worker that continues at clock c has seen
// every update that any worker made at a clock below c - max_staleness. Usually it has seen more, because it
// reads the newest values (Ho et al. 2013, "More Effective Distributed ML via a Stale Synchronous Parallel
// Parameter Server", section 3).
#pragma once

#include <map>
#include <vector>

#include "ps/policy/policy.h"
#include "ps/policy/policy_core.h"

namespace cairn::ps {

class SspPolicy final : public UpdatePolicy {
 public:
  // `config` as MakePolicy() accepts it.
  explicit SspPolicy(const PolicyConfig& config)
      : config_(config), core_(config), clocks_(config.initial_clocks) {
    FindSlowest();
  }

  std::vector<Decision> OnJoin(int worker, uint64_t incarnation) override;
  std::vector<Decision> OnLeave(int worker, uint64_t incarnation) override;
  std::vector<Decision> OnGradient(const Gradient& gradient) override;
  std::vector<Decision> OnEnd() override;
  int64_t version() const override { return core_.version; }
  // The workers at the slowest clock while an answer is deferred; otherwise empty.
  NextUpdate next_update() const override;
  int64_t ClockOf(int worker) const override;
  const UpdateCounters& counters() const override { return core_.counters; }
  google::protobuf::Any Save() const override;
  absl::Status Load(const google::protobuf::Any& state) override;

 private:
  bool MayGoOn(int worker) const { return ClockOf(worker) - slowest_ <= *config_.max_staleness; }
  // Sets slowest_ to the slowest clock of the live workers and of the expected workers that have neither
  // joined nor left; those are at their initial clocks.
  void FindSlowest();
  void ReleaseAnswerOf(int worker, std::vector<Decision>& decisions);
  // Releases the answers that need not wait any more, in worker order.
  void ReleaseAnswers(std::vector<Decision>& decisions);

  const PolicyConfig config_;
  PolicyCore core_;
  std::map<int, int64_t> clocks_;    // [worker]: gradients applied, in all its lives; see OnJoin()
  int64_t slowest_ = 0;              // the slowest clock, from FindSlowest(); never falls
  std::map<int, PushKey> deferred_;  // [worker]: the push that is applied and not answered
};

}  // namespace cairn::ps
