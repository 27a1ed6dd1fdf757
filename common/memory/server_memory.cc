#include "common/memory/server_memory.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/memory/memory_size.h"

namespace cairn {
namespace {

std::string Counted(int count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

}  // namespace

MemoryNeeds MemoryNeedsOf(double value_bytes, int num_slots, int num_workers, bool replicated, bool encoded) {
  return {.values = (encoded ? 3 : 2) * value_bytes,
          .slots = num_slots * value_bytes,
          .gradients = (num_workers + 1.0) * value_bytes,
          .snapshot = (1.0 + num_slots) * value_bytes,
          .replication = replicated ? (3.0 + num_slots) * value_bytes : 0};
}

absl::Status CheckMemory(const ServerMemory& memory) {
  const MemoryNeeds& needs = memory.needs;
  if (needs.total() <= static_cast<double>(memory.limit)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "the job needs ", InGiB(needs.total()), " and may take ", InGiB(static_cast<double>(memory.limit)),
      memory.replicated ? " (half of --memory_limit: the other half is for the backup of another shard)"
                        : " (--memory_limit)",
      ": two versions of the values ", InGiB(needs.values), ", ", Counted(memory.num_slots, "slot"),
      memory.optimizer.empty() ? "" : absl::StrCat(" of ", memory.optimizer), " ", InGiB(needs.slots),
      ", a gradient of each of ", Counted(memory.num_workers, "worker"), " and one that arrives ",
      InGiB(needs.gradients), ", a snapshot ", InGiB(needs.snapshot),
      memory.replicated ? absl::StrCat(", data for the backup ", InGiB(needs.replication)) : "",
      memory.tables ? absl::StrCat(", other tables ", InGiB(needs.tables)) : ""));
}

}  // namespace cairn
