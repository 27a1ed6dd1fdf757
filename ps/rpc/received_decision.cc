#include "ps/rpc/received_decision.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ps/log/follow_proto.h"

namespace cairn::ps {

absl::Status Follow(const v1::Decision& decision, Shard& shard) {
  const absl::StatusOr<LogEntry> entry = FromProto(decision);
  if (!entry.ok()) {
    shard.Fail(
        absl::InternalError(absl::StrCat("ps/0 made an invalid decision: ", entry.status().message())));
    return absl::OkStatus();
  }
  if (entry->index != shard.next_index()) {
    return absl::CancelledError(absl::StrCat("entry ", entry->index, " of the log is out of order"));
  }
  shard.Append(*entry);
  return absl::OkStatus();
}

}  // namespace cairn::ps
