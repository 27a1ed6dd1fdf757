// The shards of a job in one process: its own, and, for jobs with ps_replication, the backup of the previous
// server's shard, which may be promoted. Owned by main; its servers live as long as it does. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/core/mutex.h"
#include "ps/server.h"

namespace cairn::ps {

class HostedShards {
 public:
  // Makes the Server of a shard that is not the process' own.
  using Maker = std::function<std::unique_ptr<Server>(int shard)>;

  // `make` may be null: then the process has no shard but its own.
  HostedShards(std::unique_ptr<Server> own, int own_shard, Maker make)
      : own_(std::move(own)), own_shard_(own_shard), make_(std::move(make)) {}

  Server& own() const { return *own_; }
  // Null if the process neither serves the shard nor has its backup.
  Server* Find(int shard) const ABSL_LOCKS_EXCLUDED(mutex_);
  // As Find(), but UNAVAILABLE in place of null, so that a client that used the shard here searches for it
  // again.
  absl::StatusOr<Server*> Serving(int shard) const ABSL_LOCKS_EXCLUDED(mutex_);
  // The server for a backup. FAILED_PRECONDITION for a second shard that is not the process' own.
  absl::StatusOr<Server*> ForBackup(int shard) ABSL_LOCKS_EXCLUDED(mutex_);

  // As in Server, for all servers. The process is done when its own server is done, and has failed when any
  // server has failed.
  void Tick();
  void WokeUp();
  std::optional<ExitCode> ended() const;
  void Shutdown();

 private:
  std::vector<Server*> All() const ABSL_LOCKS_EXCLUDED(mutex_);

  const std::unique_ptr<Server> own_;
  const int own_shard_;
  const Maker make_;
  mutable Mutex mutex_;
  int other_shard_ ABSL_GUARDED_BY(mutex_) = -1;
  std::unique_ptr<Server> other_ ABSL_GUARDED_BY(mutex_);  // set once
};

}  // namespace cairn::ps
