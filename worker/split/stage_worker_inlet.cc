// Handles what arrives at a stage worker: the stage leader's handshake, stream and frames.
#include "worker/split/stage_worker_inlet.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"
#include "worker/split/stage_messages.h"

namespace cairn::split {
namespace {

// A limit for the examples of a batch. A larger number could only serve to fill this process's memory.
constexpr int64_t kMaxExamples = int64_t{1} << 20;

// The same for the values of a ragged input.
constexpr int64_t kMaxRaggedValues = int64_t{1} << 30;

// The first difference between the two plans; empty: none.
std::string Differences(const v1::SplitPlan& ours, const v1::SplitPlan& theirs) {
  if (ours.model_sha256() != theirs.model_sha256()) return "its model is different";
  if (ours.loss() != theirs.loss()) {
    return absl::StrCat("the loss is ", ours.loss(), " here, ", theirs.loss(), " there");
  }
  if (ours.places() != theirs.places()) {
    return absl::StrCat("layers are placed as ", ours.places(), " here, ", theirs.places(), " there");
  }
  if (ours.micro_batches() != theirs.micro_batches()) {
    return absl::StrCat("a batch is in ", ours.micro_batches(), " micro-batches here, ",
                        theirs.micro_batches(), " there");
  }
  return "";
}

}  // namespace

absl::Status StageWorker::OnGreet(const v1::GreetRequest& request, v1::GreetResponse* response) {
  const auto refuse = [](const auto&... text) {
    return absl::FailedPreconditionError(absl::StrCat(text...));
  };
  CAIRN_RETURN_IF_ERROR(allreduce::CheckCaller(request, options_.cluster_hash));
  if (!request.has_plan()) return refuse("its model is divided over workers, but the caller's is not");
  if (request.to() != options_.worker || request.from() != options_.leader) {
    return refuse("it is worker ", options_.worker, " of the group of worker ", options_.leader,
                  ", but was greeted as worker ", request.to(), " by worker ", request.from());
  }
  const std::string differences = Differences(options_.plan, request.plan());
  if (!differences.empty()) return refuse("it divides the model differently from the caller: ", differences);

  std::shared_ptr<allreduce::RingStream> before;
  {
    MutexLock lock(mutex_);
    if (over_.has_value()) return absl::UnavailableError("training is over");
    before = link_;
  }
  if (before != nullptr) {
    Lose(before.get(), "it has been restarted");
    before->End(absl::AbortedError("another stage leader has connected"));
  }
  MutexLock lock(mutex_);
  if (running_) return absl::UnavailableError("it is still computing a batch of the previous stage leader");
  response->set_incarnation(options_.incarnation);
  *response->mutable_data_endpoint() = net::ToProto(options_.data_endpoint);
  return absl::OkStatus();
}

std::shared_ptr<allreduce::RingHandler> StageWorker::OnStream(std::shared_ptr<allreduce::RingStream> back) {
  return std::make_shared<Inlet>(*this, std::move(back));
}

absl::Status StageWorker::OnHello(Inlet& inlet, const v1::RingHello& hello) {
  if (hello.worker() != options_.leader) {
    return absl::FailedPreconditionError(absl::StrCat("split: a stream of worker ", hello.worker(),
                                                      " (expected worker ", options_.leader, ")"));
  }
  MutexLock lock(mutex_);
  if (link_ != nullptr || running_) return absl::AbortedError("another stage leader has connected");
  link_ = inlet.back;
  heard_ = std::chrono::steady_clock::now();
  inlet.greeted = true;
  changed_.NotifyAll();
  return absl::OkStatus();
}

absl::Status StageWorker::OnFrame(Inlet& inlet, const v1::RingHeader& header, net::Payload payload) {
  if (!inlet.greeted) {
    if (header.has_hello()) return OnHello(inlet, header.hello());
    return absl::InvalidArgumentError("split: a stream begins with Hello");
  }
  {
    MutexLock lock(mutex_);
    if (link_ != inlet.back) return absl::AbortedError("another stage leader has connected");
    heard_ = std::chrono::steady_clock::now();
  }
  if (header.has_beat()) return absl::OkStatus();
  switch (header.split().kind_case()) {
    case v1::SplitHeader::kBegin:
      return OnBegin(header.split().begin());
    case v1::SplitHeader::kTensor:
      return OnTensor(header.split().tensor(), payload);
    case v1::SplitHeader::kEnd: {
      const v1::SplitEnd& end = header.split().end();
      {
        MutexLock lock(mutex_);
        const auto code = static_cast<absl::StatusCode>(end.code());
        over_ = absl::Status(code,
                             end.code() == 0 ? "" : absl::StrCat(options_.leader_name, ": ", end.message()));
        changed_.NotifyAll();
      }
      inlet.back->End(absl::OkStatus());
      return absl::OkStatus();
    }
    default:
      return absl::InvalidArgumentError(absl::StrCat("split: unexpected frame of the stage leader, of kind ",
                                                     header.kind_case(), ".", header.split().kind_case()));
  }
}

absl::Status StageWorker::OnBegin(const v1::SplitBegin& begin) {
  return CatchOutOfMemory("a batch of the stage leader", [&] { return Begin(begin); });
}

absl::Status StageWorker::Begin(const v1::SplitBegin& begin) {
  {
    MutexLock lock(mutex_);
    if (begun_.has_value())
      return absl::InvalidArgumentError("split: a batch begins before the previous batch has finished");
  }
  const int64_t examples = begin.examples();
  if (examples < 1 || examples > kMaxExamples || begin.preceding() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("split: invalid batch of ", examples, " examples"));
  }
  for (int input = 0; input < begin.ragged_values_size(); ++input) {
    const int64_t values = begin.ragged_values(input);
    if (values >= 0 && values <= kMaxRaggedValues) continue;
    return absl::InvalidArgumentError(absl::StrCat("split: input ", input, " has ", values,
                                                   " ragged values, must have 0 to ", kMaxRaggedValues));
  }
  const auto expect = [&](const v1::StageTensorName& tensor, AlignedBuffer& buffer, int64_t floats) {
    if (buffer.size() < floats) buffer = AlignedBuffer(floats);
    incoming_.Expect(tensor, buffer.data(), floats);
  };
  incoming_.Clear();
  for (const int variable : variables_) {
    const absl::Span<float> values = ValuesOf(values_, variable);
    incoming_.Expect(Named(v1::SPLIT_KIND_VALUE, variable), values.data(),
                     static_cast<int64_t>(values.size()));
  }
  for (const int input : reads_) {
    const auto index = static_cast<size_t>(input);
    expect(Named(v1::SPLIT_KIND_INPUT, input), inputs_[index],
           PackedFloats(model_.inputs()[index], examples, RaggedValues(begin, input)));
  }
  if (last_) {
    const int64_t targets = objective_.TargetsPerExample(model_);
    expect(Named(v1::SPLIT_KIND_TARGETS), targets_, examples * targets);
    if (begin.weighted()) expect(Named(v1::SPLIT_KIND_WEIGHTS), weights_, examples);
    const int64_t outputs = examples * model_.output_shape().num_elements();
    if (outputs_.size() < outputs) outputs_ = AlignedBuffer(outputs);
  }
  mailbox_.Begin(examples);
  MutexLock lock(mutex_);
  begun_ = begin;
  preceding_ = begin.preceding();
  step_ = begin.step();
  changed_.NotifyAll();
  return absl::OkStatus();
}

absl::Status StageWorker::OnTensor(const v1::StageTensorName& tensor, net::Payload payload) {
  if (tensor.kind() == v1::SPLIT_KIND_ACTIVATION || tensor.kind() == v1::SPLIT_KIND_ACTIVATION_GRADIENT) {
    return mailbox_.OnTensor(tensor, payload);
  }
  {
    MutexLock lock(mutex_);
    if (!begun_.has_value() || preceding_ == 0) {
      return absl::InvalidArgumentError(absl::StrCat("split: ", v1::SplitKind_Name(tensor.kind()), " of ",
                                                     tensor.index(), " arrived in the middle of a batch"));
    }
  }
  CAIRN_ASSIGN_OR_RETURN(const Incoming::Taken taken, incoming_.Take(tensor, payload));
  MutexLock lock(mutex_);
  preceding_ = std::max<int64_t>(0, preceding_ - taken.floats);
  if (preceding_ == 0) changed_.NotifyAll();
  return absl::OkStatus();
}

void StageWorker::Lose(const allreduce::RingStream* link, const std::string& why) {
  std::string step;
  {
    MutexLock lock(mutex_);
    if (link_.get() != link || link == nullptr) return;
    link_ = nullptr;
    alone_since_ = std::chrono::steady_clock::now();
    if (!running_) begun_.reset();
    changed_.NotifyAll();
    if (over_.has_value()) return;
    if (step_ > 0) step = absl::StrCat(" in step ", step_);
  }
  const std::string text = absl::StrCat("lost ", options_.leader_name, step, ": ", why);
  Say(text);
  pipeline_->Fail(absl::AbortedError(text));
}

}  // namespace cairn::split
