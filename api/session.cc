#include "cairn/session.h"

#include <functional>
#include <utility>

#include "api/conversions.h"
#include "api/training_session.h"
#include "common/core/status.h"

namespace cairn {
namespace {

using api::FromAbsl;

StepResult FromClient(const client::StepResult& result) {
  const Outcome outcome = result.outcome == v1::OUTCOME_ACCEPTED ? Outcome::kAccepted
                          : result.outcome == v1::OUTCOME_STALE  ? Outcome::kStale
                                                                 : Outcome::kFinished;
  return {.outcome = outcome, .staleness = result.staleness, .duplicate = result.duplicate};
}

std::span<const float> SpanOf(absl::Span<const float> values) {
  return {values.data(), values.size()};
}

}  // namespace

class [[gnu::visibility("hidden")]] Session::Impl {
 public:
  explicit Impl(std::unique_ptr<api::TrainingSession> opened) : session(std::move(opened)) {}
  const std::unique_ptr<api::TrainingSession> session;
};

Status Session::Open(const Job& job, const SessionOptions& options, std::unique_ptr<Session>* session) {
  auto opened = api::TrainingSession::Open(job, options);
  if (!opened.ok()) return FromAbsl(opened.status());
  session->reset(new Session(std::make_unique<Impl>(*std::move(opened))));
  return Status();
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

Status Session::Run(const std::function<Status(Session&)>& step) {
  return FromAbsl(impl_->session->Run([&] { return api::ToAbsl(step(*this)); }));
}

std::span<const float> Session::values() const {
  return SpanOf(impl_->session->values());
}

std::span<const float> Session::values(int variable) const {
  const auto range = impl_->session->range_of(variable);
  return values().subspan(range.begin, range.count);
}

std::array<std::span<const float>, 2> Session::value_places() const {
  auto places = impl_->session->steps().parameter_buffers();
  // They change their roles with every step, and keep their addresses.
  if (std::less<const float*>()(places[1].data(), places[0].data())) std::swap(places[0], places[1]);
  return {SpanOf(places[0]), SpanOf(places[1])};
}

int64_t Session::version() const {
  return impl_->session->steps().version();
}

Status Session::Pull() {
  return FromAbsl(impl_->session->Pull());
}

std::span<float> Session::gradients() {
  const auto gradients = impl_->session->gradients();
  return {gradients.data(), gradients.size()};
}

std::span<float> Session::gradients(int variable) {
  const auto range = impl_->session->range_of(variable);
  return gradients().subspan(range.begin, range.count);
}

Status Session::BeginStep(int64_t examples, std::span<const float> gradients) {
  return FromAbsl(impl_->session->BeginStep(examples, {gradients.data(), gradients.size()}));
}

Status Session::Announce(int variable) {
  return FromAbsl(impl_->session->Announce(variable));
}

Status Session::FinishStep(StepResult* result) {
  const auto finished = impl_->session->FinishStep();
  if (finished.ok() && result != nullptr) *result = FromClient(*finished);
  return FromAbsl(finished.status());
}

Status Session::FinishStepWithin(std::chrono::milliseconds slice, bool* done, StepResult* result) {
  const auto finished = impl_->session->FinishStepUntil(std::chrono::steady_clock::now() + slice);
  *done = finished.ok() && finished->has_value();
  if (*done && result != nullptr) *result = FromClient(**finished);
  return FromAbsl(finished.status());
}

Status Session::CancelStep() {
  return FromAbsl(impl_->session->CancelStep());
}

Status Session::ReadRows(const std::vector<RowsToRead>& rows) {
  return FromAbsl(impl_->session->ReadRows(rows));
}

Status Session::PushRows(const std::vector<RowGradients>& gradients) {
  return FromAbsl(impl_->session->PushRows(gradients));
}

Status Session::WantRows(const std::vector<RowsToRead>& rows) {
  return FromAbsl(impl_->session->WantRows(rows));
}

bool Session::has_wanted_rows() const {
  return impl_->session->has_wanted_rows();
}

bool Session::finished() const {
  return impl_->session->finished();
}

int64_t Session::position() const {
  return impl_->session->position();
}

std::vector<WorkItem> Session::work_items() const {
  std::vector<WorkItem> items;
  for (const v1::WorkItem& item : impl_->session->steps().work().work_items()) {
    items.push_back({.epoch = item.epoch(), .first = item.first(), .count = item.count()});
  }
  return items;
}

Status Session::AwaitWork() {
  return FromAbsl(impl_->session->AwaitWork());
}

int Session::members() const {
  return impl_->session->steps().work().members();
}

Status Session::Recover(const Status& failure) {
  return FromAbsl(impl_->session->Recover(api::ToAbsl(failure)));
}

Status Session::End() {
  return FromAbsl(impl_->session->End());
}

bool Session::ended() const {
  return impl_->session->ended();
}

void Session::Leave(LeaveReason reason, const std::string& message) {
  impl_->session->Leave(reason == LeaveReason::kFailed ? v1::LEAVE_REASON_FAILED : v1::LEAVE_REASON_STOPPED,
                        message);
}

void Session::Cancel() {
  impl_->session->Cancel();
}

Status Session::SaveCheckpoint() {
  return FromAbsl(impl_->session->SaveCheckpoint());
}

Status Session::SetGroups(const std::vector<GroupSettings>& groups) {
  std::vector<v1::GroupSettings> settings;
  for (const GroupSettings& group : groups) {
    v1::GroupSettings& proto = settings.emplace_back();
    if (group.learning_rate.has_value()) proto.set_learning_rate(*group.learning_rate);
    proto.set_untouched(group.untouched);
    proto.mutable_hyperparameters()->insert(group.hyperparameters.begin(), group.hyperparameters.end());
  }
  return FromAbsl(impl_->session->SetGroups(std::move(settings)));
}

Status Session::SetLearningRate(float rate) {
  const auto control = impl_->session->Control();
  return FromAbsl(control.ok() ? (*control)->SetLearningRate(rate) : control.status());
}

Status Session::GetLearningRate(float* rate) {
  const auto control = impl_->session->Control();
  if (!control.ok()) return FromAbsl(control.status());
  const auto current = (*control)->LearningRate();
  if (current.ok()) *rate = *current;
  return FromAbsl(current.status());
}

Status Session::EndTraining() {
  const auto control = impl_->session->Control();
  return FromAbsl(control.ok() ? (*control)->EndTraining() : control.status());
}

Status Session::WriteValues(std::span<const float> values) {
  const auto control = impl_->session->Control();
  if (!control.ok()) return FromAbsl(control.status());
  if (values.size() != this->values().size()) {
    return Status(StatusCode::kInvalidArgument, "WriteValues: " + std::to_string(values.size()) +
                                                    " values for " + std::to_string(this->values().size()));
  }
  return FromAbsl((*control)->Write({values.data(), values.size()}, nullptr));
}

Status Session::GetCounters(Counters* counters) {
  const auto control = impl_->session->Control();
  if (!control.ok()) return FromAbsl(control.status());
  const auto current = (*control)->ServerCounters();
  if (!current.ok()) return FromAbsl(current.status());
  *counters = {.accepted = current->accepted(),
               .stale = current->stale(),
               .duplicate = current->duplicate(),
               .rejected = current->rejected(),
               .examples = current->examples(),
               .staleness_max = current->staleness_max()};
  return Status();
}

Status Session::ReadTable(int table, std::vector<int64_t>* ids, std::vector<float>* rows) {
  auto contents = impl_->session->ReadTable(table);
  if (!contents.ok()) return FromAbsl(contents.status());
  *ids = std::move(contents->ids);
  *rows = std::move(contents->rows);
  return Status();
}

Status Session::ReadOptimizerState(OptimizerState* state) {
  auto read = impl_->session->ReadOptimizerState();
  if (read.ok()) *state = *std::move(read);
  return FromAbsl(read.status());
}

int Session::worker() const {
  return impl_->session->worker();
}

}  // namespace cairn
