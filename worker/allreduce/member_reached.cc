// Handles what arrives at a worker: the left neighbour's handshake, streams and frames, and the ends of both
// links.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/job_setup.h"
#include "common/core/status.h"
#include "common/net/grpc/grpc_util.h"
#include "worker/allreduce/member.h"
#include "worker/allreduce/member_links.h"

namespace cairn::allreduce {

absl::Status Member::OnGreet(const v1::GreetRequest& request, v1::GreetResponse* response) {
  const auto refuse = [](const auto&... text) {
    return absl::FailedPreconditionError(absl::StrCat(text...));
  };
  CAIRN_RETURN_IF_ERROR(CheckCaller(request, options_.cluster_hash));
  if (request.to() != options_.worker || request.from() != left()) {
    return refuse("it is worker ", options_.worker, " of ", workers(), ", whose left neighbour is worker ",
                  left(), ", but was greeted as worker ", request.to(), " by worker ", request.from());
  }
  const std::string differences =
      client::DifferencesFrom({.task = options_.task, .job = options_.job, .variables = options_.variables},
                              request.job(), "with the caller");
  if (!differences.empty()) return refuse("it trains another job than the caller: ", differences);

  int64_t ring_epoch;
  bool restarted;
  {
    MutexLock lock(mutex_);
    if (complete_) return absl::UnavailableError("training is over");
    if (absl::IsCancelled(ended_)) return absl::UnavailableError("this worker is being stopped");
    if (!ended_.ok()) return ended_;
    ring_epoch = ring_epoch_;
    restarted = left_ != nullptr && left_incarnation_ != request.incarnation();
    if (restarted) CAIRN_RETURN_IF_ERROR(CheckLeftIsGone(request));
    left_process_ = request.process();
  }
  if (restarted || request.ring_epoch() > ring_epoch) {
    BreakTo(ring_epoch, std::max(request.ring_epoch(), ring_epoch + (restarted ? 1 : 0)),
            absl::AbortedError(restarted ? absl::StrCat(name(left()), " has been restarted")
                                         : absl::StrCat(name(left()), " is forming the ring again")));
  }
  MutexLock lock(mutex_);
  response->set_incarnation(options_.incarnation);
  response->set_ring_epoch(ring_epoch_);
  *response->mutable_data_endpoint() = net::ToProto(options_.data_endpoint);
  return absl::OkStatus();
}

absl::Status Member::CheckLeftIsGone(const v1::GreetRequest& request) {
  const TimePoint now = std::chrono::steady_clock::now();
  if (contender_ != request.incarnation()) {
    contender_ = request.incarnation();
    contended_at_ = now;
  }
  const auto describe = [](const v1::Process& process) {
    return absl::StrCat("process ", process.pid(), " on ", process.host());
  };
  // A message received within a quarter of a lease does not prove that its sender lives: the sender may have
  // died after sending it.
  if (left_heard_ - contended_at_ > options_.lease / 4) {
    contender_ = 0;
    return absl::FailedPreconditionError(absl::StrCat(
        name(left()), " is already running: ", describe(left_process_), " is alive, and this is ",
        describe(request.process()), "; give every task an index of its own (--task_index, TF_CONFIG)"));
  }
  if (now - contended_at_ > options_.lease / 2) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(name(left()), " was ", describe(left_process_),
                                             " until now: waiting to see whether that one is still alive"));
}

std::shared_ptr<RingHandler> Member::OnStream(std::shared_ptr<RingStream> back) {
  return std::make_shared<Inlet>(*this, std::move(back));
}

absl::Status Member::OnHello(Inlet& inlet, const v1::RingHello& hello) {
  if (hello.worker() != left()) {
    return absl::FailedPreconditionError(
        absl::StrCat("ring: a stream of worker ", hello.worker(), " (expected worker ", left(), ")"));
  }
  {
    MutexLock lock(mutex_);
    if (hello.ring_epoch() != ring_epoch_) {
      return absl::AbortedError(absl::StrCat("this worker is at ring epoch ", ring_epoch_));
    }
    if (left_ == nullptr) {
      left_ = inlet.back;
      left_incarnation_ = hello.incarnation();
      left_heard_ = std::chrono::steady_clock::now();
      inlet.ring_epoch = hello.ring_epoch();
      changed_.NotifyAll();
      return absl::OkStatus();
    }
  }
  const auto twice = absl::AbortedError(absl::StrCat(name(left()), " has connected a second time"));
  Break(hello.ring_epoch(), twice);
  return twice;
}

absl::Status Member::OnLeftFrame(Inlet& inlet, const v1::RingHeader& header, net::Payload payload) {
  if (inlet.ring_epoch == 0) {
    if (header.has_hello()) return OnHello(inlet, header.hello());
    return absl::InvalidArgumentError("ring: a stream begins with Hello");
  }
  std::shared_ptr<Ring> ring;
  {
    MutexLock lock(mutex_);
    const absl::Status fault = Fault(inlet.ring_epoch);
    if (!fault.ok() && !header.has_broken()) return fault;
    left_heard_ = std::chrono::steady_clock::now();
    if (agreed_.has_value()) ring = agreed_->ring;
  }
  absl::Status status;
  switch (header.kind_case()) {
    case v1::RingHeader::kState:
      status = OnState(inlet.ring_epoch, header.state());
      break;
    case v1::RingHeader::kValues:
      status = OnValues(inlet.ring_epoch, header.values(), payload);
      break;
    case v1::RingHeader::kRecord:
    case v1::RingHeader::kGradient:
      if (ring == nullptr) {
        status = absl::InvalidArgumentError("ring: a step began before all states had arrived");
      } else {
        status = header.has_record() ? ring->OnRecord(header.record())
                                     : ring->OnGradient(header.gradient(), payload);
      }
      break;
    case v1::RingHeader::kBeat:
      break;
    case v1::RingHeader::kBroken: {
      const auto code = static_cast<absl::StatusCode>(header.broken().code());
      const bool known = code > absl::StatusCode::kOk && code <= absl::StatusCode::kUnauthenticated;
      Break(inlet.ring_epoch, {known ? code : absl::StatusCode::kUnknown, header.broken().message()});
      break;
    }
    case v1::RingHeader::kBye: {
      v1::RingHeader answer;
      answer.mutable_bye();
      inlet.back->Send(answer, {}, nullptr);
      inlet.back->End(absl::OkStatus());  // when the answer has been sent
      MutexLock lock(mutex_);
      left_bye_ = true;
      changed_.NotifyAll();
      break;
    }
    default:
      status =
          absl::InvalidArgumentError(absl::StrCat("ring: unexpected frame of kind ", header.kind_case()));
  }
  // UNAVAILABLE: the neighbour ended while this worker read memory borrowed from it. The end of the stream
  // also reports this.
  if (status.ok() || absl::IsUnavailable(status)) return status;
  status = Annotate(status, absl::StrCat("from ", name(left())));
  Break(inlet.ring_epoch, status);
  return status;
}

absl::Status Member::OnState(int64_t ring_epoch, const v1::RingState& state) {
  const int worker = state.worker();
  const v1::Progress& progress = state.progress();
  constexpr int64_t kMaxVersionOffset = int64_t{1} << 60;
  const int64_t offset = progress.version_offset();
  if (worker < 0 || worker >= workers() || worker == options_.worker || progress.version() < 0 ||
      offset > progress.version() || offset < -kMaxVersionOffset ||
      progress.version() - offset > options_.job.final_version()) {
    return absl::InvalidArgumentError(absl::StrCat("ring: invalid state of worker ", worker, " of ",
                                                   workers(), " at version ", progress.version(), ", offset ",
                                                   offset, ", final version ", options_.job.final_version()));
  }
  if (progress.has_learning_rate() &&
      !(std::isfinite(progress.learning_rate()) && progress.learning_rate() >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat("ring: invalid learning rate ", progress.learning_rate()));
  }
  if (right() != worker) {
    v1::RingHeader header;
    *header.mutable_state() = state;
    SendRight(ring_epoch, header, {}, nullptr);
  }
  MutexLock lock(mutex_);
  if (ring_epoch != ring_epoch_) return absl::OkStatus();
  if (states_[static_cast<size_t>(worker)].has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("ring: worker ", worker, " has sent its state twice"));
  }
  AddState(ring_epoch, state);
  return absl::OkStatus();
}

absl::Status Member::OnValues(int64_t ring_epoch, const v1::StateChunk& chunk, net::Payload payload) {
  const int64_t bytes = net::PayloadBytes(payload);
  const int64_t count = bytes / static_cast<int64_t>(sizeof(float));
  std::shared_ptr<AlignedBuffer> passed;
  bool forward;
  {
    MutexLock lock(mutex_);
    if (ring_epoch != ring_epoch_) return absl::OkStatus();
    if (passed_ == nullptr || chunk.offset() != passed_size_ || count == 0 ||
        bytes % static_cast<int64_t>(sizeof(float)) != 0 || count > passed_->size() - passed_size_) {
      return absl::InvalidArgumentError(absl::StrCat("ring: ", bytes, " bytes of values at ", chunk.offset(),
                                                     ", after ", passed_size_, " of ",
                                                     passed_ == nullptr ? 0 : passed_->size(), " elements"));
    }
    passed = passed_;
    forward = right() != agreed_->source;
  }
  float* const to = passed->data() + chunk.offset();
  CAIRN_RETURN_IF_ERROR(net::CopyPayload(payload, to));
  if (forward) {
    v1::RingHeader header;
    *header.mutable_values() = chunk;
    const absl::Span<const float> values(to, static_cast<size_t>(count));
    SendRight(ring_epoch, header, {&values, 1}, passed);
  }
  MutexLock lock(mutex_);
  if (ring_epoch == ring_epoch_) passed_size_ += count;
  changed_.NotifyAll();
  return absl::OkStatus();
}

void Member::OnLeftClosed(int64_t ring_epoch, const absl::Status& status) {
  std::string step;
  {
    MutexLock lock(mutex_);
    if (ring_epoch == 0 || ring_epoch != ring_epoch_) return;
    if (complete_) left_bye_ = true;  // the neighbour ended without Bye, and sends nothing more
    changed_.NotifyAll();
    if (left_bye_) return;
    step = InStep();
  }
  Break(ring_epoch,
        IsLoss(status) ? absl::AbortedError(absl::StrCat("lost ", name(left()), step, ": ", status.message()))
                       : status);
}

void Member::OnRightClosed(Outlet& outlet, const absl::Status& status) {
  std::string step;
  {
    MutexLock lock(mutex_);
    outlet.closed = true;
    changed_.NotifyAll();
    step = InStep();
  }
  Break(outlet.ring_epoch, IsLoss(status) ? absl::AbortedError(absl::StrCat("lost ", name(right()), step,
                                                                            ": ", status.message()))
                                          : status);
}

void Member::OnRightBye() {
  MutexLock lock(mutex_);
  right_bye_ = true;
  changed_.NotifyAll();
}

}  // namespace cairn::allreduce
