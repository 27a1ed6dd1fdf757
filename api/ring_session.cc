#include "api/ring_session.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "api/conversions.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"
#include "common/net/cluster/cluster_spec.h"
#include "common/net/security/access.h"
#include "common/net/server/listening.h"
#include "common/net/server/port_wait.h"
#include "common/system/entropy.h"
#include "common/system/thread.h"
#include "worker/allreduce/agreement.h"

namespace cairn::api {
namespace {

constexpr auto kPollEvery = std::chrono::milliseconds(100);  // between two calls of keep_waiting
constexpr auto kLeaveLimit = std::chrono::seconds(10);       // for the neighbours to finish too
constexpr auto kLastWords = std::chrono::seconds(1);  // for the neighbours to learn why this worker leaves
constexpr auto kLinksEnd = std::chrono::seconds(2);   // for the links of a failed ring
constexpr int kMaxRecoveries = 10;                    // without a step in between
constexpr int64_t kNoEnd = int64_t{1} << 60;          // a version that no group reaches
constexpr int64_t kMaxRingExamples = std::numeric_limits<uint32_t>::max();

int64_t ElementsOf(const std::vector<net::VariableInfo>& variables) {
  return variables.empty() ? 0 : variables.back().offset + variables.back().shape.num_elements();
}

// The job that neighbours compare.
v1::Job ToJob(const Job& job, const AllReduceOptions& options) {
  v1::Job proto;
  proto.set_mode(v1::MODE_SYNC);
  proto.set_model_sha256(ModelHash(job));
  for (size_t worker = 0; worker < options.workers.size(); ++worker) {
    proto.add_workers(absl::StrCat("worker/", worker));
  }
  proto.set_final_version(kNoEnd);
  proto.mutable_optimizer()->set_name(options.description);
  proto.set_lease_seconds(std::chrono::duration<double>(options.lease).count());
  return proto;
}

absl::StatusOr<net::ResolvedCluster> ClusterOf(const AllReduceOptions& options) {
  if (options.worker < 0 || options.worker >= static_cast<int>(options.workers.size())) {
    return absl::InvalidArgumentError(absl::StrCat("AllReduceOptions::worker: ", options.worker,
                                                   ", must be in [0, ", options.workers.size(), ")"));
  }
  net::ResolvedCluster cluster = {
      .spec = {}, .self = {.job = "worker", .index = options.worker}, .source = "AllReduceOptions::workers"};
  for (size_t worker = 0; worker < options.workers.size(); ++worker) {
    const auto address = net::HostPort::Parse(options.workers[worker]);
    if (!address.ok()) return Annotate(address.status(), absl::StrCat(cluster.source, ": worker/", worker));
    CAIRN_RETURN_IF_ERROR(
        Annotate(cluster.spec.Add({"worker", static_cast<int>(worker)}, *address), cluster.source));
  }
  return cluster;
}

}  // namespace

RingSession::RingSession(std::vector<net::VariableInfo> variables, AllReduceOptions options, int64_t size)
    : variables_(std::move(variables)),
      options_(std::move(options)),
      name_(absl::StrCat("worker/", options_.worker)),
      gradients_(size),
      announced_(variables_, variables_.size()) {}

absl::StatusOr<std::unique_ptr<RingSession>> RingSession::Open(const Job& job,
                                                               const AllReduceOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(std::vector<net::VariableInfo> variables, VariablesOf(job));
  if (!options.save || !options.load) {
    return absl::InvalidArgumentError("AllReduceOptions: save and load must be set");
  }
  for (const auto& [name, time] :
       {std::pair("lease", options.lease), std::pair("step_timeout", options.step_timeout)}) {
    if (time.count() <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("AllReduceOptions::", name, ": ", time.count(), " ms, must be above 0"));
    }
  }
  DisableLogging();
  return CatchOutOfMemory("the gradients", [&]() -> absl::StatusOr<std::unique_ptr<RingSession>> {
    const int64_t size = ElementsOf(variables);
    std::unique_ptr<RingSession> session(new RingSession(std::move(variables), options, size));
    CAIRN_RETURN_IF_ERROR(session->Start(job));
    return session;
  });
}

absl::Status RingSession::Start(const Job& job) {
  CAIRN_ASSIGN_OR_RETURN(const net::ResolvedCluster cluster, ClusterOf(options_));
  const ConnectOptions& connect = options_.connect;
  net::Access access = {.tls = {.cert = connect.tls_cert, .key = connect.tls_key, .ca = connect.tls_ca},
                        .token_file = connect.job_token_file};
  CAIRN_RETURN_IF_ERROR(net::CheckAccess(access, std::getenv(net::kTokenVariable)));
  const worker::ListenFlags listen = {.address = {}, .reuse_port = options_.reuse_port};
  const uint64_t incarnation = net::DrawIncarnation();
  const size_t workers = options_.workers.size();
  std::unique_ptr<allreduce::RingPeer> right;
  net::DataListeners data_listeners;
  if (workers > 1) {
    const auto next = (static_cast<size_t>(options_.worker) + 1) % workers;
    CAIRN_ASSIGN_OR_RETURN(right, worker::MakePeer(options_.workers[next], access, "auto"));
    data_listeners = worker::ListenForData(cluster, access, listen, "auto");
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < workers; ++i)
    names.push_back(absl::StrCat("worker/", i, " at ", options_.workers[i]));
  member_ = std::make_unique<allreduce::Member>(
      allreduce::Member::Options{.worker = options_.worker,
                                 .names = std::move(names),
                                 .task = name_,
                                 .cluster_hash = cluster.spec.TrainersHash(),
                                 .incarnation = incarnation,
                                 .data_endpoint = data_listeners.address(),
                                 .job = ToJob(job, options_),
                                 .variables = variables_,
                                 .size = gradients_.size(),
                                 .lease = std::chrono::duration_cast<Duration>(options_.lease),
                                 .say = connect.log},
      std::move(right));
  if (workers > 1) {
    // A process that has been replaced may still have the port.
    const std::string address = worker::PeerPort(cluster, listen).address;
    const auto pause = [this](std::chrono::milliseconds time) {
      std::this_thread::sleep_for(time);
      return KeepsWaiting();
    };
    if (!net::AwaitPort(address, listen.reuse_port, net::kPortWait, pause)) {
      if (!KeepsWaiting()) return absl::CancelledError("the program ended the wait");
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", address, ": another process is using the port"));
    }
    CAIRN_ASSIGN_OR_RETURN(
        listener_,
        worker::PeerListener::Start(*member_, std::move(data_listeners),
                                    {.cluster = cluster,
                                     .access = access,
                                     .listen = listen,
                                     .incarnation = incarnation,
                                     .stakes = "the gradients",
                                     .task_of = [](int worker) { return absl::StrCat("worker/", worker); }}));
  }
  if (options_.worker == 0) run_id_ = absl::StrCat(absl::Hex(DrawRandomBits(), absl::kZeroPad16));
  bool loaded = false;
  return Join(&loaded);
}

RingSession::~RingSession() {
  if (member_ != nullptr) Leave(LeaveReason::kStopped, "");
  listener_ = nullptr;
}

v1::RingState RingSession::Mine() const {
  v1::RingState mine;
  mine.set_worker(options_.worker);
  mine.set_run_id(run_id_);
  mine.set_trained(trained_);
  mine.set_has_values(trained_ || options_.worker == 0);
  mine.mutable_progress()->set_version(version_);
  return mine;
}

absl::StatusOr<std::shared_ptr<const AlignedBuffer>> RingSession::Pack() const {
  std::string state;
  CAIRN_RETURN_IF_ERROR(Annotate(ToAbsl(options_.save(&state)), "AllReduceOptions::save"));
  const uint64_t bytes = state.size();
  auto packed = std::make_shared<AlignedBuffer>(
      static_cast<int64_t>((sizeof bytes + bytes + sizeof(float) - 1) / sizeof(float)));
  std::memcpy(packed->data(), &bytes, sizeof bytes);
  std::memcpy(reinterpret_cast<char*>(packed->data()) + sizeof bytes, state.data(), state.size());
  return packed;
}

absl::Status RingSession::Load(const AlignedBuffer& state) const {
  uint64_t bytes = 0;
  const auto all = static_cast<size_t>(state.size()) * sizeof(float);
  if (all >= sizeof bytes) std::memcpy(&bytes, state.data(), sizeof bytes);
  if (all < sizeof bytes || bytes > all - sizeof bytes) {
    return absl::InvalidArgumentError("the state of another worker is cut off");
  }
  const std::string text(reinterpret_cast<const char*>(state.data()) + sizeof bytes, bytes);
  return Annotate(ToAbsl(options_.load(text)), "AllReduceOptions::load");
}

absl::Status RingSession::Wait(absl::AnyInvocable<absl::Status(const std::atomic<bool>* stop)> call) {
  if (!options_.connect.keep_waiting) return call(nullptr);
  absl::Status status;
  std::atomic<bool> stop{false};
  absl::Notification done;
  Thread thread("ring-wait", [&] {
    status = CatchOutOfMemory("the ring of workers", [&] { return call(&stop); });
    done.Notify();
  });
  while (!done.WaitForNotificationWithTimeout(absl::FromChrono(kPollEvery))) {
    if (!stop && !KeepsWaiting()) stop = true;
  }
  return stop ? absl::CancelledError("the program ended the wait") : status;
}

absl::Status RingSession::Join(bool* loaded) {
  state_ = StepState::kNone;
  *loaded = false;
  const TimePoint deadline =
      SteadyNow() + std::chrono::duration_cast<Duration>(options_.connect.connect_timeout);
  absl::Status entered;
  do {
    absl::StatusOr<allreduce::Agreement> agreement = absl::InternalError("no agreement");
    entered = Wait([&](const std::atomic<bool>* stop) {
      agreement = member_->Form([this] { return Mine(); }, {.deadline = deadline, .stop = stop});
      return agreement.status();
    });
    if (!agreement.ok()) return entered;
    if (entered.ok()) {
      entered = CatchOutOfMemory("the state of a worker", [&] { return Enter(*agreement, loaded); });
    }
    if (entered.ok()) return entered;
    // The others form the ring again, and wait there for this worker's next attempt.
    member_->GiveUp(agreement->ring_epoch,
                    absl::AbortedError(absl::StrCat(name_, " did not enter the ring: ", entered.message())));
  } while (absl::IsAborted(entered));  // Form() enforces the deadline
  return entered;
}

absl::Status RingSession::Enter(const allreduce::Agreement& agreement, bool* loaded) {
  const v1::RingState& source = agreement.states[static_cast<size_t>(agreement.source)];
  if (agreement.passes) {
    std::shared_ptr<const AlignedBuffer> state;
    if (agreement.source == options_.worker) {
      CAIRN_ASSIGN_OR_RETURN(state, Pack());
    }
    const TimePoint deadline = SteadyNow() + std::chrono::duration_cast<Duration>(options_.step_timeout);
    CAIRN_RETURN_IF_ERROR(Wait([&](const std::atomic<bool>* stop) -> absl::Status {
      CAIRN_ASSIGN_OR_RETURN(
          state, member_->PassState(agreement, [&] { return state; }, {.deadline = deadline, .stop = stop}));
      return absl::OkStatus();
    }));
    if (agreement.Needs(options_.worker)) {
      CAIRN_RETURN_IF_ERROR(Load(*state));
      *loaded = true;
    }
  }
  run_id_ = source.run_id();
  version_ = source.progress().version();
  trained_ = true;
  ring_ = agreement.ring;
  ring_epoch_ = agreement.ring_epoch;
  recoveries_ = version_ > joined_version_ ? 0 : recoveries_ + 1;
  joined_version_ = version_;
  return absl::OkStatus();
}

absl::Span<float> RingSession::gradients(int variable) {
  const net::VariableInfo& info = variables_[static_cast<size_t>(variable)];
  return gradients_.span().subspan(static_cast<size_t>(info.offset),
                                   static_cast<size_t>(info.shape.num_elements()));
}

absl::Status RingSession::BeginStep(int64_t examples, bool done) {
  if (state_ != StepState::kNone) return absl::FailedPreconditionError("BeginStep: a step is in progress");
  if (has_left_) return absl::FailedPreconditionError("BeginStep: this worker has left");
  if (examples < 0 || examples > kMaxRingExamples) {
    return absl::InvalidArgumentError(
        absl::StrCat("BeginStep: ", examples, " examples, must be in [0, ", kMaxRingExamples, "]"));
  }
  announced_.Reset();
  ring_->Begin(examples, gradients_.span(), /*end=*/false, /*learning_rate=*/{}, done);
  deadline_ = TimePoint::max();
  state_ = StepState::kBegun;
  return absl::OkStatus();
}

absl::Status RingSession::Announce(int variable) {
  if (state_ != StepState::kBegun) return absl::FailedPreconditionError("Announce: no step is in progress");
  CAIRN_RETURN_IF_ERROR(announced_.Add(variable));
  ring_->Announce(variable);
  return absl::OkStatus();
}

absl::StatusOr<allreduce::Ring::Step> RingSession::Await() {
  for (;;) {
    const TimePoint until = options_.connect.keep_waiting ? SteadyNow() + kPollEvery : deadline_;
    auto step = ring_->Await(std::min<TimePoint>(until, deadline_));
    if (!absl::IsDeadlineExceeded(step.status()) || !ring_->failure().ok()) return step;
    if (SteadyNow() >= deadline_) {
      std::string who;
      for (size_t i = 0; i < options_.workers.size(); ++i) {
        absl::StrAppend(&who, i == 0 ? "" : ", ", member_->name(static_cast<int>(i)));
      }
      return Annotate(step.status(),
                      absl::StrCat(name_, ": no progress in the time limit of a step; the ring is ", who));
    }
    if (!KeepsWaiting()) return absl::CancelledError("the program ended the wait");
  }
}

absl::StatusOr<AllReduceStep> RingSession::FinishStep() {
  if (state_ == StepState::kNone) return absl::FailedPreconditionError("FinishStep: no step is in progress");
  if (state_ == StepState::kBegun) {
    announced_.AddRest([this](int variable) { ring_->Announce(variable); });
    state_ = StepState::kFinishing;
  }
  if (deadline_ == TimePoint::max())
    deadline_ = SteadyNow() + std::chrono::duration_cast<Duration>(options_.step_timeout);
  auto step = Await();
  if (absl::IsCancelled(step.status())) return step.status();  // the step goes on
  if (absl::IsDeadlineExceeded(step.status()) && ring_->failure().ok()) {
    deadline_ = TimePoint::max();  // the step goes on, and another call waits as long
    return step.status();
  }
  state_ = StepState::kNone;
  CAIRN_RETURN_IF_ERROR(step.status());
  last_ = *std::move(step);
  ++version_;
  return AllReduceStep{.examples = last_.examples, .done = last_.done};
}

absl::Status RingSession::CancelStep(bool* loaded) {
  if (state_ != StepState::kBegun) {
    return absl::FailedPreconditionError("CancelStep: no step is in progress, or FinishStep() was called");
  }
  member_->GiveUp(ring_epoch_, absl::AbortedError(absl::StrCat(name_, " has taken back its gradient")));
  return Join(loaded);
}

AllReduce::Mean RingSession::mean() {
  if (last_.mean == nullptr) return {};
  const auto size = static_cast<size_t>(gradients_.size());
  if (last_.memory == nullptr) return {.values = {gradients_.data(), size}, .owner = nullptr};
  return {.values = {last_.memory->data(), size}, .owner = last_.memory};
}

absl::Status RingSession::AwaitSent() {
  const TimePoint begun = SteadyNow();
  TimePoint ask = begun + kPollEvery;
  while (!ring_->HasSent()) {
    const TimePoint now = SteadyNow();
    // The links of a ring that has failed end soon, and the mean with them.
    if (now - begun > kLinksEnd && !ring_->failure().ok()) return absl::OkStatus();
    if (now - begun > options_.step_timeout)
      return absl::DeadlineExceededError(absl::StrCat(name_, ": the mean has not been passed on in time"));
    if (now >= ask) {
      if (!KeepsWaiting()) return absl::CancelledError("the program ended the wait");
      ask = now + kPollEvery;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return absl::OkStatus();
}

absl::Status RingSession::Recover(const absl::Status& failure, bool* loaded) {
  *loaded = false;
  if (!absl::IsAborted(failure) || recoveries_ >= kMaxRecoveries) return failure;
  if (options_.connect.log) options_.connect.log(absl::StrCat(failure.message(), "; connecting again"));
  return Join(loaded);
}

absl::Status RingSession::End() {
  if (has_left_) return absl::OkStatus();
  if (!last_.done) return absl::FailedPreconditionError("End: not all workers are done");
  has_left_ = true;
  member_->Complete();
  member_->Leave(absl::AbortedError(absl::StrCat(name_, " has left")), kLeaveLimit);
  listener_ = nullptr;  // the port is free for another group of this process
  return absl::OkStatus();
}

void RingSession::Leave(LeaveReason reason, const std::string& message) {
  if (std::exchange(has_left_, true)) return;
  member_->Leave(
      reason == LeaveReason::kFailed
          ? absl::InvalidArgumentError(absl::StrCat(name_, " failed: ", message))
          : absl::AbortedError(absl::StrCat(name_, " has left", message.empty() ? "" : ": ", message)),
      kLastWords);
  listener_ = nullptr;
}

void RingSession::Cancel() {
  member_->Interrupt(absl::CancelledError("cancelled by the program"));
}

}  // namespace cairn::api
