// What a server counts while it works, for those who look: see ps/monitor.h. Owned by the server, written by
// sessions and the shard, and outlives jobs. Thread-safe; decides nothing.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "common/core/clock.h"
#include "common/core/meters.h"
#include "common/core/mutex.h"

namespace cairn::ps {

class Meters {
 public:
  Counter received_bytes, sent_bytes;  // payloads: gradients and values
  Counter malformed_chunks;            // that came, and had no effect
  // Of each update: from its first gradient being here to the new version; that of the arithmetic alone, of
  // an update made ahead (update_ahead.h) only what was left of it; and from the first gradient to the last,
  // where there are several.
  Distribution round_seconds{kSecondsLimits}, apply_seconds{kSecondsLimits}, spread_seconds{kSecondsLimits};

  struct Lateness {
    int64_t times_last = 0;
    double seconds = 0;  // behind the first gradients of those updates, together
  };

  // An update was made of gradients of these workers, which came at these times; its arithmetic began at
  // `began`.
  void OnUpdate(const std::vector<std::pair<int, TimePoint>>& came, TimePoint began, TimePoint now)
      ABSL_LOCKS_EXCLUDED(mutex_);
  std::map<int, Lateness> lateness() const ABSL_LOCKS_EXCLUDED(mutex_);  // [worker]

 private:
  mutable Mutex mutex_;
  std::map<int, Lateness> lateness_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::ps
