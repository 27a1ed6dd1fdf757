#include "ps/replication/shard_backup.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "ps/log/follow_proto.h"
#include "ps/log/log_validator.h"

namespace cairn::ps {
namespace {

absl::Status CheckValues(const AlignedBuffer* values, const Shard& shard) {
  const int64_t size = values == nullptr ? 0 : values->size();
  if (size == shard.store().size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(size, " replicated values do not fit a server that has ", shard.store().size()));
}

}  // namespace

absl::Status AppendReplicated(const v1::ReplicatedEntry& replicated,
                              std::shared_ptr<const AlignedBuffer> mean, Shard& shard,
                              ReceivedTables means_of_tables) {
  CAIRN_ASSIGN_OR_RETURN(const LogEntry entry, FromProto(replicated.decision()));
  if (replicated.mean() && replicated.examples() && mean == nullptr && shard.store().size() > 0) {
    return absl::InvalidArgumentError(absl::StrCat("entry ", entry.index, " arrived without its mean"));
  }
  if (mean != nullptr) CAIRN_RETURN_IF_ERROR(CheckValues(mean.get(), shard));
  if (!replicated.mean()) return shard.AppendWithMean(entry, std::nullopt);
  // The mean of a shard without elements, or of a table without rows in this update, is an empty buffer.
  if (mean == nullptr && replicated.examples()) mean = shard.store().pool().Acquire();
  means_of_tables.resize(shard.tables().size() - 1);
  for (auto& of_table : means_of_tables) {
    if (of_table == nullptr && replicated.examples()) of_table = std::make_shared<AlignedBuffer>(0);
  }
  return shard.AppendWithMean(entry,
                              UpdateMean{VersionOf(entry), std::move(mean), std::move(means_of_tables)});
}

absl::Status WriteReplicated(std::shared_ptr<const AlignedBuffer> values, ReceivedTables tables,
                             Shard& shard) {
  CAIRN_RETURN_IF_ERROR(CheckValues(values.get(), shard));
  return shard.Overwrite(std::move(values), std::move(tables));
}

}  // namespace cairn::ps
