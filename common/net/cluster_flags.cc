#include "common/net/cluster_flags.h"

#include <CLI/CLI.hpp>

#include "common/core/flags.h"

namespace cairn::net {

void AddClusterFlags(CLI::App& app, ClusterFlags& flags) {
  const std::string group = "Cluster";
  app.add_option(FlagNames("cluster"), flags.cluster_file, "File with a ClusterSpec or a TF_CONFIG")
      ->type_name("FILE")
      ->group(group);
  app.add_option(FlagNames("job_name"), flags.job_name, "What this task is: ps, worker, chief or evaluator")
      ->type_name("NAME")
      ->group(group);
  app.add_option_function<int>(
         FlagNames("task_index"), [&flags](const int& index) { flags.task_index = index; },
         "Which of its job's tasks this is, from 0")
      ->check(WholeNumberFrom(0))
      ->type_name("N")
      ->group(group);
  const auto add_hosts = [&](const char* name, std::vector<std::string>& hosts, const char* what) {
    app.add_option(FlagNames(name), hosts, what)->delimiter(',')->type_name("HOST:PORT,...")->group(group);
  };
  add_hosts("ps_hosts", flags.ps_hosts, "Addresses of all parameter servers");
  add_hosts("worker_hosts", flags.worker_hosts, "Addresses of all workers");
  add_hosts("chief_hosts", flags.chief_hosts, "Address of the chief, if it is not a worker");
  add_hosts("evaluator_hosts", flags.evaluator_hosts, "Address of the evaluator");
}

}  // namespace cairn::net
