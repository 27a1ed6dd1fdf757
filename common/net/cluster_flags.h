// The flags by which every task is told of its cluster: --job_name, --task_index, --cluster and the lists of
// hosts.
#pragma once

#include "common/net/cluster_spec.h"

namespace CLI {
class App;
}

namespace cairn::net {

// Declares them on `app`; hosts are comma lists ("a:2222,b:2222"). Only their form is checked here:
// ResolveCluster says whether they make a cluster.
void AddClusterFlags(CLI::App& app, ClusterFlags& flags);

}  // namespace cairn::net
