// Formats the pages of Monitor, from the server's status and metrics alone.
#pragma once

#include <string>
#include <vector>

#include "cairn/v1/inspector.pb.h"
#include "common/core/history.h"
#include "common/monitor/status_page.h"
#include "ps/shard/metrics.h"

namespace cairn::ps {

// Text in Prometheus' format.
std::string MetricsOf(const v1::ServerStatus& status, const Metrics& metrics);

// `history`: the series that Monitor keeps.
monitor::StatusPage PageOf(const v1::ServerStatus& status, const Metrics& metrics,
                           std::vector<History::Point> history, const std::string& address);

}  // namespace cairn::ps
