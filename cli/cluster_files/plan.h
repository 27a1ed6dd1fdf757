// What `cairn cluster generate` writes files from, and the writers: one per format, one file each.
//
// A plan is a value; the writers depend on nothing but it, so the same plan gives the same bytes. Their
// templates are whole files with @NAMES@ in them, to be read as what they become.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/net/cluster_spec.h"

namespace cairn::cli {

struct ClusterPlan {
  int servers = 1;
  int workers = 1;
  int port = 2222;                   // of each task; of several on one host the first one's
  std::vector<std::string> hosts{};  // tasks go to them in turn; empty: as the format names them
  std::string name = "cairn";        // of what Kubernetes is given
  std::string image = "cairn";       // images are IMAGE-ps and IMAGE-worker
  std::string tag = "latest";        // of the images
  int gpus = 0;                      // of each worker
  std::string model{};       // contents of the model file; Kubernetes only; empty: the user's to bring
  std::string data_claim{};  // Kubernetes: the claim that holds the data; empty: generated digits
  std::vector<std::string> worker_flags{};  // as given: "--epochs=5"
  std::string command{};                    // that makes the same again, for the head of a file
};

// The tasks' addresses: `hosts` in turn or, without them, ps0, ps1, worker0, ...
absl::StatusOr<net::ClusterSpec> SpecOf(const ClusterPlan& plan);

absl::StatusOr<std::string> WriteClusterSpec(const ClusterPlan& plan);
absl::StatusOr<std::string> WriteShell(const ClusterPlan& plan);
absl::StatusOr<std::string> WriteCompose(const ClusterPlan& plan);
absl::StatusOr<std::string> WriteKubernetes(const ClusterPlan& plan);

// `text` with each @NAME@ replaced by its value. Every name of `values` must occur, and none may be left.
std::string Fill(absl::string_view text, const std::map<std::string, std::string>& values);
// Each line of `text` behind so many spaces; empty lines stay empty.
std::string Indent(absl::string_view text, int spaces);

}  // namespace cairn::cli
