#include "client/training/step_trace.h"

#include <algorithm>
#include <chrono>

#include "common/core/clock.h"

namespace cairn::client {
namespace {

int64_t NowNanos() {
  return TraceNanos(std::chrono::steady_clock::now());
}

}  // namespace

void StepTrace::BeginStep(const Step& step) {
  traced_ = Wants(recorder_);
  step_ = step;
  pushes_.assign(pushes_.size(), {});
}

void StepTrace::OnSending(int server) {
  if (traced_ && push(server).began == 0) push(server).began = NowNanos();
}

void StepTrace::OnSent(int server) {
  if (!traced_) return;
  Push& push = this->push(server);
  push.sent = NowNanos();
  if (push.began == 0) push.began = push.sent;  // a push without examples
  recorder_->Record({.lane = TraceLane::kPush,
                     .index = server,
                     .name = "push",
                     .begin = push.began,
                     .end = push.sent,
                     .step = recorder_->step(),
                     .bytes = push.bytes});
  // The start of the push's arrow in the trace.
  recorder_->Record({.kind = TraceEvent::Kind::kFlowOut,
                     .lane = TraceLane::kPush,
                     .index = server,
                     .begin = std::max(push.began, push.sent - 1),  // within the slice
                     .flow = {.worker = step_.worker,
                              .server = server,
                              .incarnation = step_.incarnation,
                              .number = step_.number}});
}

void StepTrace::OnAnswer(int server, const FirstValuesAt& first_values) const {
  if (first_values == nullptr) return;
  const int64_t sent = pushes_[static_cast<size_t>(server)].sent;
  const int64_t now = NowNanos();
  if (sent == 0) return;  // the server had seen the push before, and answered before all of it was sent
  const auto record = [&](TraceLane lane, const char* name, int64_t begin, int64_t end) {
    recorder_->Record(
        {.lane = lane, .index = server, .name = name, .begin = begin, .end = end, .step = recorder_->step()});
  };
  const int64_t first = *first_values;
  // The first values may arrive while gradients are still being sent.
  record(TraceLane::kWait, "wait", sent, first == 0 ? now : std::max(sent, first));
  if (first != 0) record(TraceLane::kPull, "pull", first, now);
}

}  // namespace cairn::client
