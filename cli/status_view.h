// What `cairn status` shows of what the servers said: a table for people, or JSON.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cairn/v1/inspector.pb.h"
#include "common/net/cluster_spec.h"

namespace cairn::cli {

// A cluster at one moment.
struct ClusterView {
  net::ClusterSpec cluster;
  std::vector<absl::StatusOr<v1::ServerStatus>> servers;  // [ps] or why it did not answer

  // Of those that answered, the one that knows most of the job: who writes its log, the first of them. Null
  // when none answered.
  const v1::ServerStatus* leader() const;
  // Nothing that needs somebody to look: every server answers, is of one cluster, and has not failed; no
  // worker is lost.
  bool well() const;
  // What is wrong, a sentence each.
  std::vector<std::string> troubles() const;
};

std::string AsTable(const ClusterView& view);
std::string AsJson(const ClusterView& view);

}  // namespace cairn::cli
