// The network checks of `cairn check`: names, servers, clocks, ports.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cli/preflight/preflight.h"

namespace cairn::cli {

struct NetworkExamination {
  const net::ResolvedCluster& cluster;
  const net::Access& access;
  Duration timeout;
  const std::function<double()>& unix_seconds;
};

// Appends to `findings`. Sets `running_models` [task] to the SHA-256 of the model that the server trains now.
void ExamineNetwork(const NetworkExamination& examination, std::vector<Finding>& findings,
                    std::map<std::string, std::string>& running_models);

}  // namespace cairn::cli
