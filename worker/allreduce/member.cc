#include "worker/allreduce/member.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/this_process.h"
#include "common/core/clock.h"
#include "common/core/status.h"
#include "common/net/grpc/backoff.h"
#include "common/net/grpc/grpc_util.h"
#include "worker/peer/greeting.h"

namespace cairn::allreduce {
namespace {

constexpr auto kLogEvery = std::chrono::seconds(10);
// How often a waiting call checks whether to end.
constexpr auto kLookEvery = std::chrono::milliseconds(500);
constexpr Duration kBeatEvery = std::chrono::seconds(1);

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

v1::GreetRequest GreetingOf(const Member::Options& options) {
  v1::GreetRequest request;
  request.set_protocol(net::kProtocolVersion);
  request.set_cluster_hash(options.cluster_hash);
  request.set_from(options.worker);
  request.set_to((options.worker + 1) % static_cast<int>(options.names.size()));
  request.set_incarnation(options.incarnation);
  *request.mutable_process() = client::DrawProcess();
  *request.mutable_job() = options.job;
  return request;
}

// Whether a neighbour at ring epoch `there` forms ring epoch `here`: empty, or the reason to wait. ABORTED if `here` is
// over.
absl::StatusOr<std::string> JudgeEpoch(const std::string& neighbour, int64_t here, int64_t there) {
  if (there == here) return "";
  if (there < here) return absl::StrCat("it is still at ring epoch ", there);
  return absl::AbortedError(absl::StrCat(neighbour, " is at ring epoch ", there));
}

}  // namespace

absl::Status WaitLimit::Check(const absl::Status& fault) const {
  const bool stopped = stop != nullptr && *stop;
  if (!stopped || (!fault.ok() && !absl::IsAborted(fault))) return fault;
  return absl::CancelledError("the program ended the wait");
}

Member::Member(Options options, std::unique_ptr<RingPeer> right)
    : options_(std::move(options)),
      greeting_(GreetingOf(options_)),
      right_(std::move(right),
             {.on_closed = [this](int64_t ring_epoch,
                                  const absl::Status& why) { OnRightClosed(ring_epoch, why); },
              .on_bye =
                  [this] {
                    MutexLock lock(mutex_);
                    changed_.NotifyAll();
                  }}),
      left_(name(left()), options_.lease),
      states_({.worker = options_.worker,
               .names = options_.names,
               .final_version = options_.job.final_version(),
               .state_size = options_.state_size,
               .plan = ChunkPlan::Make(options_.size, workers(), options_.most_chunk),
               .variable_begins = BeginsOf(options_.variables),
               .send =
                   [this](int64_t ring_epoch, const v1::RingHeader& header, net::FloatSpans payload,
                          const std::shared_ptr<const void>& owner) {
                     right_.Send(ring_epoch, header, payload, owner);
                   }}),
      last_beat_(SteadyNow()) {
  CAIRN_CHECK(right_.exists() == (workers() > 1));
  if (!right_.exists()) return;
  beats_ = std::make_unique<Ticker>("ring-beat", std::min<Duration>(kBeatEvery, options_.lease / 4),
                                    [this] { Beat(); });
}

Member::~Member() {
  {
    MutexLock lock(mutex_);
    complete_ = true;
  }
  beats_ = nullptr;
  right_.Close();
}

// --- Ending a ring epoch ---

void Member::BreakTo(int64_t ring_epoch, int64_t next, const absl::Status& why) {
  std::shared_ptr<RingStream> left, right;
  std::shared_ptr<Ring> ring;
  {
    MutexLock lock(mutex_);
    // A reason other than ABORTED ends all ring epochs, including one that began in the meantime.
    const bool last = !absl::IsAborted(why);
    if ((ring_epoch != ring_epoch_ && !last) || complete_) return;
    ring_epoch_ = std::max(next, ring_epoch_ + 1);
    broken_ = why;
    if (last && ended_.ok()) ended_ = why;
    left = left_.Disconnect();
    right = right_.BeginEpoch(ring_epoch_);
    ring = states_.Reset();
    changed_.NotifyAll();
  }
  if (ring != nullptr) ring->Fail(why);
  if (right != nullptr) {
    v1::RingHeader header;
    header.mutable_broken()->set_code(static_cast<int>(why.code()));
    header.mutable_broken()->set_message(std::string(why.message()));
    right->Send(header, {}, nullptr);
  }
  if (left != nullptr) left->End(why);
}

absl::Status Member::Fault(int64_t ring_epoch) const {
  if (!ended_.ok()) return ended_;
  if (ring_epoch == ring_epoch_) return absl::OkStatus();
  return broken_.ok() ? absl::AbortedError("the ring is being formed again") : broken_;
}

void Member::Interrupt(const absl::Status& reason) {
  std::shared_ptr<Ring> ring;
  {
    MutexLock lock(mutex_);
    if (ended_.ok()) ended_ = reason;
    ring = states_.ring();
    changed_.NotifyAll();
  }
  if (ring != nullptr) ring->Fail(reason);
}

// --- Forming ---

absl::StatusOr<Agreement> Member::Form(const std::function<v1::RingState()>& mine, const WaitLimit& limit) {
  net::Backoff backoff(options_.incarnation, std::chrono::milliseconds(20), std::chrono::milliseconds(500));
  // The others may have the state that this worker sent in a call that failed.
  Break(unformed_epoch_, absl::AbortedError(absl::StrCat(name(options_.worker), " connects again")));
  for (;;) {
    right_.Retire();
    int64_t ring_epoch;
    {
      MutexLock lock(mutex_);
      ring_epoch = ring_epoch_;
    }
    auto agreement = FormOnce(ring_epoch, mine(), limit);
    if (agreement.ok() || !absl::IsAborted(agreement.status())) {
      unformed_epoch_ = agreement.ok() ? 0 : ring_epoch;
      return agreement;
    }
    {
      MutexLock lock(mutex_);
      if (!ended_.ok()) return ended_;
    }
    if (SteadyNow() >= limit.deadline) {
      return absl::UnavailableError(absl::StrCat("the workers could not form a ring within their limit: ",
                                                 agreement.status().message()));
    }
    MutexLock lock(mutex_);
    const TimePoint wake = SteadyNow() + backoff.Next();
    while (SteadyNow() < wake && limit.Check(Fault(ring_epoch_)).ok()) changed_.WaitUntil(mutex_, wake);
  }
}

absl::StatusOr<v1::GreetResponse> Member::GreetRight(int64_t ring_epoch, const WaitLimit& limit) {
  v1::GreetRequest request = greeting_;
  request.set_ring_epoch(ring_epoch);
  return GreetUntilAnswered({.peer = right_.peer(),
                             .name = name(right()),
                             .request = request,
                             .deadline = limit.deadline,
                             .say = options_.say,
                             .check =
                                 [&] {
                                   MutexLock lock(mutex_);
                                   return limit.Check(Fault(ring_epoch));
                                 },
                             .judge =
                                 [&](const v1::GreetResponse& answer) {
                                   auto says = JudgeEpoch(name(right()), ring_epoch, answer.ring_epoch());
                                   if (!says.ok()) BreakTo(ring_epoch, answer.ring_epoch(), says.status());
                                   return says;
                                 },
                             .wait =
                                 [&](TimePoint until) {
                                   MutexLock lock(mutex_);
                                   while (SteadyNow() < until && limit.Check(Fault(ring_epoch)).ok())
                                     changed_.WaitUntil(mutex_, until);
                                 }});
}

absl::StatusOr<Agreement> Member::FormOnce(int64_t ring_epoch, const v1::RingState& mine,
                                           const WaitLimit& limit) {
  if (right_.exists()) {
    CAIRN_ASSIGN_OR_RETURN(const v1::GreetResponse greeted, GreetRight(ring_epoch, limit));
    v1::RingHello hello;
    hello.set_ring_epoch(ring_epoch);
    hello.set_worker(options_.worker);
    hello.set_incarnation(options_.incarnation);
    right_.Connect(greeted, hello);
  }
  MutexLock lock(mutex_);
  CAIRN_RETURN_IF_ERROR(limit.Check(Fault(ring_epoch)));
  // Both happen under the lock. As soon as this worker's state is sent, values may arrive that this worker must
  // keep and pass on.
  if (right_.exists()) right_.Open(mine);
  AddState(ring_epoch, mine);
  TimePoint log_at = SteadyNow() + kLogEvery;
  while (limit.Check(Fault(ring_epoch)).ok() && !states_.agreement().has_value()) {
    const std::string wanted = left_.connected()
                                   ? absl::StrCat("all workers; not heard from: ", states_.Missing())
                                   : absl::StrCat(name(left()), " to connect");
    if (SteadyNow() >= limit.deadline)
      return absl::UnavailableError(absl::StrCat("timed out waiting for ", wanted));
    if (SteadyNow() >= log_at) {
      if (options_.say) options_.say(absl::StrCat("waiting for ", wanted));
      log_at += kLogEvery;
    }
    changed_.WaitUntil(mutex_, std::min<TimePoint>(limit.deadline, SteadyNow() + kLookEvery));
  }
  CAIRN_RETURN_IF_ERROR(limit.Check(Fault(ring_epoch)));
  return *states_.agreement();
}

void Member::AddState(int64_t ring_epoch, const v1::RingState& state) {
  const absl::Status added = states_.Add(ring_epoch, state);
  if (!added.ok() && ended_.ok()) ended_ = added;
  changed_.NotifyAll();
}

absl::StatusOr<std::shared_ptr<const AlignedBuffer>> Member::PassState(
    const Agreement& agreement, const std::function<std::shared_ptr<const AlignedBuffer>()>& state,
    const WaitLimit& limit) {
  if (agreement.source == options_.worker) {
    const std::shared_ptr<const AlignedBuffer> mine = state();
    right_.SendValues(agreement.ring_epoch, mine);
    return mine;
  }
  MutexLock lock(mutex_);
  while (limit.Check(Fault(agreement.ring_epoch)).ok() && !states_.HasAllValues()) {
    if (SteadyNow() >= limit.deadline) {
      return absl::DeadlineExceededError(absl::StrCat("the values of ", name(agreement.source),
                                                      " have not arrived in time: ", states_.Received()));
    }
    changed_.WaitUntil(mutex_, std::min<TimePoint>(limit.deadline, SteadyNow() + kLookEvery));
  }
  CAIRN_RETURN_IF_ERROR(limit.Check(Fault(agreement.ring_epoch)));
  return std::shared_ptr<const AlignedBuffer>(states_.values());
}

// --- The end ---

void Member::Complete() {
  {
    MutexLock lock(mutex_);
    complete_ = true;
  }
  v1::RingHeader header;
  header.mutable_bye();
  if (const auto right = right_.stream(); right != nullptr) right->Send(header, {}, nullptr);
}

void Member::Leave(const absl::Status& why, Duration limit) {
  const TimePoint deadline = SteadyNow() + limit;
  int64_t ring_epoch;
  bool complete;
  {
    MutexLock lock(mutex_);
    ring_epoch = ring_epoch_;
    complete = complete_;
  }
  if (!complete) Break(ring_epoch, why);
  MutexLock lock(mutex_);
  if (!right_.connected()) return;
  const auto heard = [this, complete]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return right_.closed() || (complete && right_.bye() && left_.bye());
  };
  while (!heard() && SteadyNow() < deadline) changed_.WaitUntil(mutex_, deadline);
}

void Member::Beat() {
  int64_t ring_epoch;
  std::string lost;
  {
    MutexLock lock(mutex_);
    const TimePoint now = SteadyNow();
    // This process was suspended: what arrived meanwhile has not been read yet.
    if (now - std::exchange(last_beat_, now) > options_.lease / 2) left_.Hear(now);
    ring_epoch = ring_epoch_;
    if (left_.IsSilent(now)) {
      lost = absl::StrCat("lost ", name(left()), states_.InStep(), ": not heard from for ",
                          ToSeconds(options_.lease), " s");
    }
  }
  v1::RingHeader header;
  header.mutable_beat();
  if (const auto right = right_.stream(); right != nullptr) right->Send(header, {}, nullptr);
  if (!lost.empty()) Break(ring_epoch, absl::AbortedError(lost));
}

}  // namespace cairn::allreduce
