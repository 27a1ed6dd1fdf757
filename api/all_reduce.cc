#include "cairn/all_reduce.h"

#include <utility>

#include "api/conversions.h"
#include "api/ring_session.h"

namespace cairn {

using api::FromAbsl;
using api::ToAbsl;

class [[gnu::visibility("hidden")]] AllReduce::Impl {
 public:
  explicit Impl(std::unique_ptr<api::RingSession> opened) : session(std::move(opened)) {}
  const std::unique_ptr<api::RingSession> session;
};

Status AllReduce::Open(const Job& job, const AllReduceOptions& options,
                       std::unique_ptr<AllReduce>* all_reduce) {
  auto opened = api::RingSession::Open(job, options);
  if (!opened.ok()) return FromAbsl(opened.status());
  all_reduce->reset(new AllReduce(std::make_unique<Impl>(*std::move(opened))));
  return Status();
}

AllReduce::AllReduce(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AllReduce::~AllReduce() = default;

std::span<float> AllReduce::gradients() {
  const auto gradients = impl_->session->gradients();
  return {gradients.data(), gradients.size()};
}

std::span<float> AllReduce::gradients(int variable) {
  const auto gradients = impl_->session->gradients(variable);
  return {gradients.data(), gradients.size()};
}

Status AllReduce::BeginStep(int64_t examples, bool done) {
  return FromAbsl(impl_->session->BeginStep(examples, done));
}

Status AllReduce::Announce(int variable) {
  return FromAbsl(impl_->session->Announce(variable));
}

Status AllReduce::FinishStep(AllReduceStep* step) {
  const auto finished = impl_->session->FinishStep();
  if (finished.ok()) *step = *finished;
  return FromAbsl(finished.status());
}

Status AllReduce::CancelStep(bool* loaded) {
  return FromAbsl(impl_->session->CancelStep(loaded));
}

AllReduce::Mean AllReduce::mean() {
  return impl_->session->mean();
}

Status AllReduce::AwaitSent() {
  return FromAbsl(impl_->session->AwaitSent());
}

Status AllReduce::Recover(const Status& failure, bool* loaded) {
  return FromAbsl(impl_->session->Recover(ToAbsl(failure), loaded));
}

int64_t AllReduce::version() const {
  return impl_->session->version();
}

Status AllReduce::End() {
  return FromAbsl(impl_->session->End());
}

void AllReduce::Leave(LeaveReason reason, const std::string& message) {
  impl_->session->Leave(reason, message);
}

void AllReduce::Cancel() {
  impl_->session->Cancel();
}

}  // namespace cairn
