#include "worker/split/stage_worker_links.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/clock.h"
#include "common/core/status.h"
#include "common/net/grpc/grpc_util.h"
#include "worker/peer/greeting.h"
#include "worker/split/stage_messages.h"

namespace cairn::split {
namespace {

// Destroys the link when no other thread uses it.
void DropLink(std::shared_ptr<StageWorkerLinks::Link> link) {
  // Waits until this thread is the link's only user. Other threads use the link for the duration of a Send(),
  // which does not block. The stream's own thread may be one of them, and must not destroy the stream,
  // because the destructor waits for that thread.
  while (link != nullptr && link.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

StageWorkerLinks::StageWorkerLinks(Options options, Handler& handler)
    : options_(std::move(options)), handler_(handler), last_beat_(SteadyNow()), links_(size()) {}

void StageWorkerLinks::SetStep(int64_t step) {
  MutexLock lock(mutex_);
  step_ = step;
}

std::string StageWorkerLinks::InStep() const {
  MutexLock lock(mutex_);
  return step_ == 0 ? "" : absl::StrCat(" in step ", step_);
}

std::vector<std::shared_ptr<StageWorkerLinks::Link>> StageWorkerLinks::links() const {
  MutexLock lock(mutex_);
  return links_;
}

std::shared_ptr<StageWorkerLinks::Link> StageWorkerLinks::Get(size_t stage_worker) const {
  MutexLock lock(mutex_);
  return links_[stage_worker];
}

absl::Status StageWorkerLinks::lost() const {
  absl::Status lost;
  MutexLock lock(mutex_);
  for (const auto& link : links_) {
    if (link != nullptr) lost.Update(link->lost_);
  }
  return lost;
}

// --- Connecting ---

absl::Status StageWorkerLinks::Reach(TimePoint deadline) {
  for (size_t stage_worker = 0; stage_worker < size(); ++stage_worker) {
    std::shared_ptr<Link> old;
    {
      MutexLock lock(mutex_);
      if (links_[stage_worker] != nullptr && links_[stage_worker]->lost_.ok()) continue;
      old = std::exchange(links_[stage_worker], nullptr);
    }
    if (old != nullptr) Say(std::string(old->lost_.message()));
    DropLink(std::move(old));
    CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<Link> opened, Open(stage_worker, deadline));
    MutexLock lock(mutex_);
    links_[stage_worker] = std::move(opened);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<StageWorkerLinks::Link>> StageWorkerLinks::Open(size_t stage_worker,
                                                                               TimePoint deadline) {
  const StageWorkerAddress& at = options_.stage_workers[stage_worker];
  v1::GreetRequest request;
  request.set_protocol(net::kProtocolVersion);
  request.set_cluster_hash(options_.cluster_hash);
  request.set_from(options_.worker);
  request.set_to(at.worker);
  request.set_incarnation(options_.incarnation);
  *request.mutable_plan() = options_.plan;
  CAIRN_ASSIGN_OR_RETURN(
      const v1::GreetResponse greeted,
      allreduce::GreetUntilAnswered(
          {.peer = *at.peer,
           .name = at.name,
           .request = request,
           .deadline = deadline,
           .say = options_.say,
           .check =
               [this] { return stopped() ? absl::CancelledError("stopped by a signal") : absl::OkStatus(); },
           .judge = [](const v1::GreetResponse&) { return absl::StatusOr<std::string>(""); },
           .wait = [](TimePoint until) { std::this_thread::sleep_until(until); }}));
  auto link = std::make_shared<Link>(*this, stage_worker);
  link->stream_ = at.peer->Open(greeted, *link);
  v1::RingHeader header;
  header.mutable_hello()->set_worker(options_.worker);
  header.mutable_hello()->set_incarnation(options_.incarnation);
  link->stream_->Send(header, {}, nullptr);
  return link;
}

// --- While connected ---

absl::Status StageWorkerLinks::OnFrame(Link& link, const v1::RingHeader& header, net::Payload payload) {
  {
    MutexLock lock(mutex_);
    link.heard_ = SteadyNow();
    if (!link.lost_.ok()) return link.lost_;
  }
  return header.has_beat() ? absl::OkStatus() : handler_.OnFrame(link, header, payload);
}

void StageWorkerLinks::OnClosed(Link& link, const absl::Status& status) {
  const std::string text = absl::StrCat("lost ", name(link.stage_worker()), InStep(), ": ", status.message());
  const bool again = allreduce::IsLoss(status) || absl::IsAborted(status);
  Lose(link, again ? absl::AbortedError(text) : absl::Status(status.code(), text));
}

void StageWorkerLinks::Lose(Link& link, const absl::Status& why) {
  {
    MutexLock lock(mutex_);
    if (!link.lost_.ok()) return;
    link.lost_ = why;
    changed_.NotifyAll();
  }
  handler_.OnLost(link, why);
}

void StageWorkerLinks::Beat() {
  std::vector<std::shared_ptr<Link>> links, silent;
  {
    MutexLock lock(mutex_);
    const TimePoint now = SteadyNow();
    // After a suspension of this process, frames that arrived meanwhile have not been read yet. No link is
    // treated as silent then.
    const bool paused = now - std::exchange(last_beat_, now) > options_.lease / 2;
    for (const auto& link : links_) {
      if (link == nullptr || !link->lost_.ok()) continue;
      if (paused) link->heard_ = now;
      links.push_back(link);
      if (now - link->heard_ > options_.lease) silent.push_back(link);
    }
  }
  for (const auto& link : links) SendBeat(link->stream());
  for (const auto& link : silent) {
    Lose(*link, absl::AbortedError(absl::StrCat("lost ", name(link->stage_worker()), InStep(),
                                                ": not heard from for ", ToSeconds(options_.lease), " s")));
  }
}

// --- The end ---

void StageWorkerLinks::SendLast(const v1::SplitHeader& header, Duration limit) {
  const std::vector<std::shared_ptr<Link>> links = this->links();
  for (const auto& link : links) {
    if (link != nullptr) SendHeader(link->stream(), header);
  }
  const TimePoint deadline = SteadyNow() + limit;
  MutexLock lock(mutex_);
  const auto ended = [](const auto& link) { return link == nullptr || !link->lost_.ok(); };
  while (!std::all_of(links.begin(), links.end(), ended) && SteadyNow() < deadline)
    changed_.WaitUntil(mutex_, deadline);
}

void StageWorkerLinks::Drop() {
  std::vector<std::shared_ptr<Link>> links(size());
  {
    MutexLock lock(mutex_);
    links.swap(links_);
  }
  for (std::shared_ptr<Link>& link : links) DropLink(std::move(link));
}

}  // namespace cairn::split
