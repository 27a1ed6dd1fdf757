// Wraps the policy of a server that decides for itself while another server assigns the data. Counts which
// examples its updates use, so that missed and repeated examples can be reported.
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
  // `resumed`: the position from which the job is resumed.
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
  NextUpdate next_update() const override { return policy_->next_update(); }
  int64_t ClockOf(int worker) const override { return policy_->ClockOf(worker); }
  const UpdateCounters& counters() const override { return policy_->counters(); }
  std::optional<WorkPosition> position() const override;
  google::protobuf::Any Save() const override;
  absl::Status Load(const google::protobuf::Any& state) override;

 private:
  std::vector<Decision> Counted(std::vector<Decision> decisions);
  void Count(int64_t begin, int64_t end);

  const std::unique_ptr<UpdatePolicy> policy_;
  int64_t next_;                     // the first example after all used ones
  std::map<int64_t, int64_t> gaps_;  // unused runs before `next_`: begin -> end
  int64_t repeated_;                 // examples that were used again
};

}  // namespace cairn::ps
