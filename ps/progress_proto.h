// How far a job has come, as messages.
#pragma once

#include "cairn/v1/job.pb.h"
#include "ps/active_job.h"

namespace cairn::ps {

// Since the job began, those before it was resumed included.
v1::Counters CountersOf(ActiveJob& job, const UpdateCounters& updates);
// `server`: the index of this one.
v1::Progress ProgressOf(ActiveJob& job, const Progress& progress, int server);

}  // namespace cairn::ps
