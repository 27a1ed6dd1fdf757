// Dynamically assigned data, as messages (job.proto, session.proto).
#pragma once

#include "cairn/v1/job.pb.h"
#include "cairn/v1/session.pb.h"
#include "ps/policy/policy_proto.h"

namespace cairn::ps {

v1::Work ToProto(const Work& work);

// The position of `job` on server `server`. On ps/0 it includes the examples that were missed or repeated
// before the job was resumed.
v1::DataPosition ToProto(const WorkPosition& position, const v1::Job& job, int server);

}  // namespace cairn::ps
