#include "client/training/step_pushes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/gradients/answer_sink.h"
#include "client/job_end.h"
#include "client/training/push_repeats.h"
#include "client/transport/request.h"
#include "common/core/clock.h"
#include "common/core/status.h"
#include "common/net/data_channel/shared_memory/shared_buffer.h"
#include "common/net/wire/codec.h"
#include "common/net/wire/wire_choice.h"

namespace cairn::client {
namespace {

// The limit of AwaitComing(), whose waits are not reported.
constexpr auto kLongWait = PushRepeats::kLogEvery;

}  // namespace

StepPushes::StepPushes(Connection& connection, Options options)
    : connection_(connection),
      options_(std::move(options)),
      batch_means_(
          connection_,
          {.step_timeout = options_.step_timeout, .failure = options_.failure, .persist = options_.persist}),
      trace_(options_.trace, connection_.num_servers()),
      pushes_(static_cast<size_t>(connection_.num_servers())) {}

absl::Status StepPushes::Learn(const LearntJob& job, const std::vector<net::VariableInfo>& variables,
                               const RowTables& tables) {
  CAIRN_RETURN_IF_ERROR(net::CheckEncoding(job.job.wire()));
  CAIRN_RETURN_IF_ERROR(net::CheckGradientWire(job.job, variables));
  job_ = &job;
  auto outgoing = std::make_unique<OutgoingGradients>(job.job, job.layout, variables, options_.wire);
  auto outgoing_rows = std::make_unique<OutgoingRows>(tables, options_.wire);
  MutexLock lock(mutex_);
  outgoing_ = std::move(outgoing);
  outgoing_rows_ = std::move(outgoing_rows);
  return absl::OkStatus();
}

void StepPushes::Begin(const Input& step) {
  CAIRN_CHECK(step.gradients.size() == step.values.size());
  step_ = step;
  ended_ = false;
  unanswered_ = true;
  repeats_.reset();
  base_versions_.assign(step.base_versions.begin(), step.base_versions.end());
  step_.base_versions = base_versions_;
  batch_means_.Begin({.layout = job_->layout_ids[0],
                      .worker = step.worker,
                      .incarnation = step.incarnation,
                      .version = base_versions_[0],
                      .examples = step.examples});
  groups_.assign(step.groups.begin(), step.groups.end());
  step_.groups = groups_;
  std::vector<std::unique_ptr<ServerSession>> broken;  // destroyed outside the lock
  MutexLock lock(mutex_);
  ++attempt_;
  arrivals_.Begin(job_->layout);
  trace_.BeginStep({.worker = step.worker, .incarnation = step.incarnation, .number = step.number});
  outgoing_->BeginStep(step.gradients);
  outgoing_rows_->BeginStep();
  arriving_rows_.Clear();
  for (int server = 0; server < connection_.num_servers(); ++server) {
    Push& push = this->push(server);
    if (push.session == nullptr || !push.session->status().ok() || push.moves != connection_.moves(server)) {
      broken.push_back(std::move(push.session));
      push.moves = connection_.moves(server);
      push.session = std::make_unique<ServerSession>(connection_.stub(server).streams());
      outgoing_rows_->OnNewStream(server);
    }
    Start(server);
  }
}

void StepPushes::Start(int server) {
  Push& push = this->push(server);
  push.done.reset();
  outgoing_->BeginPush(server);
  outgoing_rows_->BeginPush(server);
  arriving_rows_.Restart(server);
  v1::ClientHeader header;
  v1::PushBegin& begin = *header.mutable_push();
  begin.set_layout(job_->layout_ids[static_cast<size_t>(server)]);
  begin.set_worker(step_.worker);
  begin.set_incarnation(step_.incarnation);
  begin.set_step(step_.number);
  begin.set_base_version(base_versions_[static_cast<size_t>(server)]);
  begin.set_examples(step_.examples);
  begin.set_read_values(true);
  begin.set_position(step_.position);
  begin.mutable_groups()->Add(groups_.begin(), groups_.end());
  begin.set_values_encoding(job_->job.wire());
  const FirstValuesAt first_values = trace_.NewFirstValues();
  auto values = std::make_unique<AnswerSink>(
      arrivals_, ReceiveInto(job_->layout.extents_on(server), step_.values),
      std::make_unique<RowSink>(arriving_rows_, server, options_.wire),
      AnswerSink::Options{.server = server, .wire = options_.wire, .first_values = first_values});
  const auto id =
      push.session->Begin(std::move(header), std::move(values), OnDone(server, attempt_, first_values));
  if (id.ok()) {
    push.request_id = *id;
  } else {
    Answered(server, id.status());
  }
}

absl::Status StepPushes::PushRows(absl::Span<const RowGradients> gradients) {
  CAIRN_CHECK(!ended_);
  if (step_.examples == 0) return absl::OkStatus();
  MutexLock lock(mutex_);
  CAIRN_RETURN_IF_ERROR(outgoing_rows_->Push(gradients));
  SendRowsToAll();
  return absl::OkStatus();
}

absl::Status StepPushes::WantRows(absl::Span<const RowValues> rows) {
  CAIRN_CHECK(!ended_);
  MutexLock lock(mutex_);
  CAIRN_RETURN_IF_ERROR(outgoing_rows_->Want(rows, arriving_rows_));
  SendRowsToAll();
  return absl::OkStatus();
}

std::vector<RowValues> StepPushes::wanted_rows() const {
  MutexLock lock(mutex_);
  const absl::Span<const RowValues> wanted = outgoing_rows_->wanted();
  return {wanted.begin(), wanted.end()};
}

void StepPushes::SendRows(int server) {
  Push& push = this->push(server);
  const int64_t bytes = outgoing_rows_->Send(server, *push.session, push.request_id);
  if (bytes == 0) return;
  trace_.OnSending(server);
  trace_.AddBytes(server, bytes);
}

void StepPushes::SendRowsToAll() {
  for (int server = 0; server < connection_.num_servers(); ++server) SendRows(server);
}

void StepPushes::Answered(int server, absl::StatusOr<v1::Done> result) {
  const bool failed = !result.ok();
  push(server).done = std::move(result);
  if (failed) {
    arrivals_.Fail();
    Rouse();
  } else {
    arrivals_.Close(server);
    // No Nudge() is needed: a caller in ReceiveUntil() waits for the answer on the stream that it reads, and
    // receives that answer itself.
    changed_.NotifyAll();
  }
}

void StepPushes::Rouse() {
  ++roused_;
  changed_.NotifyAll();
  for (Push& push : pushes_) {
    if (push.session != nullptr) push.session->Nudge();
  }
}

void StepPushes::AwaitChange(int server, TimePoint deadline) {
  ServerSession* const session = push(server).session.get();
  const uint64_t roused = roused_;
  const auto enough = [this, server, roused] {
    MutexLock lock(mutex_);
    return push(server).done.has_value() || roused_ != roused;
  };
  mutex_.Unlock();
  const bool received = session->ReceiveUntil(enough, deadline);
  mutex_.Lock();
  if (!received && !push(server).done.has_value() && roused_ == roused) {
    changed_.WaitUntil(mutex_, deadline);
  }
}

ServerSession::OnDone StepPushes::OnDone(int server, uint64_t attempt, FirstValuesAt first_values) {
  return [this, server, attempt, first_values](absl::StatusOr<v1::Done> result) {
    MutexLock lock(mutex_);
    if (attempt != attempt_ || pushes_.empty()) return;
    if (result.ok()) trace_.OnAnswer(server, first_values);
    Answered(server, std::move(result));
  };
}

void StepPushes::Announce(int variable) {
  if (step_.examples == 0) return;
  MutexLock lock(mutex_);
  outgoing_->Announce(variable, [this](int server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { Send(server); });
}

void StepPushes::Send(int server) {
  if (!outgoing_->queued(server)) return;
  Push& push = this->push(server);
  trace_.OnSending(server);
  trace_.AddBytes(server, outgoing_->Send(server, *push.session, push.request_id));
}

void StepPushes::End() {
  deadline_ = SteadyNow() + options_.step_timeout;
  moves_at_end_ = connection_.moves();
  MutexLock lock(mutex_);
  for (int server = 0; server < connection_.num_servers(); ++server) {
    Send(server);
    trace_.OnSent(server);
    push(server).session->SendEnd(push(server).request_id);
  }
}

absl::Span<const float> StepPushes::ComingParameters() {
  if (!std::exchange(ended_, true)) End();
  return step_.values;
}

Unanswered StepPushes::FindUnanswered() const {
  Unanswered unanswered;
  for (int server = 0; server < connection_.num_servers(); ++server) {
    const auto& done = push(server).done;
    const bool answered = done.has_value() && done->ok();
    if (!answered && push(server).moves != connection_.moves(server)) {
      unanswered.failed.push_back(server);
      if (unanswered.failure.ok()) {
        unanswered.failure = absl::UnavailableError(absl::StrCat("the shard of ps/", server, " has moved"));
      }
    } else if (!done.has_value()) {
      unanswered.waiting.push_back(server);
    } else if (!done->ok()) {
      unanswered.failed.push_back(server);
      if (unanswered.failure.ok() ||
          (IsWorthRepeating(unanswered.failure) && !IsWorthRepeating(done->status()))) {
        unanswered.failure = Annotate(done->status(), connection_.NameOf(server));
      }
    }
  }
  return unanswered;
}

absl::StatusOr<Unanswered> StepPushes::AwaitAnswersOrFailure(TimePoint until, TimePoint* next_report) {
  MutexLock lock(mutex_);
  for (;;) {
    Unanswered unanswered = FindUnanswered();
    if (!unanswered.failed.empty() || unanswered.waiting.empty()) return unanswered;
    CAIRN_RETURN_IF_ERROR(options_.failure());
    const auto waits_for = [&] {
      const std::string round = options_.waiting_for();
      return absl::StrCat(connection_.NameOf(unanswered.waiting[0]),
                          round.empty() ? "" : "; the round waits for ", round);
    };
    const TimePoint now = SteadyNow();
    if (now >= deadline_) return absl::DeadlineExceededError(absl::StrCat("no answer from ", waits_for()));
    if (now >= *next_report) {
      *next_report += PushRepeats::kLogEvery;
      connection_.Report(absl::StrCat(Name(), " waits for ", waits_for()));
    }
    if (now >= until) return unanswered;
    AwaitChange(unanswered.waiting[0], std::min({deadline_, *next_report, until}));
  }
}

// Waits for all servers at once: a synchronous round closes when the push is on all of them, so the answer of
// one may depend on the repeated push to another.
absl::StatusOr<bool> StepPushes::Await(TimePoint until) {
  if (!repeats_.has_value()) {
    repeats_.emplace(connection_, PushRepeats::Options{.task = options_.task,
                                                       .step = Name(),
                                                       .deadline = deadline_,
                                                       .limit = options_.step_timeout,
                                                       .failure = options_.failure});
  }
  return repeats_->Run(
      until, [this, until](TimePoint* next_report) { return AwaitAnswersOrFailure(until, next_report); },
      [this](int server) { return Repeat(server); });
}

absl::Status StepPushes::Repeat(int server) {
  // A server that was restarted has lost its state: there is nothing to repeat.
  CAIRN_ASSIGN_OR_RETURN(const v1::ConnectResponse described, connection_.Describe(server));
  CAIRN_RETURN_IF_ERROR(CheckGoesOn(described));
  // Other workers of the step may still wait for means, of which a backup that has taken over knows nothing.
  if (server == 0) CAIRN_RETURN_IF_ERROR(batch_means_.SendAgain());
  const int moves = connection_.moves(server);
  std::unique_ptr<ServerSession> old;
  {
    MutexLock lock(mutex_);
    old = std::move(push(server).session);
  }
  // Closing the old session delivers its last callbacks for this push before the push starts again.
  old.reset();
  auto session = std::make_unique<ServerSession>(connection_.stub(server).streams());
  MutexLock lock(mutex_);
  Push& push = this->push(server);
  push.moves = moves;
  push.session = std::move(session);
  outgoing_rows_->OnNewStream(server);
  Start(server);
  SendRows(server);
  if (step_.examples > 0) {
    outgoing_->QueueAll(server);
    Send(server);
  }
  push.session->SendEnd(push.request_id);
  return absl::OkStatus();
}

bool StepPushes::AwaitComing(int variable) {
  // Longer waits are left to Await(), which logs them and repeats pushes.
  const TimePoint deadline = std::min(SteadyNow() + kLongWait, deadline_);
  const auto failure = [this] {
    if (connection_.moves() != moves_at_end_) return absl::UnavailableError("a shard has moved");
    return options_.failure();
  };
  return arrivals_.Await(variable, deadline, failure, [&](int server, absl::FunctionRef<bool()> enough) {
    ServerSession* session;
    {
      MutexLock lock(mutex_);
      session = push(server).session.get();
    }
    session->ReceiveUntil(enough, deadline);
  });
}

absl::StatusOr<StepResult> StepPushes::Finish() {
  CAIRN_ASSIGN_OR_RETURN(const std::optional<StepResult> result, FinishUntil(TimePoint::max()));
  return *result;
}

absl::StatusOr<std::optional<StepResult>> StepPushes::FinishUntil(TimePoint until) {
  if (!std::exchange(ended_, true)) End();
  absl::StatusOr<bool> answered = Await(until);
  if (answered.ok() && !*answered) return std::nullopt;
  absl::StatusOr<StepResult> result = answered.ok() ? Conclude() : Annotate(answered.status(), Context());
  if (result.ok()) return *std::move(result);
  Drop();
  return result.status();
}

absl::StatusOr<StepResult> StepPushes::Conclude() {
  std::vector<v1::Done> answers;
  {
    MutexLock lock(mutex_);
    for (const Push& push : pushes_) answers.push_back(**push.done);
  }
  unanswered_ = false;
  std::vector<bool> counted;
  for (int server = 0; server < connection_.num_servers(); ++server) {
    const v1::Outcome outcome = answers[static_cast<size_t>(server)].outcome();
    if (outcome == v1::OUTCOME_REJECTED) {
      return absl::AbortedError(
          absl::StrCat(Context(), ": ", connection_.NameOf(server), " does not know this worker any more"));
    }
    counted.push_back(outcome == v1::OUTCOME_ACCEPTED);
  }
  {
    MutexLock lock(mutex_);
    outgoing_->EndStep(counted);
    outgoing_rows_->EndStep(/*with_rows=*/arriving_rows_.complete(connection_.num_servers()));
  }
  return options_.settle(answers);
}

void StepPushes::Drop() {
  std::vector<std::unique_ptr<ServerSession>> sessions;  // destroyed outside the lock
  {
    MutexLock lock(mutex_);
    for (Push& push : pushes_) sessions.push_back(std::move(push.session));
  }
  sessions.clear();
  if (std::exchange(unanswered_, false)) net::SharedBuffer::Renew(step_.gradients);
}

void StepPushes::Wake() {
  arrivals_.Wake();
  MutexLock lock(mutex_);
  Rouse();
}

}  // namespace cairn::client
