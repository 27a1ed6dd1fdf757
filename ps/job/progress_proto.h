// The progress of a job, as messages.
#pragma once

#include "cairn/v1/job.pb.h"
#include "ps/job/active_job.h"

namespace cairn::ps {

// The counts since the job began, including the counts from before it was resumed.
v1::Counters CountersOf(ActiveJob& job, const UpdateCounters& updates);
// `server`: the index of this server.
v1::Progress ProgressOf(ActiveJob& job, const Progress& progress, int server);

}  // namespace cairn::ps
