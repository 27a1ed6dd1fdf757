// The link between the primary and the backup of a shard in the in-process cluster. It does with queues and
// threads what ps/rpc/backup_dialer.cc does over the wire.
#pragma once

#include <memory>

#include "ps/replication/replicator.h"
#include "tests/support/in_process_link.h"

namespace cairn::test {

// Opens a stream to the server in `slot`, which must outlive it. Refused if there is no server.
std::unique_ptr<ps::ReplicationStream> DialBackupInProcess(const ServerSlot& slot, DelayOptions delay,
                                                           ps::ReplicationStreamHandler& handler);

}  // namespace cairn::test
