#include "ps/job/hosted_shards.h"

#include "absl/strings/str_cat.h"

namespace cairn::ps {

Server* HostedShards::Find(int shard) const {
  if (shard == own_shard_) return own_.get();
  MutexLock lock(mutex_);
  return shard == other_shard_ ? other_.get() : nullptr;
}

absl::StatusOr<Server*> HostedShards::Serving(int shard) const {
  Server* const server = Find(shard);
  if (server != nullptr) return server;
  return absl::UnavailableError(
      absl::StrCat("ps/", own_shard_, " does not serve ps/", shard, "'s shard now"));
}

absl::StatusOr<Server*> HostedShards::ForBackup(int shard) {
  if (shard == own_shard_) return own_.get();
  MutexLock lock(mutex_);
  if (other_ == nullptr && make_ != nullptr && shard >= 0) {
    other_ = make_(shard);
    other_shard_ = shard;
  }
  if (other_ == nullptr || shard != other_shard_) {
    return absl::FailedPreconditionError(
        absl::StrCat("ps/", own_shard_, " has no backup of ps/", shard, "'s shard"));
  }
  return other_.get();
}

std::vector<Server*> HostedShards::All() const {
  MutexLock lock(mutex_);
  std::vector<Server*> all = {own_.get()};
  if (other_ != nullptr) all.push_back(other_.get());
  return all;
}

void HostedShards::Tick() {
  for (Server* server : All()) server->Tick();
}

void HostedShards::WokeUp() {
  for (Server* server : All()) server->WokeUp();
}

std::optional<ExitCode> HostedShards::ended() const {
  if (const auto end = own_->ended()) return end;
  for (Server* server : All()) {
    if (const auto end = server->ended(); end.has_value() && *end != ExitCode::kDone) return end;
  }
  return std::nullopt;
}

void HostedShards::Shutdown() {
  for (Server* server : All()) server->Shutdown();
}

}  // namespace cairn::ps
