// Checks whether a shard may execute the next entry of a log. The log comes from the job's sequencer or, for
// a backup, from its primary; either may be faulty or malicious. follow_proto.h checks what is independent of
// the shard's state.
//
// One per shard, guarded by the LogExecutor's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "optim/optimizer.h"
#include "ps/log/log_entry.h"

namespace cairn::ps {

// ContributorsOf(): the contributors of the update that the entry makes or measures, or none. VersionOf():
// the version after that update, or 0.
absl::Span<const Gradient> ContributorsOf(const LogEntry& entry);
int64_t VersionOf(const LogEntry& entry);

class LogValidator {
 public:
  // `norms`: the norms that each update takes, in this order. `version`: the version before the first entry.
  // Worker numbers are below `most_workers`.
  LogValidator(absl::Span<const optim::Norms> norms, int64_t version, int most_workers)
      : norms_(norms.begin(), norms.end()), most_workers_(most_workers), version_(version) {}

  // Accepts the next entry. INVALID_ARGUMENT, without effect, naming the entry and the expectation, if it
  // violates one of these rules. Each update makes the next version. An Apply follows one Measure for each of
  // the optimizer's norms, in order, and no other entry lies between them. All workers are below
  // most_workers.
  absl::Status Admit(const LogEntry& entry);
  absl::Status CheckWorker(int worker) const;

  // Continues at `version`: the next update makes version + 1, and no update is being measured.
  void GoOnFrom(int64_t version);

 private:
  absl::Status CheckWorkers(const LogEntry& entry) const;

  const std::vector<optim::Norms> norms_;
  const int most_workers_;
  int64_t version_;      // the version after all admitted entries
  size_t measures_ = 0;  // the number of Measures admitted for the next update
};

}  // namespace cairn::ps
