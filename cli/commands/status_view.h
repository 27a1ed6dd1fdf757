// Renders the servers' status for `cairn status`, as a table or as JSON.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cairn/v1/inspector.pb.h"
#include "common/net/cluster/cluster_spec.h"

namespace cairn::cli {

// A cluster at one moment.
struct ClusterView {
  net::ClusterSpec cluster;
  std::vector<absl::StatusOr<v1::ServerStatus>> servers;  // [ps] a status, or why the server did not answer

  // The server with the most complete view of the job, among those that answered: the sequencer, otherwise
  // the first one. Null if no server answered.
  const v1::ServerStatus* leader() const;
  // True if every server answered, belongs to this cluster and has not failed, and no worker is lost.
  bool well() const;
  // One sentence for each problem.
  std::vector<std::string> troubles() const;
};

std::string AsTable(const ClusterView& view);
std::string AsJson(const ClusterView& view);

}  // namespace cairn::cli
