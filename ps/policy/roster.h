// The members of a job, and the last push of each. Decides whether a push may count.
// Private to ps/policy.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "cairn/v1/policy.pb.h"
#include "ps/policy/policy.h"

namespace cairn::ps {

// The range of base versions with which a gradient is accepted.
struct VersionWindow {
  int64_t version;  // updates applied so far
  std::optional<int64_t> final_version;
  std::optional<int64_t> max_staleness;

  bool Finished() const { return final_version.has_value() && version >= *final_version; }
};

class Roster {
 public:
  struct Worker {
    uint64_t incarnation = 0;
    int64_t last_step = std::numeric_limits<int64_t>::min();  // the incarnation's last step
    bool live = false;
  };
  using Saved = google::protobuf::RepeatedPtrField<v1::RosterEntry>;

  void Join(int worker, uint64_t incarnation);
  // False, without effect, if `worker` now lives as another incarnation. WasHeardOf() is true afterwards,
  // even if the worker never joined.
  bool Leave(int worker, uint64_t incarnation);

  // Whether the worker's current incarnation has pushed this step before.
  bool IsRepeat(const PushKey& key) const;
  // The reason why `gradient` is refused; nullopt if it may count. `gradient` must not be a repeat. Records
  // the step of a member's gradient, so that the next push of this step is a repeat.
  std::optional<Refuse> Admit(const Gradient& gradient, const VersionWindow& window);

  // Whether the worker has joined or left at least once.
  bool WasHeardOf(int worker) const { return workers_.count(worker) != 0; }
  int num_live() const { return num_live_; }
  std::vector<int> LiveWorkers() const;  // ascending

  void Save(Saved& saved) const;
  // INVALID_ARGUMENT, without effect, for a worker that is not below `most_workers`.
  absl::Status Load(const Saved& saved, int most_workers);

 private:
  std::map<int, Worker> workers_;  // [worker]: all that have joined or left
  int num_live_ = 0;
};

}  // namespace cairn::ps
