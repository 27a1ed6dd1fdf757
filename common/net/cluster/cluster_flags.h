// The flags that describe the cluster to a task: --job_name, --task_index, --cluster and the lists of hosts.
#pragma once

#include "common/net/cluster/cluster_spec.h"

namespace CLI {
class App;
}

namespace cairn::net {

// Declares the flags on `app`; hosts are comma-separated lists ("a:2222,b:2222"). Only the form of the values
// is checked here; ResolveCluster() checks whether they make a cluster.
void AddClusterFlags(CLI::App& app, ClusterFlags& flags);

}  // namespace cairn::net
