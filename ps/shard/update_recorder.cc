#include "ps/shard/update_recorder.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace cairn::ps {

void UpdateRecorder::Count(const Apply& apply, const Updater::Contributions& contributions,
                           TimePoint began) const {
  if (metrics_ == nullptr) return;
  std::vector<std::pair<int, TimePoint>> came;
  for (size_t i = 0; i < contributions.size(); ++i) {
    if (contributions[i].has_value())
      came.emplace_back(apply.contributors[i].key.worker, contributions[i]->came);
  }
  metrics_->OnUpdate(came, began, std::chrono::steady_clock::now());
}

void UpdateRecorder::Trace(const Apply& apply, const Updater::Contributions& contributions,
                           TimePoint began) const {
  TimePoint first = began;
  for (size_t i = 0; i < contributions.size(); ++i) {
    const PushKey& key = apply.contributors[i].key;
    trace_->Record(
        {.kind = TraceEvent::Kind::kFlowIn,
         .lane = TraceLane::kApply,
         .begin = TraceNanos(began),
         .flow = {
             .worker = key.worker, .server = server_, .incarnation = key.incarnation, .number = key.step}});
    if (contributions[i].has_value()) first = std::min(first, contributions[i]->came);
  }
  trace_->Record({.lane = TraceLane::kCollect,
                  .name = "collect",
                  .begin = TraceNanos(first),
                  .end = TraceNanos(began),
                  .step = apply.version});
}

void UpdateRecorder::TraceReplies(TimePoint began, int64_t version) const {
  trace_->Record({.lane = TraceLane::kReply,
                  .name = "reply",
                  .begin = TraceNanos(began),
                  .end = TraceNanos(std::chrono::steady_clock::now()),
                  .step = version});
}

}  // namespace cairn::ps
