// The optimizer's part of a snapshot, in the order of the job's variables. Pure functions.
#pragma once

#include <vector>

#include "cairn/session.h"
#include "client/snapshot.h"
#include "common/net/cluster/placement.h"

namespace cairn::api {

// `groups`: the number of groups of variables.
OptimizerState StateOf(const client::Snapshot& snapshot, const std::vector<net::VariableInfo>& variables,
                       int groups);

}  // namespace cairn::api
