// Jobs in a cluster's description that Cairn does not know: "tensorboard", or a misspelt "wroker". The
// resolver ignores them; `cairn check` shows them.
#pragma once

#include <string>
#include <vector>

#include "common/net/cluster/cluster_spec.h"

namespace cairn::net {

// The unknown jobs in the description that ResolveCluster() reads from these arguments; empty if it fails.
std::vector<std::string> IgnoredJobs(const ClusterFlags& flags, const char* tf_config);

}  // namespace cairn::net
