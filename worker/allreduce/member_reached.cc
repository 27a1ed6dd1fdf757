// Handles what arrives at a worker: the left neighbour's handshake, streams and frames, and the ends of both
// links.
#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/job_setup.h"
#include "common/core/status.h"
#include "common/net/grpc/grpc_util.h"
#include "worker/allreduce/member.h"

namespace cairn::allreduce {
namespace {

// Whether the left neighbour greets the right worker, and trains the same job.
absl::Status CheckGreeting(const Member::Options& options, int left, const v1::GreetRequest& request) {
  const auto refuse = [](const auto&... text) {
    return absl::FailedPreconditionError(absl::StrCat(text...));
  };
  CAIRN_RETURN_IF_ERROR(CheckCaller(request, options.cluster_hash));
  if (request.to() != options.worker || request.from() != left) {
    return refuse("it is worker ", options.worker, " of ", options.names.size(),
                  ", whose left neighbour is worker ", left, ", but was greeted as worker ", request.to(),
                  " by worker ", request.from());
  }
  const std::string differences =
      client::DifferencesFrom({.task = options.task, .job = options.job, .variables = options.variables},
                              request.job(), "with the caller");
  if (!differences.empty()) return refuse("it trains another job than the caller: ", differences);
  return absl::OkStatus();
}

// A record, a gradient or values of a batch from the left neighbour. Null `ring`: it is not formed yet.
absl::Status PassToRing(Ring* ring, const v1::RingHeader& header, net::Payload payload) {
  if (ring == nullptr) {
    return absl::InvalidArgumentError("ring: a step began before all states had arrived");
  }
  if (header.has_batch()) return ring->means().OnPart(header.batch());
  return header.has_record() ? ring->OnRecord(header.record()) : ring->OnGradient(header.gradient(), payload);
}

// The stream ends when the answer has been sent.
void AnswerBye(RingStream& back) {
  v1::RingHeader answer;
  answer.mutable_bye();
  back.Send(answer, {}, nullptr);
  back.End(absl::OkStatus());
}

// Why a ring epoch ends with a link that ended with `status`.
absl::Status LossOf(const std::string& neighbour, const std::string& in_step, const absl::Status& status) {
  if (!IsLoss(status)) return status;
  return absl::AbortedError(absl::StrCat("lost ", neighbour, in_step, ": ", status.message()));
}

}  // namespace

// A stream from the left neighbour.
struct Member::Inlet final : RingHandler {
  Inlet(Member& member_in, std::shared_ptr<RingStream> back_in)
      : back(std::move(back_in)), member(member_in) {}

  absl::Status OnFrame(const v1::RingHeader& header, net::Payload payload) override {
    return member.OnLeftFrame(*this, header, payload);
  }
  void OnClosed(const absl::Status& status) override { member.OnLeftClosed(ring_epoch, status); }

  const std::shared_ptr<RingStream> back;
  Member& member;
  int64_t ring_epoch = 0;  // 0: no Hello received. Used by threads of the transport
};

absl::Status Member::OnGreet(const v1::GreetRequest& request, v1::GreetResponse* response) {
  CAIRN_RETURN_IF_ERROR(CheckGreeting(options_, left(), request));
  int64_t ring_epoch;
  bool restarted;
  {
    MutexLock lock(mutex_);
    if (complete_) return absl::UnavailableError("training is over");
    if (absl::IsCancelled(ended_)) return absl::UnavailableError("this worker is being stopped");
    if (!ended_.ok()) return ended_;
    ring_epoch = ring_epoch_;
    restarted = left_.IsRestart(request);
    if (restarted) CAIRN_RETURN_IF_ERROR(left_.CheckIsGone(request, std::chrono::steady_clock::now()));
    left_.SetProcess(request.process());
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
    if (!left_.connected()) {
      left_.Connect(inlet.back, hello.incarnation(), std::chrono::steady_clock::now());
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
    left_.Hear(std::chrono::steady_clock::now());
    ring = states_.ring();
  }
  absl::Status status;
  switch (header.kind_case()) {
    case v1::RingHeader::kState:
      status = OnState(inlet.ring_epoch, header.state());
      break;
    case v1::RingHeader::kValues:
      status = OnValues(inlet.ring_epoch, header.values(), payload);
      break;
    case v1::RingHeader::kBatch:
    case v1::RingHeader::kRecord:
    case v1::RingHeader::kGradient:
      status = PassToRing(ring.get(), header, payload);
      break;
    case v1::RingHeader::kBeat:
      break;
    case v1::RingHeader::kBroken:
      Break(inlet.ring_epoch, SentStatus(header.broken().code(), header.broken().message()));
      break;
    case v1::RingHeader::kBye: {
      AnswerBye(*inlet.back);
      MutexLock lock(mutex_);
      left_.SetBye();
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
  {
    MutexLock lock(mutex_);
    CAIRN_RETURN_IF_ERROR(states_.Check(state));
  }
  const int worker = state.worker();
  if (right() != worker) {
    v1::RingHeader header;
    *header.mutable_state() = state;
    right_.Send(ring_epoch, header, {}, nullptr);
  }
  MutexLock lock(mutex_);
  if (ring_epoch != ring_epoch_) return absl::OkStatus();
  if (states_.Has(worker)) {
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
    CAIRN_RETURN_IF_ERROR(states_.CheckValues(chunk, bytes));
    passed = states_.values();
    forward = right() != states_.agreement()->source;
  }
  float* const to = passed->data() + chunk.offset();
  CAIRN_RETURN_IF_ERROR(net::CopyPayload(payload, to));
  if (forward) {
    v1::RingHeader header;
    *header.mutable_values() = chunk;
    const absl::Span<const float> values(to, static_cast<size_t>(count));
    right_.Send(ring_epoch, header, {&values, 1}, passed);
  }
  MutexLock lock(mutex_);
  if (ring_epoch == ring_epoch_) states_.CountValues(count);
  changed_.NotifyAll();
  return absl::OkStatus();
}

void Member::OnLeftClosed(int64_t ring_epoch, const absl::Status& status) {
  std::string step;
  {
    MutexLock lock(mutex_);
    if (ring_epoch == 0 || ring_epoch != ring_epoch_) return;
    if (complete_) left_.SetBye();  // the neighbour ended without Bye, and sends nothing more
    changed_.NotifyAll();
    if (left_.bye()) return;
    step = states_.InStep();
  }
  Break(ring_epoch, LossOf(name(left()), step, status));
}

void Member::OnRightClosed(int64_t ring_epoch, const absl::Status& status) {
  std::string step;
  {
    MutexLock lock(mutex_);
    changed_.NotifyAll();
    step = states_.InStep();
  }
  Break(ring_epoch, LossOf(name(right()), step, status));
}

}  // namespace cairn::allreduce
