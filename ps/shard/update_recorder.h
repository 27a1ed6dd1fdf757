// Records the updates of a shard: in the server's metrics, and on its timeline. Decides nothing.
#pragma once

#include <cstdint>

#include "common/core/clock.h"
#include "common/trace/trace.h"
#include "ps/policy/policy.h"
#include "ps/shard/metrics.h"
#include "ps/shard/updater.h"

namespace cairn::ps {

class UpdateRecorder {
 public:
  // `server`: the index of the server that owns the shard. The others may be null, and outlive the recorder.
  UpdateRecorder(int server, Metrics* metrics, TraceRecorder* trace)
      : server_(server), metrics_(metrics), trace_(trace) {}

  TraceRecorder* trace() const { return trace_; }

  // Counts an update in the metrics. `began`: when its arithmetic began.
  void Count(const Apply& apply, const Updater::Contributions& contributions, TimePoint began) const;
  // With a trace: records when the gradients of the update were collected, and that their pushes flow into the
  // update; and that answers were sent from `began` until now.
  void Trace(const Apply& apply, const Updater::Contributions& contributions, TimePoint began) const;
  void TraceReplies(TimePoint began, int64_t version) const;

 private:
  const int server_;
  Metrics* const metrics_;
  TraceRecorder* const trace_;
};

}  // namespace cairn::ps
