// Which examples of a job with dynamic sharding are in updates: what several servers say of it, put together.
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/v1/job.pb.h"

namespace cairn::client {

// How many examples are in updates, once each.
int64_t NumUsed(const v1::DataPosition& position);

// `all`, as ps/0 says, with what another server's snapshot has otherwise: what it lacks, the job will not
// give it any more, and what it alone has, it will get again.
void AddTorn(const v1::DataPosition& other, v1::DataPosition* all);

// At the job's end, [server that decides]: `missed` and `repeated` of all that were handed out.
v1::DataPosition AtTheEnd(const std::vector<v1::DataPosition>& servers);

}  // namespace cairn::client
