// The parts of a job that one process holds: its own, and where jobs have ps_replication the copy of the part
// of the server before it, which it may come to serve. Owned by main; its servers live as long as it does.
// Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/core/mutex.h"
#include "ps/server.h"

namespace cairn::ps {

class Parts {
 public:
  // Makes the server of a part that is not the process' own.
  using Maker = std::function<std::unique_ptr<Server>(int part)>;

  // `make` may be null: then there is no other part.
  Parts(std::unique_ptr<Server> own, int own_part, Maker make)
      : own_(std::move(own)), own_part_(own_part), make_(std::move(make)) {}

  Server& own() const { return *own_; }
  // Null where nothing of the part is here.
  Server* Find(int part) const ABSL_LOCKS_EXCLUDED(mutex_);
  // As Find(). UNAVAILABLE where nothing of the part is here: a client that knew it here looks for it again.
  absl::StatusOr<Server*> Serving(int part) const ABSL_LOCKS_EXCLUDED(mutex_);
  // For its copy. FAILED_PRECONDITION for a second part that is not the process' own.
  absl::StatusOr<Server*> ForCopy(int part) ABSL_LOCKS_EXCLUDED(mutex_);

  // As those of Server, of all of them. The process is done when its own server is, and has failed when one
  // has.
  void Tick();
  void WokeUp();
  std::optional<ExitCode> ended() const;
  void Shutdown();

 private:
  std::vector<Server*> All() const ABSL_LOCKS_EXCLUDED(mutex_);

  const std::unique_ptr<Server> own_;
  const int own_part_;
  const Maker make_;
  mutable Mutex mutex_;
  int other_part_ ABSL_GUARDED_BY(mutex_) = -1;
  std::unique_ptr<Server> other_ ABSL_GUARDED_BY(mutex_);  // set once
};

}  // namespace cairn::ps
