// Who takes part, which push of whom was seen last, and whether a push may count at all: what every policy
// asks. Private to ps/policy.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "ps/policy/policy.h"

namespace cairn::ps {

// From which base versions a gradient is welcome.
struct VersionWindow {
  int64_t version;  // updates applied so far
  std::optional<int64_t> final_version;
  std::optional<int64_t> max_staleness;

  bool Finished() const { return final_version.has_value() && version >= *final_version; }
};

class Roster {
 public:
  void Join(int worker, uint64_t incarnation);
  // False when `worker` now lives as another incarnation: nothing changes then. One that never joined counts
  // as heard of from now on.
  bool Leave(int worker, uint64_t incarnation);

  // A step that the worker's current incarnation has pushed before.
  bool IsRepeat(const PushKey& key) const;
  // Why `gradient`, no repeat, may not count, or nothing. Notes a member's step: the next one with it is a
  // repeat.
  std::optional<Refuse> Admit(const Gradient& gradient, const VersionWindow& window);

  // Has joined or left at least once.
  bool WasHeardOf(int worker) const { return workers_.count(worker) != 0; }
  int num_live() const { return num_live_; }
  std::vector<int> LiveWorkers() const;  // ascending

  const std::map<int, PolicyState::Worker>& Save() const { return workers_; }
  void Restore(std::map<int, PolicyState::Worker> workers);

 private:
  std::map<int, PolicyState::Worker> workers_;  // [worker], all ever heard of
  int num_live_ = 0;
};

}  // namespace cairn::ps
