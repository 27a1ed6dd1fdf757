#include "common/net/cluster_flags.h"

#include <CLI/CLI.hpp>

#include "common/core/flags.h"

namespace cairn::net {

void AddClusterFlags(CLI::App& app, ClusterFlags& flags) {
  const std::string group = "Cluster";
  app.add_option(FlagNames("cluster"), flags.cluster_file, "JSON file with a ClusterSpec or a TF_CONFIG")
      ->type_name("FILE")
      ->group(group);
  app.add_option(FlagNames("job_name"), flags.job_name, "Job of this task: ps, worker, chief or evaluator")
      ->type_name("NAME")
      ->group(group);
  app.add_option_function<int>(
         FlagNames("task_index"), [&flags](const int& index) { flags.task_index = index; },
         "Index of this task in its job, from 0")
      ->check(WholeNumberFrom(0))
      ->type_name("N")
      ->group(group);
  const auto add_hosts = [&](const char* name, std::vector<std::string>& hosts, const char* what) {
    app.add_option(FlagNames(name), hosts, what)->delimiter(',')->type_name("HOST:PORT,...")->group(group);
  };
  add_hosts("ps_hosts", flags.ps_hosts, "Addresses of all parameter servers");
  add_hosts("worker_hosts", flags.worker_hosts, "Addresses of all workers");
  add_hosts("chief_hosts", flags.chief_hosts, "Address of the chief, if it is not worker 0");
  add_hosts("evaluator_hosts", flags.evaluator_hosts, "Address of the evaluator");
}

}  // namespace cairn::net
