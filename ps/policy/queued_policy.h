// Adds dynamic sharding to any policy: each push is made from a work item, which is done when the push is in
// an update, and returns to the queue when its worker leaves. Therefore each example of an epoch is in
// exactly one update, even if workers join and leave.
//
// A worker receives its items with an answer: when it joins, and when its push is decided or released. There
// may be no item for the worker at that time, because other workers have the last ones or too few workers
// have joined. The worker then gets the next item that becomes free. The update that uses the last item is
// the job's last.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "ps/policy/policy.h"
#include "ps/policy/work_queue.h"

namespace cairn::ps {

class QueuedPolicy final : public UpdatePolicy {
 public:
  struct Config {
    // Each update contains one gradient of every worker. In each round, all workers get items of one epoch,
    // in worker order.
    bool rounds = false;
    // With rounds: these workers have an item before they join, so that the order of joining makes
    // no difference.
    int expected_workers = 0;
    // Below this number of workers, no work is assigned.
    int min_workers = 1;
    std::optional<int64_t> final_version = std::nullopt;  // as in PolicyConfig
    int most_workers = std::numeric_limits<int>::max();   // as in PolicyConfig
  };
  QueuedPolicy(std::unique_ptr<UpdatePolicy> policy, WorkQueue queue, const Config& config);

  std::vector<Decision> OnJoin(int worker, uint64_t incarnation) override;
  std::vector<Decision> OnLeave(int worker, uint64_t incarnation) override;
  // A gradient of the current version that was not made from the worker's item is refused as kNotAMember, so
  // that the worker joins again. Gradient::position is the item's first example, counted through all epochs. A
  // gradient of no examples uses up the worker's item too.
  std::vector<Decision> OnGradient(const Gradient& gradient) override;
  std::vector<Decision> OnEnd() override;

  int64_t version() const override { return policy_->version(); }
  NextUpdate next_update() const override { return policy_->next_update(); }
  int64_t ClockOf(int worker) const override { return policy_->ClockOf(worker); }
  const UpdateCounters& counters() const override { return policy_->counters(); }
  std::optional<Work> WorkOf(int worker) const override;
  std::optional<WorkPosition> position() const override { return queue_.position(); }
  google::protobuf::Any Save() const override;
  absl::Status Load(const google::protobuf::Any& state) override;

 private:
  struct Member {
    uint64_t incarnation = 0;
    int64_t last_step = 0;
    bool idle = false;  // the worker has been answered, and has no work item
  };

  // Updates the queue according to `decisions`, and returns them with the further decisions that follow.
  std::vector<Decision> Followed(std::vector<Decision> decisions);
  void GiveTo(int worker);
  // Assigns items to all workers that wait for one.
  void GiveToIdle();
  bool enough() const { return static_cast<int>(members_.size()) >= config_.min_workers; }
  bool over() const;

  const std::unique_ptr<UpdatePolicy> policy_;
  const Config config_;
  WorkQueue queue_;
  std::map<int, Member> members_;  // [worker]
  bool ended_ = false;
};

}  // namespace cairn::ps
