// The network checks of `cairn check`: names, servers, clocks, ports.
#pragma once

#include <cstdint>
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

// The servers that answer as they should, by task: "ps/0".
struct ReachedServers {
  std::map<std::string, std::string> models;     // SHA-256 of the model that the server trains now
  std::map<std::string, int64_t> memory_limits;  // bytes for a job
};

// Appends to `findings`, and fills `servers`.
void ExamineNetwork(const NetworkExamination& examination, std::vector<Finding>& findings,
                    ReachedServers& servers);

}  // namespace cairn::cli
