// The link between the primary and the backup of a shard, with items as frames, as in ps/rpc/backup_dialer.cc.
#pragma once

#include <memory>

#include "tests/simulation/fleet.h"

namespace cairn::simulation {

// `from`: the process of the primary.
std::unique_ptr<ps::ReplicationStream> DialBackup(Simulation& simulation, Fleet& fleet, int shard, int from,
                                                  ps::ReplicationStreamHandler& handler);

}  // namespace cairn::simulation
