// How a stage leader connects to its stage workers, and detects that a stage worker is lost.
#include "worker/split/leader_link.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/grpc/backoff.h"
#include "common/net/grpc/grpc_util.h"
#include "common/net/grpc/unreachable.h"

namespace cairn::split {
namespace {

constexpr auto kGreetTimeout = std::chrono::milliseconds(2000);
constexpr auto kLogEvery = std::chrono::seconds(10);

TimePoint Now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

void StageLeader::Link::OnClosed(const absl::Status& status) {
  const std::string text = absl::StrCat("lost ", name(), leader.InStep(), ": ", status.message());
  const bool again = allreduce::IsLoss(status) || absl::IsAborted(status);
  leader.Lose(*this, again ? absl::AbortedError(text) : absl::Status(status.code(), text));
}

absl::Status StageLeader::Reach() {
  return ReachBy(Now() + options_.connect_timeout);
}

absl::Status StageLeader::ReachBy(TimePoint deadline) {
  for (size_t stage_worker = 0; stage_worker < options_.stage_workers.size(); ++stage_worker) {
    std::shared_ptr<Link> old;
    {
      MutexLock lock(mutex_);
      if (links_[stage_worker] != nullptr && links_[stage_worker]->lost.ok()) continue;
      old = std::exchange(links_[stage_worker], nullptr);
    }
    if (old != nullptr) Say(std::string(old->lost.message()));
    Drop(std::move(old));
    CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<Link> opened, Open(stage_worker, deadline));
    MutexLock lock(mutex_);
    links_[stage_worker] = std::move(opened);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<StageLeader::Link>> StageLeader::Open(size_t stage_worker,
                                                                     TimePoint deadline) {
  const StageWorkerAddress& at = options_.stage_workers[stage_worker];
  v1::GreetRequest request;
  request.set_protocol(net::kProtocolVersion);
  request.set_cluster_hash(options_.cluster_hash);
  request.set_from(options_.worker);
  request.set_to(at.worker);
  request.set_incarnation(options_.incarnation);
  *request.mutable_plan() = options_.plan;
  net::Backoff backoff(options_.incarnation, std::chrono::milliseconds(20), std::chrono::milliseconds(500));
  TimePoint log_at = Now() + kLogEvery;
  std::string why;
  for (;;) {
    if (stopped()) return absl::CancelledError("stopped by a signal");
    v1::GreetResponse response;
    const absl::Status status = at.peer->Greet(request, &response, kGreetTimeout);
    if (status.ok()) {
      auto link = std::make_shared<Link>(*this, stage_worker);
      link->stream = at.peer->Open(response, *link);
      v1::RingHeader header;
      header.mutable_hello()->set_worker(options_.worker);
      header.mutable_hello()->set_incarnation(options_.incarnation);
      link->stream->Send(header, {}, nullptr);
      return link;
    }
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return Annotate(status, at.name);
    why = net::WhyUnreachable(status, why);
    if (Now() >= deadline) {
      return absl::UnavailableError(absl::StrCat(at.name, " was not reached in time: ", why));
    }
    if (Now() >= log_at) {
      Say(absl::StrCat("waiting for ", at.name, ": ", why));
      log_at += kLogEvery;
    }
    std::this_thread::sleep_for(std::min<Duration>(backoff.Next(), deadline - Now()));
  }
}

void StageLeader::DropLinks() {
  std::vector<std::shared_ptr<Link>> links(options_.stage_workers.size());
  {
    MutexLock lock(mutex_);
    links.swap(links_);
  }
  for (std::shared_ptr<Link>& link : links) Drop(std::move(link));
}

void StageLeader::Drop(std::shared_ptr<Link> link) {
  // Waits until this thread is the link's only user. Other threads use the link for the duration of a Send(),
  // which does not block. The stream's own thread may be one of them, and must not destroy the stream,
  // because the destructor waits for that thread.
  while (link != nullptr && link.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace cairn::split
