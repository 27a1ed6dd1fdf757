// Addresses, one on each line, as --ps_hosts and --worker_hosts have them.
#include "absl/strings/str_split.h"
#include "common/net/cluster/cluster_spec.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  const std::vector<std::string> hosts = absl::StrSplit(fuzz::TextOf(data, size), '\n');
  for (const std::string& host : hosts) {
    const auto address = net::HostPort::Parse(host);
    if (!address.ok()) {
      FUZZ_CHECK(!address.status().message().empty());
      continue;
    }
    FUZZ_CHECK(address->port >= 1 && address->port <= 65535);
    const auto again = net::HostPort::Parse(address->ToString());
    FUZZ_CHECK(again.ok() && *again == *address);
  }
  net::ClusterFlags flags = {.job_name = "worker", .task_index = 0, .ps_hosts = hosts};
  flags.worker_hosts.assign(hosts.rbegin(), hosts.rend());
  static_cast<void>(net::ResolveCluster(flags, nullptr));
  return 0;
}
