// What the next entry of a log must be for a shard to execute it. The log comes from the server that leads
// the job, a copy's from the server that it is the copy of: these may be confused, or somebody else's. What
// any entry must be sees follow_proto.h to.
//
// One per shard, which guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ps/optim/optimizer.h"
#include "ps/sequencer.h"

namespace cairn::ps {

// Of an entry that makes an update or measures it: the gradients that it takes, and the version after it. Of
// others none, and 0.
absl::Span<const Gradient> ContributorsOf(const LogEntry& entry);
int64_t VersionOf(const LogEntry& entry);

class EntryCheck {
 public:
  // `norms`: those that each update takes, in this order. `version`: before the first entry. Workers have
  // numbers below `most_workers`.
  EntryCheck(absl::Span<const Norms> norms, int64_t version, int most_workers)
      : norms_(norms.begin(), norms.end()), most_workers_(most_workers), version_(version) {}

  // INVALID_ARGUMENT, naming the entry and what was due, for an update to another version than the next, one
  // whose Measures are not those of the optimizer's norms, each once and in their order, an entry between
  // these and their Apply, and one of a worker that the job has not; such an entry does not count as come.
  absl::Status Admit(const LogEntry& entry);
  absl::Status CheckWorker(int worker) const;

  // The next update is the one after `version`; none is under way.
  void GoOnFrom(int64_t version);

 private:
  absl::Status CheckWorkers(const LogEntry& entry) const;

  const std::vector<Norms> norms_;
  const int most_workers_;
  int64_t version_;      // after all that have come
  size_t measures_ = 0;  // of the update to the next one
};

}  // namespace cairn::ps
