// The metrics of a server (ps/monitor/monitor.h shows them). Owned by the server, written by sessions and the shard;
// outlives jobs. Thread-safe; decides nothing.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "common/core/clock.h"
#include "common/core/metrics.h"
#include "common/core/mutex.h"

namespace cairn::ps {

class Metrics {
 public:
  Counter received_bytes, sent_bytes;  // bytes of payloads: gradients and values
  Counter malformed_chunks;            // chunks that were received and refused
  // Durations per update. round_seconds: from the arrival of its first gradient to the new version.
  // apply_seconds: the arithmetic; for a speculative update (speculative_update.h), only the part that was
  // left at the end. spread_seconds: from the first gradient to the last, if there are several.
  Distribution round_seconds{kSecondsLimits}, apply_seconds{kSecondsLimits}, spread_seconds{kSecondsLimits};

  struct Lateness {
    int64_t times_last = 0;
    double seconds = 0;  // total time from the first gradient to this worker's, in those updates
  };

  // Records an update. `came`: the workers whose gradients it uses, and when each gradient arrived. `began`
  // and `now`: the begin and the end of its arithmetic.
  void OnUpdate(const std::vector<std::pair<int, TimePoint>>& came, TimePoint began, TimePoint now)
      ABSL_LOCKS_EXCLUDED(mutex_);
  std::map<int, Lateness> lateness() const ABSL_LOCKS_EXCLUDED(mutex_);  // [worker]

 private:
  mutable Mutex mutex_;
  std::map<int, Lateness> lateness_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::ps
