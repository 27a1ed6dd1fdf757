// How a stage leader connects to its stage workers, and detects that one is lost.
#include "worker/split/head_link.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/backoff.h"
#include "common/net/grpc_util.h"
#include "common/net/unreachable.h"

namespace cairn::split {
namespace {

constexpr auto kGreetTimeout = std::chrono::milliseconds(2000);
constexpr auto kSayEvery = std::chrono::seconds(10);

TimePoint Now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

void Head::Link::OnClosed(const absl::Status& status) {
  const std::string text = absl::StrCat("lost ", name(), head.InStep(), ": ", status.message());
  const bool again = allreduce::IsLoss(status) || absl::IsAborted(status);
  head.Lose(*this, again ? absl::AbortedError(text) : absl::Status(status.code(), text));
}

absl::Status Head::Reach() {
  return ReachBy(Now() + options_.connect_timeout);
}

absl::Status Head::ReachBy(TimePoint deadline) {
  for (size_t partner = 0; partner < options_.partners.size(); ++partner) {
    std::shared_ptr<Link> old;
    {
      MutexLock lock(mutex_);
      if (links_[partner] != nullptr && links_[partner]->lost.ok()) continue;
      old = std::exchange(links_[partner], nullptr);
    }
    if (old != nullptr) Say(std::string(old->lost.message()));
    Drop(std::move(old));
    CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<Link> opened, Open(partner, deadline));
    MutexLock lock(mutex_);
    links_[partner] = std::move(opened);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Head::Link>> Head::Open(size_t partner, TimePoint deadline) {
  const PartnerAt& at = options_.partners[partner];
  v1::GreetRequest request;
  request.set_protocol(net::kProtocolVersion);
  request.set_cluster_hash(options_.cluster_hash);
  request.set_from(options_.worker);
  request.set_to(at.worker);
  request.set_incarnation(options_.incarnation);
  *request.mutable_plan() = options_.plan;
  net::Backoff backoff(options_.incarnation, std::chrono::milliseconds(20), std::chrono::milliseconds(500));
  TimePoint say_at = Now() + kSayEvery;
  std::string why;
  for (;;) {
    if (stopped()) return absl::CancelledError("stopped by a signal");
    v1::GreetResponse response;
    const absl::Status status = at.peer->Greet(request, &response, kGreetTimeout);
    if (status.ok()) {
      auto link = std::make_shared<Link>(*this, partner);
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
    if (Now() >= say_at) {
      Say(absl::StrCat("waiting for ", at.name, ": ", why));
      say_at += kSayEvery;
    }
    std::this_thread::sleep_for(std::min<Duration>(backoff.Next(), deadline - Now()));
  }
}

void Head::DropLinks() {
  std::vector<std::shared_ptr<Link>> links(options_.partners.size());
  {
    MutexLock lock(mutex_);
    links.swap(links_);
  }
  for (std::shared_ptr<Link>& link : links) Drop(std::move(link));
}

void Head::Drop(std::shared_ptr<Link> link) {
  // Other threads hold the link for the length of a Send(), which does not block. The stream's own thread may
  // be one of them, and must not be the one that waits for the stream's end.
  while (link != nullptr && link.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace cairn::split
