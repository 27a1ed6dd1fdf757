// Any policy, of a server to which data is not handed out and which decides for itself all the same: counts
// which examples its updates are made of, so that what it lacks, or has twice, can be told.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ps/policy/policy.h"
#include "ps/policy/work_queue.h"

namespace cairn::ps {

class TalliedPolicy final : public UpdatePolicy {
 public:
  // `resumed`: what is behind the job already.
  TalliedPolicy(std::unique_ptr<UpdatePolicy> policy, const WorkPosition& resumed);

  std::vector<Decision> OnJoin(int worker, uint64_t incarnation) override {
    return Counted(policy_->OnJoin(worker, incarnation));
  }
  std::vector<Decision> OnLeave(int worker, uint64_t incarnation) override {
    return Counted(policy_->OnLeave(worker, incarnation));
  }
  std::vector<Decision> OnGradient(const Gradient& gradient) override {
    return Counted(policy_->OnGradient(gradient));
  }
  std::vector<Decision> OnEnd() override { return policy_->OnEnd(); }

  int64_t version() const override { return policy_->version(); }
  std::vector<int> WaitingFor() const override { return policy_->WaitingFor(); }
  int64_t ClockOf(int worker) const override { return policy_->ClockOf(worker); }
  const UpdateCounters& counters() const override { return policy_->counters(); }
  std::optional<WorkPosition> position() const override;
  PolicyState Save() const override;
  void Restore(const PolicyState& state) override;

 private:
  std::vector<Decision> Counted(std::vector<Decision> decisions);
  void Count(int64_t begin, int64_t end);

  const std::unique_ptr<UpdatePolicy> policy_;
  int64_t next_;                     // of the examples that were used, the last one's successor
  std::map<int64_t, int64_t> gaps_;  // before it: [begin] the end of a run that was not
  int64_t repeated_;                 // used when they had been used
};

}  // namespace cairn::ps
