#include "common/net/cluster/cluster_flags.h"

#include "common/flags/flag_table.h"

namespace cairn::net {

void AddClusterFlags(CLI::App& app, ClusterFlags& flags) {
  AddFlags(
      app, "Cluster",
      {{"--cluster FILE", &flags.cluster_file, "JSON file with a ClusterSpec or a TF_CONFIG"},
       {"--job_name NAME", &flags.job_name, "Job of this task: ps, worker, chief or evaluator"},
       {"--task_index N", &flags.task_index, "Index of this task in its job, from 0", WholeNumberFrom(0)},
       {"--ps_hosts HOST:PORT,...", &flags.ps_hosts, "Addresses of all parameter servers"},
       {"--worker_hosts HOST:PORT,...", &flags.worker_hosts, "Addresses of all workers"},
       {"--chief_hosts HOST:PORT,...", &flags.chief_hosts, "Address of the chief, if it is not worker 0"},
       {"--evaluator_hosts HOST:PORT,...", &flags.evaluator_hosts, "Address of the evaluator"}});
}

}  // namespace cairn::net
