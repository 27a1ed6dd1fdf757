#include "worker/allreduce/member.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "common/net/backoff.h"
#include "common/net/grpc_util.h"
#include "common/net/unreachable.h"
#include "worker/client/job_setup.h"

namespace cairn::allreduce {
namespace {

constexpr auto kGreetTimeout = std::chrono::milliseconds(2000);
constexpr auto kSayEvery = std::chrono::seconds(10);
// How often a wait looks whether it is to end; and how long a neighbour has to hear why a formation is over.
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

// What a link's end tells: the other end's own words, or that it is gone.
bool IsLoss(const absl::Status& status) {
  return status.ok() || absl::IsUnavailable(status) || absl::IsCancelled(status) || absl::IsUnknown(status) ||
         absl::IsInternal(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

// The right-hand neighbour's stream.
struct Member::Outlet final : RingHandler {
  Outlet(Member& member_in, int64_t formation_in) : member(member_in), formation(formation_in) {}

  absl::Status OnFrame(const v1::RingHeader& header, net::Payload) override {
    if (!header.has_bye()) return absl::InvalidArgumentError("ring: the called worker answers with Bye alone");
    member.OnRightBye();
    return absl::OkStatus();
  }
  void OnClosed(const absl::Status& status) override { member.OnRightClosed(*this, status); }

  Member& member;
  const int64_t formation;
  bool closed = false;                 // guarded by the member's mutex_
  std::unique_ptr<RingStream> stream;  // ends before what it calls
};

// A stream from the left-hand neighbour.
class Member::Inlet final : public RingHandler {
 public:
  Inlet(Member& member, std::shared_ptr<RingStream> back_in) : back(std::move(back_in)), member_(member) {}

  absl::Status OnFrame(const v1::RingHeader& header, net::Payload payload) override {
    return member_.OnLeftFrame(*this, header, payload);
  }
  void OnClosed(const absl::Status& status) override { member_.OnLeftClosed(formation, status); }

  std::shared_ptr<RingStream> back;
  int64_t formation = 0;  // 0: it has not said hello

 private:
  Member& member_;
};

bool Member::Agreement::Needs(int worker) const {
  const v1::RingState& state = states[static_cast<size_t>(worker)];
  const v1::RingState& best = states[static_cast<size_t>(source)];
  return worker != source && (!state.trained() || state.progress().version() < best.progress().version());
}

Member::Member(Options options, std::unique_ptr<RingPeer> right)
    : options_(std::move(options)),
      peer_(std::move(right)),
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
  if (!agreed_.has_value()) return " while the ring was formed";
  return absl::StrCat(" in step ", agreed_->ring->step());
}

// --- Breaking ---

void Member::BreakTo(int64_t formation, int64_t next, const absl::Status& why) {
  std::shared_ptr<RingStream> left;
  std::shared_ptr<Outlet> right;
  std::shared_ptr<Ring> ring;
  {
    MutexLock lock(mutex_);
    const bool last = !absl::IsAborted(why);  // the end of all formations, also of one that was begun meanwhile
    if ((formation != formation_ && !last) || complete_) return;
    formation_ = std::max(next, formation_ + 1);
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

absl::Status Member::Fault(int64_t formation) const {
  if (!ended_.ok()) return ended_;
  if (formation == formation_) return absl::OkStatus();
  return broken_.ok() ? absl::AbortedError("the ring is formed anew") : broken_;
}

void Member::SendRight(int64_t formation, const v1::RingHeader& header, net::FloatSpans payload,
                       const std::shared_ptr<const void>& owner) {
  std::shared_ptr<Outlet> right;
  {
    MutexLock lock(mutex_);
    if (formation != formation_) return;
    if (right_ == nullptr) {
      waiting_.push_back(header);  // values come only when every state has, and so after it is open
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

absl::StatusOr<Member::Agreement> Member::Form(const v1::RingState& mine, TimePoint deadline) {
  net::Backoff backoff(options_.incarnation, std::chrono::milliseconds(20), std::chrono::milliseconds(500));
  for (;;) {
    Retire(std::exchange(outlet_, nullptr));
    int64_t formation;
    {
      MutexLock lock(mutex_);
      formation = formation_;
    }
    auto agreement = FormOnce(formation, mine, deadline);
    if (agreement.ok() || !absl::IsAborted(agreement.status())) return agreement;
    {
      MutexLock lock(mutex_);
      if (!ended_.ok()) return ended_;
    }
    if (Now() >= deadline) {
      return absl::UnavailableError(
          absl::StrCat("the workers could not form a ring within their limit: ", agreement.status().message()));
    }
    MutexLock lock(mutex_);
    const TimePoint wake = Now() + backoff.Next();
    while (Now() < wake && ended_.ok()) changed_.WaitUntil(mutex_, wake);
  }
}

absl::StatusOr<v1::GreetResponse> Member::GreetRight(int64_t formation, TimePoint deadline) {
  v1::GreetRequest request;
  request.set_protocol(net::kProtocolVersion);
  request.set_cluster_hash(options_.cluster_hash);
  request.set_from(options_.worker);
  request.set_to(right());
  request.set_incarnation(options_.incarnation);
  request.set_formation(formation);
  *request.mutable_job() = options_.job;
  net::Backoff backoff(options_.incarnation, std::chrono::milliseconds(20), std::chrono::milliseconds(500));
  TimePoint say_at = Now() + kSayEvery;
  std::string why;
  for (;;) {
    {
      MutexLock lock(mutex_);
      CAIRN_RETURN_IF_ERROR(Fault(formation));
    }
    v1::GreetResponse response;
    const absl::Status status = peer_->Greet(request, &response, kGreetTimeout);
    if (status.ok()) {
      if (response.formation() > formation) {
        const auto anew = absl::AbortedError(absl::StrCat(name(right()), " is at formation ", response.formation()));
        BreakTo(formation, response.formation(), anew);
        return anew;
      }
      if (response.formation() == formation) return response;
      why = absl::StrCat("it is still at formation ", response.formation());
    } else if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
      why = net::WhyUnreachable(status, why);
    } else {
      return Annotate(status, name(right()));
    }
    if (Now() >= deadline) {
      return absl::UnavailableError(absl::StrCat(name(right()), " was not reached in time: ", why));
    }
    if (Now() >= say_at) {
      Say(absl::StrCat("waiting for ", name(right()), ": ", why));
      say_at += kSayEvery;
    }
    MutexLock lock(mutex_);
    const TimePoint wake = std::min(deadline, Now() + backoff.Next());
    while (Now() < wake && Fault(formation).ok()) changed_.WaitUntil(mutex_, wake);
  }
}

absl::StatusOr<Member::Agreement> Member::FormOnce(int64_t formation, const v1::RingState& mine,
                                                   TimePoint deadline) {
  if (peer_ != nullptr) {
    CAIRN_ASSIGN_OR_RETURN(const v1::GreetResponse greeted, GreetRight(formation, deadline));
    outlet_ = std::make_shared<Outlet>(*this, formation);
    outlet_->stream = peer_->Open(greeted, *outlet_);
    v1::RingHeader header;
    header.mutable_hello()->set_formation(formation);
    header.mutable_hello()->set_worker(options_.worker);
    header.mutable_hello()->set_incarnation(options_.incarnation);
    outlet_->stream->Send(header, {}, nullptr);
    *header.mutable_state() = mine;
    outlet_->stream->Send(header, {}, nullptr);
  }
  MutexLock lock(mutex_);
  CAIRN_RETURN_IF_ERROR(Fault(formation));
  for (const v1::RingHeader& header : waiting_) outlet_->stream->Send(header, {}, nullptr);
  waiting_.clear();
  right_ = outlet_;
  AddState(formation, mine);
  TimePoint say_at = Now() + kSayEvery;
  while (Fault(formation).ok() && !agreed_.has_value()) {
    std::vector<std::string> missing;
    for (int worker = 0; worker < workers(); ++worker) {
      if (!states_[static_cast<size_t>(worker)].has_value()) missing.push_back(name(worker));
    }
    const std::string wanted =
        left_ == nullptr ? absl::StrCat(name(left()), " to come")
                         : absl::StrCat("all to be there; not heard of: ", absl::StrJoin(missing, ", "));
    if (Now() >= deadline) return absl::UnavailableError(absl::StrCat("waited in vain for ", wanted));
    if (Now() >= say_at) {
      Say(absl::StrCat("waiting for ", wanted));
      say_at += kSayEvery;
    }
    changed_.WaitUntil(mutex_, std::min<TimePoint>(deadline, Now() + kLookEvery));
  }
  CAIRN_RETURN_IF_ERROR(Fault(formation));
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
  // Others hold it for the length of a Send(), which does not block. The stream's own thread, which may be one of
  // them, must not be the one that waits for its end.
  while (outlet.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void Member::AddState(int64_t formation, const v1::RingState& state) {
  states_[static_cast<size_t>(state.worker())] = state;
  if (std::any_of(states_.begin(), states_.end(), [](const auto& one) { return !one.has_value(); })) return;
  if (absl::Status status = Agree(formation); !status.ok() && ended_.ok()) ended_ = std::move(status);
  changed_.NotifyAll();
}

absl::Status Member::Agree(int64_t formation) {
  Agreement agreement = {.ring = nullptr, .states = {}, .source = 0, .passes = false, .formation = formation};
  for (const auto& state : states_) agreement.states.push_back(*state);
  const auto rank = [&](int worker) {
    const v1::RingState& state = agreement.states[static_cast<size_t>(worker)];
    return std::pair(state.trained() ? 2 : state.has_values() ? 1 : 0, state.progress().version());
  };
  for (int worker = 1; worker < workers(); ++worker) {
    if (rank(worker) > rank(agreement.source)) agreement.source = worker;
  }
  const v1::RingState& best = agreement.states[static_cast<size_t>(agreement.source)];
  if (!best.has_values()) return absl::FailedPreconditionError("ring: no worker has values");
  for (int worker = 0; worker < workers(); ++worker) {
    const v1::RingState& state = agreement.states[static_cast<size_t>(worker)];
    if (state.trained() && state.run_id() != best.run_id()) {
      return absl::FailedPreconditionError(absl::StrCat(name(worker), " is of run ", state.run_id(), ", and ",
                                                        name(agreement.source), " of run ", best.run_id()));
    }
    agreement.passes = agreement.passes || agreement.Needs(worker);
  }
  agreement.ring = std::make_shared<Ring>(
      Ring::Options{.worker = options_.worker,
                    .version = best.progress().version(),
                    .plan = plan_,
                    .variable_begins = variable_begins_},
      [this, formation](const v1::RingHeader& header, net::FloatSpans payload,
                        const std::shared_ptr<const void>& owner) {
        SendRight(formation, header, payload, owner);
      });
  if (agreement.passes && agreement.source != options_.worker) {
    passed_ = std::make_shared<AlignedBuffer>(options_.state_size);
  }
  agreed_ = std::move(agreement);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const AlignedBuffer>> Member::PassState(
    const Agreement& agreement, const std::function<std::shared_ptr<const AlignedBuffer>()>& state,
    TimePoint deadline) {
  if (agreement.source == options_.worker) {
    const std::shared_ptr<const AlignedBuffer> mine = state();
    for (int64_t offset = 0; offset < mine->size(); offset += kMostChunkFloats) {
      v1::RingHeader header;
      header.mutable_values()->set_offset(offset);
      const int64_t count = std::min(kMostChunkFloats, mine->size() - offset);
      const absl::Span<const float> values(mine->data() + offset, static_cast<size_t>(count));
      SendRight(agreement.formation, header, {&values, 1}, mine);
    }
    return mine;
  }
  MutexLock lock(mutex_);
  while (Fault(agreement.formation).ok() && passed_size_ < options_.state_size) {
    if (Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("the values of ", name(agreement.source),
                                                      " have not come in time: ", passed_size_, " of ",
                                                      options_.state_size));
    }
    changed_.WaitUntil(mutex_, std::min<TimePoint>(deadline, Now() + kLookEvery));
  }
  CAIRN_RETURN_IF_ERROR(Fault(agreement.formation));
  return std::shared_ptr<const AlignedBuffer>(passed_);
}

// --- Being reached ---

absl::Status Member::OnGreet(const v1::GreetRequest& request, v1::GreetResponse* response) {
  const auto refuse = [](const auto&... text) { return absl::FailedPreconditionError(absl::StrCat(text...)); };
  if (request.protocol() != net::kProtocolVersion) {
    return refuse("it speaks protocol ", net::kProtocolVersion, ", and the caller ", request.protocol());
  }
  if (request.cluster_hash() != 0 && options_.cluster_hash != 0 &&
      request.cluster_hash() != options_.cluster_hash) {
    return refuse("it is of a cluster with other workers: ", absl::Hex(options_.cluster_hash),
                  " there, and the caller's is ", absl::Hex(request.cluster_hash()));
  }
  if (request.to() != options_.worker || request.from() != left()) {
    return refuse("it is at place ", options_.worker, " of ", workers(), " after ", left(),
                  ", and was called as ", request.to(), " by ", request.from());
  }
  const std::string differences = client::DifferencesFrom(
      {.task = options_.task, .job = options_.job, .variables = options_.variables}, request.job(),
      "with the caller");
  if (!differences.empty()) return refuse("it trains another job than the caller: ", differences);

  int64_t formation;
  bool restarted;
  {
    MutexLock lock(mutex_);
    if (complete_) return absl::UnavailableError("training is over");
    if (absl::IsCancelled(ended_)) return absl::UnavailableError("it is being stopped");
    if (!ended_.ok()) return ended_;
    formation = formation_;
    restarted = left_ != nullptr && left_incarnation_ != request.incarnation();
  }
  if (restarted || request.formation() > formation) {
    BreakTo(formation, std::max(request.formation(), formation + (restarted ? 1 : 0)),
            absl::AbortedError(restarted ? absl::StrCat(name(left()), " has been restarted")
                                         : absl::StrCat(name(left()), " forms the ring anew")));
  }
  MutexLock lock(mutex_);
  response->set_incarnation(options_.incarnation);
  response->set_formation(formation_);
  response->set_local_socket(options_.local_socket);
  return absl::OkStatus();
}

std::shared_ptr<RingHandler> Member::OnStream(std::shared_ptr<RingStream> back) {
  return std::make_shared<Inlet>(*this, std::move(back));
}

absl::Status Member::OnHello(Inlet& inlet, const v1::RingHello& hello) {
  if (hello.worker() != left()) {
    return absl::FailedPreconditionError(
        absl::StrCat("ring: a stream of worker ", hello.worker(), " where that of ", left(), " belongs"));
  }
  {
    MutexLock lock(mutex_);
    if (hello.formation() != formation_) {
      return absl::AbortedError(absl::StrCat("the ring is at formation ", formation_));
    }
    if (left_ == nullptr) {
      left_ = inlet.back;
      left_incarnation_ = hello.incarnation();
      left_heard_ = Now();
      inlet.formation = hello.formation();
      changed_.NotifyAll();
      return absl::OkStatus();
    }
  }
  const auto twice = absl::AbortedError(absl::StrCat(name(left()), " has come a second time"));
  Break(hello.formation(), twice);
  return twice;
}

absl::Status Member::OnLeftFrame(Inlet& inlet, const v1::RingHeader& header, net::Payload payload) {
  if (inlet.formation == 0) {
    if (header.has_hello()) return OnHello(inlet, header.hello());
    return absl::InvalidArgumentError("ring: a stream begins with Hello");
  }
  std::shared_ptr<Ring> ring;
  {
    MutexLock lock(mutex_);
    const absl::Status fault = Fault(inlet.formation);
    if (!fault.ok() && !header.has_broken()) return fault;
    left_heard_ = Now();
    if (agreed_.has_value()) ring = agreed_->ring;
  }
  absl::Status status;
  switch (header.kind_case()) {
    case v1::RingHeader::kState:
      status = OnState(inlet.formation, header.state());
      break;
    case v1::RingHeader::kValues:
      status = OnValues(inlet.formation, header.values(), payload);
      break;
    case v1::RingHeader::kRecord:
    case v1::RingHeader::kGradient:
      if (ring == nullptr) {
        status = absl::InvalidArgumentError("ring: a step before all have told their state");
      } else {
        status = header.has_record() ? ring->OnRecord(header.record()) : ring->OnGradient(header.gradient(), payload);
      }
      break;
    case v1::RingHeader::kBeat:
      break;
    case v1::RingHeader::kBroken: {
      const auto code = static_cast<absl::StatusCode>(header.broken().code());
      const bool known = code > absl::StatusCode::kOk && code <= absl::StatusCode::kUnauthenticated;
      Break(inlet.formation, {known ? code : absl::StatusCode::kUnknown, header.broken().message()});
      break;
    }
    case v1::RingHeader::kBye: {
      v1::RingHeader answer;
      answer.mutable_bye();
      inlet.back->Send(answer, {}, nullptr);
      inlet.back->End(absl::OkStatus());  // when that is out
      MutexLock lock(mutex_);
      left_bye_ = true;
      changed_.NotifyAll();
      break;
    }
    default:
      status = absl::InvalidArgumentError(absl::StrCat("ring: a frame of kind ", header.kind_case()));
  }
  if (status.ok()) return status;
  status = Annotate(status, absl::StrCat("from ", name(left())));
  Break(inlet.formation, status);
  return status;
}

absl::Status Member::OnState(int64_t formation, const v1::RingState& state) {
  const int worker = state.worker();
  if (worker < 0 || worker >= workers() || worker == options_.worker || state.progress().version() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("ring: a state of worker ", worker, " of ", workers(),
                                                   " at version ", state.progress().version()));
  }
  if (right() != worker) {
    v1::RingHeader header;
    *header.mutable_state() = state;
    SendRight(formation, header, {}, nullptr);
  }
  MutexLock lock(mutex_);
  if (formation != formation_) return absl::OkStatus();
  if (states_[static_cast<size_t>(worker)].has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("ring: a second state of worker ", worker));
  }
  AddState(formation, state);
  return absl::OkStatus();
}

absl::Status Member::OnValues(int64_t formation, const v1::StateChunk& chunk, net::Payload payload) {
  const int64_t bytes = net::PayloadBytes(payload);
  const int64_t count = bytes / static_cast<int64_t>(sizeof(float));
  std::shared_ptr<AlignedBuffer> passed;
  bool forward;
  {
    MutexLock lock(mutex_);
    if (formation != formation_) return absl::OkStatus();
    if (passed_ == nullptr || chunk.offset() != passed_size_ || count == 0 ||
        bytes % static_cast<int64_t>(sizeof(float)) != 0 || count > passed_->size() - passed_size_) {
      return absl::InvalidArgumentError(absl::StrCat("ring: ", bytes, " bytes of values at ", chunk.offset(),
                                                     ", and ", passed_size_, " of ",
                                                     passed_ == nullptr ? 0 : passed_->size(), " are here"));
    }
    passed = passed_;
    forward = right() != agreed_->source;
  }
  float* const to = passed->data() + chunk.offset();
  net::CopyPayload(payload, to);
  if (forward) {
    v1::RingHeader header;
    *header.mutable_values() = chunk;
    const absl::Span<const float> values(to, static_cast<size_t>(count));
    SendRight(formation, header, {&values, 1}, passed);
  }
  MutexLock lock(mutex_);
  if (formation == formation_) passed_size_ += count;
  changed_.NotifyAll();
  return absl::OkStatus();
}

void Member::OnLeftClosed(int64_t formation, const absl::Status& status) {
  std::string step;
  {
    MutexLock lock(mutex_);
    if (formation == 0 || formation != formation_) return;
    if (complete_) left_bye_ = true;  // it has gone without a word, and nothing will come
    changed_.NotifyAll();
    if (left_bye_) return;
    step = InStep();
  }
  Break(formation, IsLoss(status) ? absl::AbortedError(
                                        absl::StrCat("lost ", name(left()), step, ": ", status.message()))
                                  : status);
}

void Member::OnRightClosed(const Outlet& outlet, const absl::Status& status) {
  std::string step;
  {
    MutexLock lock(mutex_);
    const_cast<Outlet&>(outlet).closed = true;
    changed_.NotifyAll();
    step = InStep();
  }
  Break(outlet.formation,
        IsLoss(status)
            ? absl::AbortedError(absl::StrCat("lost ", name(right()), step, ": ", status.message()))
            : status);
}

void Member::OnRightBye() {
  MutexLock lock(mutex_);
  right_bye_ = true;
  changed_.NotifyAll();
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
  int64_t formation;
  bool complete;
  {
    MutexLock lock(mutex_);
    formation = formation_;
    complete = complete_;
  }
  if (!complete) Break(formation, why);
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
    int64_t formation;
    std::string lost;
    {
      MutexLock lock(mutex_);
      const TimePoint wake = Now() + every;
      while (!stopping_ && Now() < wake) changed_.WaitUntil(mutex_, wake);
      if (stopping_) return;
      const TimePoint now = Now();
      // It is this process that stood still, and what came meanwhile is not read yet.
      if (now - std::exchange(last, now) > options_.lease / 2) left_heard_ = now;
      right = right_;
      formation = formation_;
      if (left_ != nullptr && now - left_heard_ > options_.lease && !left_bye_) {
        lost = absl::StrCat("lost ", name(left()), InStep(), ": not heard of for ",
                            std::chrono::duration<double>(options_.lease).count(), " s");
      }
    }
    v1::RingHeader header;
    header.mutable_beat();
    if (right != nullptr) right->stream->Send(header, {}, nullptr);
    if (!lost.empty()) Break(formation, absl::AbortedError(lost));
  }
}

}  // namespace cairn::allreduce
