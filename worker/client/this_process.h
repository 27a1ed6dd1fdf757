// Who this process is to servers and other workers, which tell two processes of one task apart by it.
#pragma once

#include "cairn/v1/job.pb.h"

namespace cairn::client {

// With another id at each call: two clients of one process are two processes to the servers.
v1::Process DrawProcess();

}  // namespace cairn::client
