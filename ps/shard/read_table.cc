#include "ps/shard/read_table.h"

#include "common/core/status.h"

namespace cairn::ps {

std::optional<absl::StatusOr<ReadResult>> ReadTable::Read(const std::string& marker, ReadReply& reply) {
  MutexLock lock(mutex_);
  if (!failure_.ok()) return failure_;
  if (!marker.empty()) return markers_.Read(marker, reply);
  DropUntilRoom();
  return Current();
}

absl::StatusOr<ReadResult> ReadTable::Current() const {
  CAIRN_RETURN_IF_ERROR(store_.CheckRoomForReader());
  ReadResult result = {.values = store_.current()};
  result.finished = final_version_.IsReached(result.values.version);
  return result;
}

void ReadTable::Prepare(const Marker& marker) {
  MutexLock lock(mutex_);
  if (marker.snapshot) markers_.DropSnapshots();
  DropUntilRoom();
}

std::vector<ReadReply> ReadTable::Reach(const Marker& marker, const absl::StatusOr<ReadResult>& result) {
  MutexLock lock(mutex_);
  std::vector<ReadReply> readers = markers_.TakeReaders(marker.token);
  if (readers.empty()) markers_.Keep(marker.token, marker.snapshot, result);
  return readers;
}

void ReadTable::MakeRoom() {
  MutexLock lock(mutex_);
  DropUntilRoom();
}

void ReadTable::KeepNothing(const std::string& token) {
  MutexLock lock(mutex_);
  markers_.KeepNothing(token);
}

std::vector<std::string> ReadTable::tokens() const {
  MutexLock lock(mutex_);
  return markers_.tokens();
}

std::vector<ReadReply> ReadTable::Close(const absl::Status& failure) {
  MutexLock lock(mutex_);
  failure_ = failure;
  return markers_.Clear();
}

}  // namespace cairn::ps
