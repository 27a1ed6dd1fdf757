#include "worker/split/mailbox.h"

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::split {
namespace {

v1::StageTensorName NameOf(const nn::StageTensor& what) {
  v1::StageTensorName tensor;
  tensor.set_kind(what.backward ? v1::SPLIT_KIND_ACTIVATION_GRADIENT : v1::SPLIT_KIND_ACTIVATION);
  tensor.set_index(what.stage);
  tensor.set_slot(what.slot);
  tensor.set_micro_batch(what.micro_batch);
  return tensor;
}

}  // namespace

void Mailbox::Begin(int64_t examples) {
  incoming_.Clear();
  const auto arrivals = pipeline_->ArrivalsOf(examples);
  if (buffers_.size() < arrivals.size()) buffers_.resize(arrivals.size());
  for (size_t i = 0; i < arrivals.size(); ++i) {
    const auto& [what, floats] = arrivals[i];
    if (buffers_[i].size() < floats) buffers_[i] = AlignedBuffer(floats);
    incoming_.Expect(NameOf(what), buffers_[i].data(), floats);
  }
  MutexLock lock(mutex_);
  started_ = false;
  complete_.clear();
}

void Mailbox::Started() {
  MutexLock lock(mutex_);
  started_ = true;
  for (const auto& [stage, micro_batch, backward] : complete_)
    pipeline_->Finish(stage, micro_batch, backward);
}

absl::Status Mailbox::OnTensor(const v1::StageTensorName& tensor, net::Payload payload) {
  CAIRN_ASSIGN_OR_RETURN(const Incoming::Taken taken, incoming_.Take(tensor, payload));
  if (!tensor.completes()) return absl::OkStatus();
  const bool backward = tensor.kind() == v1::SPLIT_KIND_ACTIVATION_GRADIENT;
  MutexLock lock(mutex_);
  const bool fresh = complete_.insert({tensor.index(), tensor.micro_batch(), backward}).second;
  if (!taken.whole || !fresh) {
    return absl::InvalidArgumentError(absl::StrCat(
        "split: stage ", tensor.index(), " was reported as complete ", fresh ? "before it was" : "twice"));
  }
  if (started_) pipeline_->Finish(tensor.index(), tensor.micro_batch(), backward);
  return absl::OkStatus();
}

absl::StatusOr<const float*> Mailbox::Received(const nn::StageTensor& what) {
  const float* const values = incoming_.Find(NameOf(what));
  if (values != nullptr) return values;
  return absl::InvalidArgumentError(absl::StrCat(
      "split: stage ", what.stage, " was reported as complete, but its tensor ", what.slot, " is not"));
}

void Mailbox::Send(int task, const nn::StageTensor& what, absl::Span<const float> values, bool completes) {
  v1::StageTensorName tensor = NameOf(what);
  tensor.set_to(task);
  tensor.set_completes(completes);
  send_(tensor, values);
}

}  // namespace cairn::split
