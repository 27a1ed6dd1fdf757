// The cluster as JSON: a ClusterSpec, TF_CONFIG, Kubeflow's form.
#include "common/net/cluster/cluster_spec.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  const std::string text(fuzz::TextOf(data, size));
  for (const bool require_task : {false, true}) {
    const auto cluster = net::ResolveCluster({}, text.c_str(), require_task);
    if (!cluster.ok()) {
      FUZZ_CHECK(!cluster.status().message().empty());
      continue;
    }
    cluster->spec.trainers();
    if (require_task) {
      FUZZ_CHECK(cluster->spec.tasks_on_host_of(cluster->self) >= 1);
      FUZZ_CHECK(cluster->spec.local_rank_of(cluster->self) >= 0);
    }
    if (!cluster->spec.knows_all_servers()) continue;
    // The canonical form of an accepted cluster reads as the same cluster.
    const auto again = net::ClusterSpec::FromJson(cluster->spec.ToJson(), "again");
    FUZZ_CHECK(again.ok());
    FUZZ_CHECK(again->Hash() == cluster->spec.Hash());
    FUZZ_CHECK(again->ToJson() == cluster->spec.ToJson());
  }
  static_cast<void>(net::ClusterSpec::FromJson(text, "spec"));
  return 0;
}
