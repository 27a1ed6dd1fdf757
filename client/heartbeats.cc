#include "client/heartbeats.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "client/job_end.h"

namespace cairn::client {

void Heartbeats::Start(const Member& member) {
  Stop();
  {
    MutexLock lock(mutex_);
    stopping_ = false;
  }
  for (int server = 0; server < connection_.num_servers(); ++server) {
    threads_.emplace_back("heartbeats", [this, server, member] { Run(server, member); });
  }
}

void Heartbeats::Stop() {
  StopSoon();
  threads_.clear();  // joins the threads
  MutexLock lock(mutex_);
  failure_ = absl::OkStatus();
  waiting_for_.clear();
}

void Heartbeats::StopSoon() {
  MutexLock lock(mutex_);
  stopping_ = true;
  woken_.NotifyAll();
}

void Heartbeats::set_step(int64_t step) {
  MutexLock lock(mutex_);
  step_ = step;
}

void Heartbeats::SetReport(v1::WorkerReport report) {
  MutexLock lock(mutex_);
  report_ = std::move(report);
}

absl::Status Heartbeats::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

std::string Heartbeats::waiting_for() const {
  MutexLock lock(mutex_);
  return waiting_for_;
}

Duration Heartbeats::Member::period() const {
  constexpr Duration kShortest = std::chrono::milliseconds(50);
  const Duration of_lease = lease / 4;
  if (step_timeout <= Duration::zero()) return of_lease;
  return std::min(of_lease, std::max(step_timeout / 4, kShortest));
}

void Heartbeats::Run(int server, const Member& member) {
  const Duration period = member.period();
  for (;;) {
    v1::HeartbeatRequest request;
    request.set_worker(member.worker);
    request.set_incarnation(member.incarnation);
    {
      MutexLock lock(mutex_);
      const TimePoint next = std::chrono::steady_clock::now() + period;
      while (!stopping_ && std::chrono::steady_clock::now() < next) woken_.WaitUntil(mutex_, next);
      if (stopping_) return;
      request.set_step(step_);
    }
    if (options_.report) {
      if (server == 0) SetReport(options_.report());
      MutexLock lock(mutex_);
      *request.mutable_report() = report_;
    }
    Beat(server, request, std::chrono::duration_cast<std::chrono::milliseconds>(member.lease / 4));
  }
}

void Heartbeats::Beat(int server, const v1::HeartbeatRequest& request, std::chrono::milliseconds timeout) {
  v1::HeartbeatResponse response;
  const int moves = connection_.moves(server);
  const TimePoint sent = std::chrono::steady_clock::now();
  absl::Status status = connection_.stub(server).Call(request, &response, timeout);
  bool failed = false;
  if (status.ok()) {
    connection_.NoteClock(server, sent, response.clock_unix_nanos());
    failed = response.state() == v1::STATE_FAILED;
    if (failed)
      status = absl::Status(static_cast<absl::StatusCode>(response.failure_code()), response.failure());
    if (response.state() == v1::STATE_FINISHED) status = TrainingIsOver();
  }
  // The server may not know this worker because it was restarted, or because another one serves its shard.
  if (absl::IsAborted(status) || (!status.ok() && !failed && connection_.replicated())) {
    if (absl::Status lost = connection_.Describe(server).status(); absl::IsAborted(lost)) status = lost;
  }
  const bool moved = connection_.moves(server) != moves;
  {
    MutexLock lock(mutex_);
    if (status.ok()) {
      if (server == 0) waiting_for_ = response.waiting_for();
      return;
    }
    // Requests to a shard that has moved must be sent again. In other cases the server is merely unreachable
    // now, and a step that needs it reports that.
    const bool final = failed || absl::IsAborted(status) || IsOver(status);
    if (!moved && !final) return;
    if (!moved) failure_.Update(status);
  }
  options_.changed();
}

}  // namespace cairn::client
