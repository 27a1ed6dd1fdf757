// The input of `cairn cluster generate`, and the writers of its formats, one source file each.
//
// The writers depend only on the plan, so the same plan gives the same bytes. Their templates are complete
// files with @NAMES@ as placeholders.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/net/cluster/cluster_spec.h"

namespace cairn::cli {

struct ClusterPlan {
  int servers = 1;
  int workers = 1;
  int port = 2222;                   // the port of every task; tasks on one host use consecutive ports
  std::vector<std::string> hosts{};  // assigned to tasks round-robin; if empty, the format names them
  std::string name = "cairn";        // the prefix of the names of Kubernetes objects
  std::string image = "cairn";       // images are IMAGE-ps and IMAGE-worker
  std::string tag = "latest";        // the tag of the images
  int gpus = 0;                      // GPUs per worker
  std::string model{};       // contents of the model file; Kubernetes only; empty: provided by the user
  std::string data_claim{};  // Kubernetes: volume claim with the data; empty: synthetic digits
  std::vector<std::string> worker_flags{};  // as given: "--epochs=5"
  std::string command{};                    // the command that generates the same file; the file quotes it
};

// The addresses of the tasks, on `hosts` round-robin. Without hosts the names are ps0, ps1, worker0, ...
absl::StatusOr<net::ClusterSpec> SpecOf(const ClusterPlan& plan);

absl::StatusOr<std::string> WriteClusterSpec(const ClusterPlan& plan);
absl::StatusOr<std::string> WriteShell(const ClusterPlan& plan);
absl::StatusOr<std::string> WriteCompose(const ClusterPlan& plan);
absl::StatusOr<std::string> WriteKubernetes(const ClusterPlan& plan);

// `text` with each @NAME@ replaced by its value. Every name of `values` must occur, and no placeholder may
// remain.
std::string Fill(absl::string_view text, const std::map<std::string, std::string>& values);
// Indents each line of `text` by `spaces`; empty lines stay empty.
std::string Indent(absl::string_view text, int spaces);

}  // namespace cairn::cli
