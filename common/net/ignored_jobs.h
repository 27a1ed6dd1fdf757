// Jobs that a cluster's description names and that Cairn does not know: "tensorboard", or a misspelt
// "wroker". A cluster is read without them; `cairn check` shows them.
#pragma once

#include <string>
#include <vector>

#include "common/net/cluster_spec.h"

namespace cairn::net {

// Of the description that ResolveCluster() reads by the same arguments; empty where that fails.
std::vector<std::string> IgnoredJobs(const ClusterFlags& flags, const char* tf_config);

}  // namespace cairn::net
