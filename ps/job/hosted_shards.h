// The shards of a job that one process hosts: its own shard and, for jobs with ps_replication, the backup of
// the previous server's shard, which may be promoted. Owned by PsTask; each Server lives as long as this
// object. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/core/mutex.h"
#include "ps/job/server.h"

namespace cairn::ps {

class HostedShards {
 public:
  // Makes the Server of a shard that is not the process' own.
  using Maker = std::function<std::unique_ptr<Server>(int shard)>;

  // `make` may be null: then the process hosts only its own shard.
  HostedShards(std::unique_ptr<Server> own, int own_shard, Maker make)
      : own_(std::move(own)), own_shard_(own_shard), make_(std::move(make)) {}

  Server& own() const { return *own_; }
  // Null if the process neither serves the shard nor has its backup.
  Server* Find(int shard) const ABSL_LOCKS_EXCLUDED(mutex_);
  // As Find(), but UNAVAILABLE instead of null: the client then searches again for the server of the shard.
  absl::StatusOr<Server*> Serving(int shard) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the Server for the backup of `shard`, and makes it if necessary. A process makes only one other
  // Server: FAILED_PRECONDITION for another shard.
  absl::StatusOr<Server*> ForBackup(int shard) ABSL_LOCKS_EXCLUDED(mutex_);

  // These call the function of Server for each shard of the process. ended(): the process is done when the
  // Server of its own shard is done, and has failed when any of its Servers has failed.
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
