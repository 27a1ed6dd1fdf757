// A job on one server, as messages: for clients that connect, for monitoring, and for checkpoints.
#pragma once

#include <string>
#include <vector>

#include "cairn/v1/inspector.pb.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/parameter_server.pb.h"
#include "ps/job/active_job.h"

namespace cairn::ps {

// The position of the job at `progress`, with all counts since the job began.
v1::Progress ProgressOf(ActiveJob& job, const Progress& progress);
// The job, its variables and the current progress.
void Describe(ActiveJob& job, v1::ConnectResponse& response);
// As above, without the lists of variables and workers that may be long, but with the load.
void Describe(ActiveJob& job, v1::ServerStatus& status);
// The names of the workers and servers that the open round waits for; empty if the job is not sequenced here.
std::vector<std::string> WaitingFor(ActiveJob& job);

}  // namespace cairn::ps
