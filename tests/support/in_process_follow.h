// The link between a follower and ps/0 of the in-process cluster. It does with queues and threads what
// ps/rpc/follow.cc does over gRPC, so that followers lag and links break.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/core/mutex.h"
#include "ps/job/server.h"
#include "tests/support/in_process_link.h"

namespace cairn::test {

class FollowStream;

// Breaks the current link of one follower. Thread-safe.
class FollowBreaker {
 public:
  // Messages under way in both directions are lost, and the follower subscribes again.
  void Break();
  // Sums sent to ps/0 are lost without an error, until the next call with false.
  void LoseSums(bool lose) { lose_sums_ = lose; }
  int lost_sums() const { return lost_sums_; }

 private:
  friend class FollowLink;
  Mutex mutex_;
  std::weak_ptr<FollowStream> stream_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> lose_sums_{false};
  std::atomic<int> lost_sums_{0};
};

// Follows the current leader among `leaders`. These and `breaker` must outlive the port.
std::unique_ptr<ps::SequencerPort> FollowInProcess(std::vector<const ServerSlot*> leaders, int index,
                                                   const v1::Job& job, std::shared_ptr<ps::Shard> shard,
                                                   int64_t epoch, DelayOptions delay, FollowBreaker& breaker);

}  // namespace cairn::test
