// The part of an examination that goes over the network: names, servers, clocks, ports.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cli/doctor.h"

namespace cairn::cli {

struct NetworkExamination {
  const net::ResolvedCluster& cluster;
  const net::Access& access;
  Duration timeout;
  const std::function<double()>& unix_seconds;
};

// Adds to `findings`, and to `running_models` [task] the SHA-256 of what a server trains now.
void ExamineNetwork(const NetworkExamination& examination, std::vector<Finding>& findings,
                    std::map<std::string, std::string>& running_models);

}  // namespace cairn::cli
