#include "tests/simulation/setting.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cairn::simulation {

Setting::Setting(Random& random, bool rows) {
  rules.rows = rows;
  const uint32_t mode = random.NextBelow(10);
  rules.mode = mode < 6 ? v1::MODE_SYNC : mode < 8 ? v1::MODE_SSP : v1::MODE_ASYNC;
  rules.servers = 1 + static_cast<int>(random.NextBelow(3));
  const uint32_t crowd = random.NextBelow(100);
  rules.workers = 1 + static_cast<int>(random.NextBelow(crowd < 1 ? 256 : crowd < 10 ? 32 : 6));
  steps = 5 + static_cast<int>(random.NextBelow(static_cast<uint32_t>(10 + 240 / rules.workers)));
  if (rules.mode == v1::MODE_SYNC && random.NextBelow(2) == 0) {
    rules.replicas_to_aggregate =
        1 + static_cast<int>(random.NextBelow(static_cast<uint32_t>(rules.workers)));
  }
  if (rules.mode == v1::MODE_SSP || (rules.mode == v1::MODE_ASYNC && random.NextBelow(2) == 0)) {
    rules.max_staleness = random.NextBelow(rules.mode == v1::MODE_SSP ? 4 : 8);
  }
  if (random.NextBelow(3) == 0) rules.final_version = 1 + random.NextBelow(static_cast<uint32_t>(steps));
  rules.rate_one = random.NextBelow(5) != 0;
  longest_delay = random.NextBelow(2) == 0 ? 0.05 : 1;
  computing = random.NextBelow(2) == 0 ? 0.1 : 2;
  // Mean seconds between two faults; none in one of four jobs.
  chaos_every = random.NextBelow(4) == 0 ? 0 : 0.5 + 8 * random.NextUniform();
  chaos_until = 200;
  if (random.NextBelow(3) == 0) {
    rules.replicas_to_aggregate = 0;  // a round takes all gradients
    batch_size = 1 + random.NextBelow(4);
    rules.epochs = 1 + random.NextBelow(3);
    const auto pushes = static_cast<uint32_t>(std::min(steps * rules.workers, 300));
    rules.num_examples =
        1 + random.NextBelow(
                pushes * static_cast<uint32_t>(batch_size) / static_cast<uint32_t>(rules.epochs) + 1);
    rules.elastic = random.NextBelow(3) == 0;
    if (rules.final_version > 0) rules.epochs = 0;
  }
  const uint32_t faults = chaos_every == 0 ? 0 : random.NextBelow(3);
  if (faults == 1) server_faults = ServerFaults::kRolledBack;
  if (faults == 2 && rules.servers > 1) server_faults = ServerFaults::kReplaced;
  rules.copies = server_faults == ServerFaults::kReplaced;
  // With backups, the checker does not know which workers a round waits for, so all workers stay until the
  // job ends.
  const bool has_end = rules.num_examples > 0 || rules.final_version > 0;
  wait_for_return = rules.copies && has_end && !rules.elastic && random.NextBelow(2) == 0;
  rules.layerwise = !rules.rate_one && random.NextBelow(3) == 0;
}

std::string Setting::ToText() const {
  std::string text =
      absl::StrCat(v1::Mode_Name(rules.mode), ", ", rules.servers, " servers, ", rules.workers,
                   " workers of ", steps, " steps, replicas_to_aggregate ", rules.replicas_to_aggregate,
                   ", max_staleness ", rules.max_staleness, ", final_version ", rules.final_version,
                   rules.rate_one ? "" : ", clipped by norms", rules.layerwise ? ", LAMB" : "",
                   ", delays up to ", longest_delay, " s, a fault every ", chaos_every, " s");
  if (rules.num_examples > 0) {
    absl::StrAppend(&text, ", ", rules.epochs, " epochs of ", rules.num_examples,
                    " examples assigned in batches of ", batch_size, rules.elastic ? ", elastic" : "");
  }
  if (server_faults == ServerFaults::kRolledBack) absl::StrAppend(&text, ", servers are rolled back");
  if (server_faults == ServerFaults::kReplaced) absl::StrAppend(&text, ", servers have backups");
  if (rules.rows) absl::StrAppend(&text, ", a table of rows");
  if (wait_for_return) absl::StrAppend(&text, ", lost workers are waited for");
  return text;
}

}  // namespace cairn::simulation
