// The backup's end of a replication stream over the data channel: passes the frames of a net::DataStream to a
// BackupSession, and the session's answers to the stream. The primary's end is in backup_dialer.h.
#pragma once

#include <memory>

#include "common/net/data_channel/stream/data_receiver.h"
#include "common/net/data_channel/stream/stream.h"
#include "ps/job/hosted_job.h"

namespace cairn::ps {

// `hosted` must outlive the receiver. The receiver keeps `stream` until it is destroyed, and the backup's state
// may do so for longer: whoever owns the stream must close it.
std::unique_ptr<net::DataReceiver> ReceiveForBackup(HostedJob& hosted,
                                                    std::shared_ptr<net::DataStream> stream);

}  // namespace cairn::ps
