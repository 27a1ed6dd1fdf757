#include "ps/parts.h"

#include "absl/strings/str_cat.h"

namespace cairn::ps {

Server* Parts::Find(int part) const {
  if (part == own_part_) return own_.get();
  MutexLock lock(mutex_);
  return part == other_part_ ? other_.get() : nullptr;
}

absl::StatusOr<Server*> Parts::Serving(int part) const {
  Server* const server = Find(part);
  if (server != nullptr) return server;
  return absl::UnavailableError(absl::StrCat("ps/", own_part_, " has nothing of ps/", part, "'s shard now"));
}

absl::StatusOr<Server*> Parts::ForCopy(int part) {
  if (part == own_part_) return own_.get();
  MutexLock lock(mutex_);
  if (other_ == nullptr && make_ != nullptr && part >= 0) {
    other_ = make_(part);
    other_part_ = part;
  }
  if (other_ == nullptr || part != other_part_) {
    return absl::FailedPreconditionError(
        absl::StrCat("ps/", own_part_, " keeps no backup of ps/", part, "'s shard"));
  }
  return other_.get();
}

std::vector<Server*> Parts::All() const {
  MutexLock lock(mutex_);
  std::vector<Server*> all = {own_.get()};
  if (other_ != nullptr) all.push_back(other_.get());
  return all;
}

void Parts::Tick() {
  for (Server* server : All()) server->Tick();
}

void Parts::WokeUp() {
  for (Server* server : All()) server->WokeUp();
}

std::optional<ExitCode> Parts::ended() const {
  if (const auto end = own_->ended()) return end;
  for (Server* server : All()) {
    if (const auto end = server->ended(); end.has_value() && *end != ExitCode::kDone) return end;
  }
  return std::nullopt;
}

void Parts::Shutdown() {
  for (Server* server : All()) server->Shutdown();
}

}  // namespace cairn::ps
