// Merges the data positions of several servers, for jobs with dynamic sharding. A data position is the set of
// examples that are in updates.
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/v1/job.pb.h"

namespace cairn::client {

// The number of distinct examples that are in updates.
int64_t NumUsed(const v1::DataPosition& position);

// Merges the position in another server's snapshot into `all`, the position of ps/0. The job will assign the
// examples that are not in the position of ps/0. Therefore an example that only ps/0 has is counted as
// missed, and an example that only `other` has is counted as repeated.
void AddTorn(const v1::DataPosition& other, v1::DataPosition* all);

// The position at the end of a job, from all servers that decide about pushes: `missed` and `repeated` cover
// every example that was assigned.
v1::DataPosition AtTheEnd(const std::vector<v1::DataPosition>& servers);

}  // namespace cairn::client
