#include "worker/split/mailbox.h"

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::split {
namespace {

v1::SplitPiece NameOf(const nn::StageTensor& what) {
  v1::SplitPiece piece;
  piece.set_kind(what.backward ? v1::SPLIT_KIND_ACTIVATION_GRADIENT : v1::SPLIT_KIND_ACTIVATION);
  piece.set_index(what.stage);
  piece.set_slot(what.slot);
  piece.set_micro_batch(what.micro_batch);
  return piece;
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

absl::Status Mailbox::OnPiece(const v1::SplitPiece& piece, net::Payload payload) {
  CAIRN_ASSIGN_OR_RETURN(const Incoming::Taken taken, incoming_.Take(piece, payload));
  if (!piece.completes()) return absl::OkStatus();
  const bool backward = piece.kind() == v1::SPLIT_KIND_ACTIVATION_GRADIENT;
  MutexLock lock(mutex_);
  const bool fresh = complete_.insert({piece.index(), piece.micro_batch(), backward}).second;
  if (!taken.whole || !fresh) {
    return absl::InvalidArgumentError(absl::StrCat(
        "split: stage ", piece.index(), " was reported as complete ", fresh ? "before it was" : "twice"));
  }
  if (started_) pipeline_->Finish(piece.index(), piece.micro_batch(), backward);
  return absl::OkStatus();
}

absl::StatusOr<const float*> Mailbox::Received(const nn::StageTensor& what) {
  const float* const values = incoming_.Find(NameOf(what));
  if (values != nullptr) return values;
  return absl::InvalidArgumentError(absl::StrCat(
      "split: stage ", what.stage, " was reported as complete, but its tensor ", what.slot, " is not"));
}

void Mailbox::Send(int task, const nn::StageTensor& what, absl::Span<const float> values, bool completes) {
  v1::SplitPiece piece = NameOf(what);
  piece.set_to(task);
  piece.set_completes(completes);
  send_(piece, values);
}

}  // namespace cairn::split
