#include "ps/shard/open_push.h"

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::ps {

absl::Status OpenPush::AddChunk(const v1::Chunk& chunk, net::Payload payload) {
  if (chunk.table() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the gradients of table ", chunk.table(), " are pushed in rows, not in chunks"));
  }
  return tables_.empty() ? absl::OkStatus() : tables_[0]->AddChunk(chunk, payload);
}

absl::Status OpenPush::AddRows(size_t table, net::ReceivedRows rows) {
  return tables_[table]->AddRows(std::move(rows));
}

absl::Span<float> OpenPush::DestinationFor(const v1::Chunk& chunk, int64_t count) {
  if (tables_.empty() || chunk.table() != 0) return {};
  return tables_[0]->DestinationFor(chunk, count);
}

absl::Status OpenPush::CheckComplete() const {
  for (const auto& table : tables_) CAIRN_RETURN_IF_ERROR(table->CheckComplete());
  return absl::OkStatus();
}

PushData OpenPush::Take() {
  PushData data;
  for (const auto& table : tables_) data.push_back(table->Take());
  return data;
}

void OpenPush::Keep() {
  for (const auto& table : tables_) table->Keep();
}

bool OpenPush::MaySendEarly() const {
  for (const auto& table : tables_) {
    if (table->MaySendEarly()) return true;
  }
  return false;
}

}  // namespace cairn::ps
