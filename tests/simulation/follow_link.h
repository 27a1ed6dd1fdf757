// The link between a follower and ps/0, as in ps/rpc/follow.cc.
#pragma once

#include <memory>

#include "tests/simulation/fleet.h"

namespace cairn::simulation {

struct Follower {
  int shard, process;
  int64_t epoch;
};
std::unique_ptr<ps::SequencerPort> FollowLeader(Simulation& simulation, Fleet& fleet,
                                                const Follower& follower, const v1::Job& job,
                                                std::shared_ptr<ps::Shard> shard);

}  // namespace cairn::simulation
