// The identity of this process, by which servers and other workers distinguish two processes of one task.
#pragma once

#include "cairn/v1/job.pb.h"

namespace cairn::client {

// Each call draws a new id: to the servers, two clients in one process are two processes.
v1::Process DrawProcess();

}  // namespace cairn::client
