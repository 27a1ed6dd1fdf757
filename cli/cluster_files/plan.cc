#include "cli/cluster_files/plan.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/core/status.h"

namespace cairn::cli {

absl::StatusOr<net::ClusterSpec> SpecOf(const ClusterPlan& plan) {
  net::ClusterSpec spec;
  std::map<std::string, int> tasks_on;
  size_t next_host = 0;
  const auto add = [&](const char* job, int index) {
    std::string host = absl::StrCat(job, index);
    if (!plan.hosts.empty()) host = plan.hosts[next_host++ % plan.hosts.size()];
    CAIRN_ASSIGN_OR_RETURN(const auto address,
                           net::HostPort::Parse(absl::StrCat(host, ":", plan.port + tasks_on[host]++)));
    return spec.Add({job, index}, address);
  };
  for (int i = 0; i < plan.servers; ++i) CAIRN_RETURN_IF_ERROR(add("ps", i));
  for (int i = 0; i < plan.workers; ++i) CAIRN_RETURN_IF_ERROR(add("worker", i));
  return spec;
}

absl::StatusOr<std::string> WriteClusterSpec(const ClusterPlan& plan) {
  CAIRN_ASSIGN_OR_RETURN(const net::ClusterSpec spec, SpecOf(plan));
  return absl::StrCat(spec.ToJson(), "\n");
}

std::string Fill(absl::string_view text, const std::map<std::string, std::string>& values) {
  std::map<std::string, std::string> replacements;
  for (const auto& [name, value] : values) {
    const std::string mark = absl::StrCat("@", name, "@");
    CAIRN_CHECK(absl::StrContains(text, mark));
    replacements[mark] = value;
  }
  return absl::StrReplaceAll(text, replacements);
}

std::string Indent(absl::string_view text, int spaces) {
  const std::string margin(static_cast<size_t>(spaces), ' ');
  std::string out;
  for (absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    absl::StrAppend(&out, line.empty() ? "" : margin, line, "\n");
  }
  return out;
}

}  // namespace cairn::cli
