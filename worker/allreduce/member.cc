#include "worker/allreduce/member.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/this_process.h"
#include "common/core/status.h"
#include "common/net/grpc/backoff.h"
#include "common/net/grpc/grpc_util.h"
#include "common/net/grpc/unreachable.h"
#include "worker/allreduce/member_links.h"

namespace cairn::allreduce {
namespace {

constexpr auto kGreetTimeout = std::chrono::milliseconds(2000);
constexpr auto kLogEvery = std::chrono::seconds(10);
// kLookEvery: how often a waiting call checks whether to end. kLastWords: how long a neighbour has to receive
// the reason why a ring epoch is over.
constexpr auto kLookEvery = std::chrono::milliseconds(500);
constexpr auto kLastWords = std::chrono::seconds(1);
constexpr Duration kBeatEvery = std::chrono::seconds(1);

TimePoint Now() {
  return std::chrono::steady_clock::now();
}

std::vector<int64_t> BeginsOf(const std::vector<net::VariableInfo>& variables) {
  std::vector<int64_t> begins;
  int64_t end = 0;
  for (const net::VariableInfo& variable : variables) {
    begins.push_back(end);
    end += variable.shape.num_elements();
  }
  begins.push_back(end);
  return begins;
}

}  // namespace

Member::Member(Options options, std::unique_ptr<RingPeer> right)
    : options_(std::move(options)),
      peer_(std::move(right)),
      process_(client::DrawProcess()),
      variable_begins_(BeginsOf(options_.variables)),
      plan_(ChunkPlan::Make(options_.size, workers(), options_.most_chunk)),
      states_(static_cast<size_t>(workers())) {
  CAIRN_CHECK((peer_ == nullptr) == (workers() == 1));
  if (peer_ != nullptr) beats_ = Thread("ring-beat", [this] { Beat(); });
}

Member::~Member() {
  {
    MutexLock lock(mutex_);
    stopping_ = complete_ = true;
    right_ = nullptr;
    changed_.NotifyAll();
  }
  beats_.Join();
  Drop(std::exchange(outlet_, nullptr));
}

std::string Member::InStep() const {
  if (!agreed_.has_value()) return " while the ring was being formed";
  return absl::StrCat(" in step ", agreed_->ring->step());
}

// --- Ending a ring epoch ---

void Member::BreakTo(int64_t ring_epoch, int64_t next, const absl::Status& why) {
  std::shared_ptr<RingStream> left;
  std::shared_ptr<Outlet> right;
  std::shared_ptr<Ring> ring;
  {
    MutexLock lock(mutex_);
    // A reason other than ABORTED ends all ring epochs, including one that began in the meantime.
    const bool last = !absl::IsAborted(why);
    if ((ring_epoch != ring_epoch_ && !last) || complete_) return;
    ring_epoch_ = std::max(next, ring_epoch_ + 1);
    broken_ = why;
    if (last && ended_.ok()) ended_ = why;
    left = std::exchange(left_, nullptr);
    right = std::exchange(right_, nullptr);
    if (agreed_.has_value()) ring = agreed_->ring;
    agreed_.reset();
    waiting_.clear();
    states_.assign(states_.size(), std::nullopt);
    passed_.reset();
    passed_size_ = 0;
    left_bye_ = right_bye_ = false;
    changed_.NotifyAll();
  }
  if (ring != nullptr) ring->Fail(why);
  if (right != nullptr) {
    v1::RingHeader header;
    header.mutable_broken()->set_code(static_cast<int>(why.code()));
    header.mutable_broken()->set_message(std::string(why.message()));
    right->stream->Send(header, {}, nullptr);
  }
  if (left != nullptr) left->End(why);
}

absl::Status Member::Fault(int64_t ring_epoch) const {
  if (!ended_.ok()) return ended_;
  if (ring_epoch == ring_epoch_) return absl::OkStatus();
  return broken_.ok() ? absl::AbortedError("the ring is being formed again") : broken_;
}

void Member::SendRight(int64_t ring_epoch, const v1::RingHeader& header, net::FloatSpans payload,
                       const std::shared_ptr<const void>& owner) {
  std::shared_ptr<Outlet> right;
  {
    MutexLock lock(mutex_);
    if (ring_epoch != ring_epoch_) return;
    if (right_ == nullptr) {
      // Only headers can wait: values are sent after all states have arrived, when the stream is open.
      waiting_.push_back(header);
      return;
    }
    right = right_;
  }
  right->stream->Send(header, payload, owner);
}

void Member::Interrupt(const absl::Status& reason) {
  std::shared_ptr<Ring> ring;
  {
    MutexLock lock(mutex_);
    if (ended_.ok()) ended_ = reason;
    if (agreed_.has_value()) ring = agreed_->ring;
    changed_.NotifyAll();
  }
  if (ring != nullptr) ring->Fail(reason);
}

// --- Forming ---

absl::StatusOr<Agreement> Member::Form(const std::function<v1::RingState()>& mine, TimePoint deadline) {
  net::Backoff backoff(options_.incarnation, std::chrono::milliseconds(20), std::chrono::milliseconds(500));
  for (;;) {
    Retire(std::exchange(outlet_, nullptr));
    int64_t ring_epoch;
    {
      MutexLock lock(mutex_);
      ring_epoch = ring_epoch_;
    }
    auto agreement = FormOnce(ring_epoch, mine(), deadline);
    if (agreement.ok() || !absl::IsAborted(agreement.status())) return agreement;
    {
      MutexLock lock(mutex_);
      if (!ended_.ok()) return ended_;
    }
    if (Now() >= deadline) {
      return absl::UnavailableError(absl::StrCat("the workers could not form a ring within their limit: ",
                                                 agreement.status().message()));
    }
    MutexLock lock(mutex_);
    const TimePoint wake = Now() + backoff.Next();
    while (Now() < wake && ended_.ok()) changed_.WaitUntil(mutex_, wake);
  }
}

absl::StatusOr<v1::GreetResponse> Member::GreetRight(int64_t ring_epoch, TimePoint deadline) {
  v1::GreetRequest request;
  request.set_protocol(net::kProtocolVersion);
  request.set_cluster_hash(options_.cluster_hash);
  request.set_from(options_.worker);
  request.set_to(right());
  request.set_incarnation(options_.incarnation);
  *request.mutable_process() = process_;
  request.set_ring_epoch(ring_epoch);
  *request.mutable_job() = options_.job;
  net::Backoff backoff(options_.incarnation, std::chrono::milliseconds(20), std::chrono::milliseconds(500));
  TimePoint log_at = Now() + kLogEvery;
  std::string why;
  for (;;) {
    {
      MutexLock lock(mutex_);
      CAIRN_RETURN_IF_ERROR(Fault(ring_epoch));
    }
    v1::GreetResponse response;
    const absl::Status status = peer_->Greet(request, &response, kGreetTimeout);
    if (status.ok()) {
      if (response.ring_epoch() > ring_epoch) {
        const auto anew =
            absl::AbortedError(absl::StrCat(name(right()), " is at ring epoch ", response.ring_epoch()));
        BreakTo(ring_epoch, response.ring_epoch(), anew);
        return anew;
      }
      if (response.ring_epoch() == ring_epoch) return response;
      why = absl::StrCat("it is still at ring epoch ", response.ring_epoch());
    } else if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
      why = net::WhyUnreachable(status, why);
    } else {
      return Annotate(status, name(right()));
    }
    if (Now() >= deadline) {
      return absl::UnavailableError(absl::StrCat(name(right()), " was not reached in time: ", why));
    }
    if (Now() >= log_at) {
      LogWait(absl::StrCat("waiting for ", name(right()), ": ", why));
      log_at += kLogEvery;
    }
    MutexLock lock(mutex_);
    const TimePoint wake = std::min(deadline, Now() + backoff.Next());
    while (Now() < wake && Fault(ring_epoch).ok()) changed_.WaitUntil(mutex_, wake);
  }
}

absl::StatusOr<Agreement> Member::FormOnce(int64_t ring_epoch, const v1::RingState& mine,
                                           TimePoint deadline) {
  if (peer_ != nullptr) {
    CAIRN_ASSIGN_OR_RETURN(const v1::GreetResponse greeted, GreetRight(ring_epoch, deadline));
    outlet_ = std::make_shared<Outlet>(*this, ring_epoch);
    outlet_->stream = peer_->Open(greeted, *outlet_);
    v1::RingHeader header;
    header.mutable_hello()->set_ring_epoch(ring_epoch);
    header.mutable_hello()->set_worker(options_.worker);
    header.mutable_hello()->set_incarnation(options_.incarnation);
    outlet_->stream->Send(header, {}, nullptr);
  }
  MutexLock lock(mutex_);
  CAIRN_RETURN_IF_ERROR(Fault(ring_epoch));
  // All of this happens under the lock. As soon as this worker's state is sent, values may arrive that this
  // worker must keep and pass on.
  if (outlet_ != nullptr) {
    v1::RingHeader header;
    *header.mutable_state() = mine;
    outlet_->stream->Send(header, {}, nullptr);
    for (const v1::RingHeader& waiting : waiting_) outlet_->stream->Send(waiting, {}, nullptr);
    waiting_.clear();
    right_ = outlet_;
  }
  AddState(ring_epoch, mine);
  TimePoint log_at = Now() + kLogEvery;
  while (Fault(ring_epoch).ok() && !agreed_.has_value()) {
    std::vector<std::string> missing;
    for (int worker = 0; worker < workers(); ++worker) {
      if (!states_[static_cast<size_t>(worker)].has_value()) missing.push_back(name(worker));
    }
    const std::string wanted =
        left_ == nullptr ? absl::StrCat(name(left()), " to connect")
                         : absl::StrCat("all workers; not heard from: ", absl::StrJoin(missing, ", "));
    if (Now() >= deadline) return absl::UnavailableError(absl::StrCat("timed out waiting for ", wanted));
    if (Now() >= log_at) {
      LogWait(absl::StrCat("waiting for ", wanted));
      log_at += kLogEvery;
    }
    changed_.WaitUntil(mutex_, std::min<TimePoint>(deadline, Now() + kLookEvery));
  }
  CAIRN_RETURN_IF_ERROR(Fault(ring_epoch));
  return *agreed_;
}

void Member::Retire(std::shared_ptr<Outlet> outlet) {
  if (outlet == nullptr) return;
  const TimePoint limit = Now() + kLastWords;
  {
    MutexLock lock(mutex_);
    while (!outlet->closed && Now() < limit) changed_.WaitUntil(mutex_, limit);
  }
  Drop(std::move(outlet));
}

void Member::Drop(std::shared_ptr<Outlet> outlet) {
  if (outlet == nullptr) return;
  // Other threads hold the link only during a Send(), which does not block. The stream's own thread may be
  // one of them, and must not be the thread that waits for the end of the stream.
  while (outlet.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void Member::AddState(int64_t ring_epoch, const v1::RingState& state) {
  states_[static_cast<size_t>(state.worker())] = state;
  std::vector<v1::RingState> states;
  for (const auto& one : states_) {
    if (!one.has_value()) return;
    states.push_back(*one);
  }
  auto agreement = Agree(std::move(states), options_.names);
  if (agreement.ok()) {
    Take(*std::move(agreement), ring_epoch);
  } else if (ended_.ok()) {
    ended_ = agreement.status();
  }
  changed_.NotifyAll();
}

void Member::Take(Agreement agreement, int64_t ring_epoch) {
  agreement.ring_epoch = ring_epoch;
  // If the devices sum the gradients, only the records go round the ring.
  const bool by_devices = !agreement.library.empty();
  agreement.ring = std::make_shared<Ring>(
      Ring::Options{.worker = options_.worker,
                    .version = agreement.states[static_cast<size_t>(agreement.source)].progress().version(),
                    .plan = by_devices ? ChunkPlan::Make(0, workers()) : plan_,
                    .variable_begins = variable_begins_},
      [this, ring_epoch](const v1::RingHeader& header, net::FloatSpans payload,
                         const std::shared_ptr<const void>& owner) {
        SendRight(ring_epoch, header, payload, owner);
      });
  if (agreement.passes && agreement.source != options_.worker) {
    passed_ = std::make_shared<AlignedBuffer>(options_.state_size);
  }
  agreed_ = std::move(agreement);
}

absl::StatusOr<std::shared_ptr<const AlignedBuffer>> Member::PassState(
    const Agreement& agreement, const std::function<std::shared_ptr<const AlignedBuffer>()>& state,
    TimePoint deadline) {
  if (agreement.source == options_.worker) {
    const std::shared_ptr<const AlignedBuffer> mine = state();
    for (int64_t offset = 0; offset < mine->size(); offset += kMaxChunkFloats) {
      v1::RingHeader header;
      header.mutable_values()->set_offset(offset);
      const int64_t count = std::min(kMaxChunkFloats, mine->size() - offset);
      const absl::Span<const float> values(mine->data() + offset, static_cast<size_t>(count));
      SendRight(agreement.ring_epoch, header, {&values, 1}, mine);
    }
    return mine;
  }
  MutexLock lock(mutex_);
  while (Fault(agreement.ring_epoch).ok() && passed_size_ < options_.state_size) {
    if (Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("the values of ", name(agreement.source),
                                                      " have not arrived in time: ", passed_size_, " of ",
                                                      options_.state_size));
    }
    changed_.WaitUntil(mutex_, std::min<TimePoint>(deadline, Now() + kLookEvery));
  }
  CAIRN_RETURN_IF_ERROR(Fault(agreement.ring_epoch));
  return std::shared_ptr<const AlignedBuffer>(passed_);
}

// --- The end ---

void Member::Complete() {
  std::shared_ptr<Outlet> right;
  {
    MutexLock lock(mutex_);
    complete_ = true;
    right = right_;
  }
  v1::RingHeader header;
  header.mutable_bye();
  if (right != nullptr) right->stream->Send(header, {}, nullptr);
}

void Member::Leave(const absl::Status& why, Duration limit) {
  const TimePoint deadline = Now() + limit;
  int64_t ring_epoch;
  bool complete;
  {
    MutexLock lock(mutex_);
    ring_epoch = ring_epoch_;
    complete = complete_;
  }
  if (!complete) Break(ring_epoch, why);
  MutexLock lock(mutex_);
  if (outlet_ == nullptr) return;
  const auto heard = [this, complete]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return outlet_->closed || (complete && right_bye_ && left_bye_);
  };
  while (!heard() && Now() < deadline) changed_.WaitUntil(mutex_, deadline);
}

void Member::Beat() {
  const Duration every = std::min<Duration>(kBeatEvery, options_.lease / 4);
  TimePoint last = Now();
  for (;;) {
    std::shared_ptr<Outlet> right;
    int64_t ring_epoch;
    std::string lost;
    {
      MutexLock lock(mutex_);
      const TimePoint wake = Now() + every;
      while (!stopping_ && Now() < wake) changed_.WaitUntil(mutex_, wake);
      if (stopping_) return;
      const TimePoint now = Now();
      // This process was suspended: what arrived meanwhile has not been read yet.
      if (now - std::exchange(last, now) > options_.lease / 2) left_heard_ = now;
      right = right_;
      ring_epoch = ring_epoch_;
      if (left_ != nullptr && now - left_heard_ > options_.lease && !left_bye_) {
        lost = absl::StrCat("lost ", name(left()), InStep(), ": not heard from for ",
                            ToSeconds(options_.lease), " s");
      }
    }
    v1::RingHeader header;
    header.mutable_beat();
    if (right != nullptr) right->stream->Send(header, {}, nullptr);
    if (!lost.empty()) Break(ring_epoch, absl::AbortedError(lost));
  }
}

}  // namespace cairn::allreduce
