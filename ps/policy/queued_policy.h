// Any policy, with data that is handed out: each push is made of a ticket, which is done when the push is in
// an update and goes back to the queue when its worker leaves. So each example of an epoch is in one update,
// whatever workers come and go.
//
// Has the tickets of a worker ready when the worker is answered: when it joins, when its push is decided or
// released. A worker that has none then, because others hold the last ones or too few workers are there, gets
// the next that there is. The update that uses up the last ticket is the job's last one.
#pragma once

#include <cstdint>
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
    // Each update takes a gradient of every worker: they all get tickets of one epoch, in worker order.
    bool rounds = false;
    // With rounds: these have a ticket before they join, so that who joins first makes no difference.
    int expected_workers = 0;
    // While there are fewer nobody gets a ticket.
    int min_workers = 1;
    std::optional<int64_t> final_version = std::nullopt;  // as PolicyConfig
  };
  QueuedPolicy(std::unique_ptr<UpdatePolicy> policy, WorkQueue queue, const Config& config);

  std::vector<Decision> OnJoin(int worker, uint64_t incarnation) override;
  std::vector<Decision> OnLeave(int worker, uint64_t incarnation) override;
  // Refused as kNotAMember, so that the worker joins again, when it is of the current version and not made of
  // the worker's ticket: Gradient::position is the ticket's first example through all epochs.
  std::vector<Decision> OnGradient(const Gradient& gradient) override;
  std::vector<Decision> OnEnd() override;

  int64_t version() const override { return policy_->version(); }
  std::vector<int> WaitingFor() const override { return policy_->WaitingFor(); }
  int64_t ClockOf(int worker) const override { return policy_->ClockOf(worker); }
  const UpdateCounters& counters() const override { return policy_->counters(); }
  std::optional<Work> WorkOf(int worker) const override;
  std::optional<WorkPosition> position() const override { return queue_.position(); }
  PolicyState Save() const override;
  void Restore(const PolicyState& state) override;

 private:
  using Member = PolicyState::Queue::Member;

  // What decisions mean for the queue; they may become more.
  std::vector<Decision> Followed(std::vector<Decision> decisions);
  void GiveTo(int worker);
  // To all who wait for one.
  void GiveToIdle();
  bool enough() const { return static_cast<int>(members_.size()) >= config_.min_workers; }
  bool over() const;

  const std::unique_ptr<UpdatePolicy> policy_;
  const Config config_;
  WorkQueue queue_;
  std::map<int, Member> members_;
  bool ended_ = false;
};

}  // namespace cairn::ps
