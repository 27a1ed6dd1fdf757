#include "cli/launcher/supervisor.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/flags/words.h"

namespace cairn::cli {
namespace {

constexpr int kRetryable = static_cast<int>(ExitCode::kRetryable);
constexpr int kFailure = static_cast<int>(ExitCode::kFailure);
// A task that is lost this soon after its start is likely to be lost again at once.
constexpr auto kSoon = std::chrono::seconds(5);
constexpr auto kShortestPause = std::chrono::milliseconds(100);
constexpr auto kLongestPause = std::chrono::seconds(5);
constexpr auto kFruitfulLife = std::chrono::seconds(60);

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? absl::StrCat("SIG", name) : absl::StrCat("signal ", signal);
}

std::string Describe(const ChildEnd& end) {
  return end.signal != 0 ? absl::StrCat("was killed by ", SignalName(end.signal))
                         : absl::StrCat("ended with exit code ", end.exit_code);
}

int CodeOf(const ChildEnd& end) {
  switch (end.signal) {
    case 0:
      return end.exit_code;
    case SIGKILL:  // sent by another process or the out-of-memory killer: the task can be retried
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
      return kRetryable;
    default:
      return kFailure;
  }
}

// Whether the task was stopped by a signal, or failed in a way that can be retried.
bool Left(const ChildEnd& end) {
  const int code = CodeOf(end);
  return code == kRetryable || code == static_cast<int>(ExitCode::kInterrupted) ||
         code == static_cast<int>(ExitCode::kTerminated);
}

std::string Seconds(Duration duration) {
  return absl::StrCat(ToSeconds(duration), " s");
}

std::string Names(const std::vector<const Child*>& children) {
  return absl::StrJoin(children, ", ",
                       [](std::string* out, const Child* child) { out->append(child->name()); });
}

// An error counts as written: the reader has gone; keep supervising the children.
void WriteAll(int fd, const std::string& text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = write(fd, text.data() + written, text.size() - written);
    if (count < 0 && errno != EINTR) return;
    if (count > 0) written += static_cast<size_t>(count);
  }
}

}  // namespace

int Supervisor::Run(const std::vector<Task>& tasks) {
  SignalQueue signals({SIGINT, SIGTERM, SIGHUP, SIGCHLD});
  has_chief_ =
      std::any_of(tasks.begin(), tasks.end(), [](const Task& task) { return task.role == Role::kChief; });
  if (!StartAll(tasks)) KillAll();
  while (!Running().empty() || RestartsPlanned()) {
    WaitForEvents(signals);
    while (const std::optional<int> signal = signals.Next()) OnSignal(*signal);
    for (Member& member : members_) Show(member, /*finish=*/false);
    ReapEnded();
    StartPlanned();
    OnDeadline();
  }
  if (!verdict_.empty()) Log(verdict_);
  return exit_code_.value_or(0);
}

bool Supervisor::StartAll(const std::vector<Task>& tasks) {
  for (const Task& task : tasks) {
    Child::Args first = task.child;
    first.command.insert(first.command.end(), task.first_life.begin(), task.first_life.end());
    auto child = Child::Start(first);
    if (!child.ok()) {
      exit_code_ = kFailure;
      verdict_ = std::string(child.status().message());
      return false;
    }
    members_.push_back({.task = &task, .child = *std::move(child), .started_at = SteadyClock().Now()});
  }
  return true;
}

bool Supervisor::PlanRestart(Member& member) {
  const ChildEnd& end = *member.child->end();
  if (CodeOf(end) != kRetryable || member.restarts >= member.task->restarts) return false;
  NoteLoss(member);
  if (member.fruitless > options_.max_fruitless_restarts) return false;
  const TimePoint now = SteadyClock().Now();
  const bool soon = now - member.started_at < kSoon;
  member.pause =
      soon ? std::clamp<Duration>(member.pause * 2, kShortestPause, kLongestPause) : Duration::zero();
  member.restart_at = now + member.pause;
  ++member.restarts;
  Log(absl::StrCat(member.child->name(), " ", Describe(end), ": restarting it (", member.restarts, " of ",
                   member.task->restarts, ")"));
  return true;
}

void Supervisor::NoteLoss(Member& member) const {
  const std::optional<int64_t> step = options_.progress ? options_.progress() : std::nullopt;
  const bool gained =
      step.has_value() ? step != member.step : SteadyClock().Now() - member.started_at >= kFruitfulLife;
  if (step.has_value()) member.step = step;
  member.fruitless = gained ? 0 : member.fruitless + 1;
}

void Supervisor::StartPlanned() {
  for (Member& member : members_) {
    if (!member.restart_at.has_value() || SteadyClock().Now() < *member.restart_at) continue;
    member.restart_at.reset();
    auto child = Child::Start(member.task->child);
    if (!child.ok()) {
      Fail(kFailure, std::string(child.status().message()));
      return;
    }
    member.child = *std::move(child);
    member.started_at = SteadyClock().Now();
  }
}

bool Supervisor::RestartsPlanned() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const Member& member) { return member.restart_at.has_value(); });
}

void Supervisor::WaitForEvents(const SignalQueue& signals) {
  std::vector<pollfd> events = {{signals.fd(), POLLIN, 0}};
  for (const Member& member : members_) {
    for (const Child::Stream stream : {Child::kStderr, Child::kStdout}) {
      if (const int fd = member.child->output_fd(stream); fd >= 0) events.push_back({fd, POLLIN, 0});
    }
  }
  int timeout = -1;  // no limit during normal operation: every task limits its own waits
  std::optional<TimePoint> next = deadline_;
  for (const Member& member : members_) {
    if (member.restart_at.has_value()) next = std::min(next.value_or(*member.restart_at), *member.restart_at);
  }
  if (next.has_value()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - SteadyClock().Now()).count();
    timeout = static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
  }
  poll(events.data(), events.size(), timeout);  // an error counts as a spurious wakeup
}

void Supervisor::OnSignal(int signal) {
  if (signal == SIGCHLD) return;  // ReapEnded() checks all children anyway
  if (phase_ == Phase::kStopping || phase_ == Phase::kKilling) {
    Log(absl::StrCat(SignalName(signal), " again: killing ",
                     Counted(static_cast<int64_t>(Running().size()), "task")));
    KillAll();
    return;
  }
  exit_code_ = static_cast<int>(signal == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated);
  verdict_ = absl::StrCat("stopped by ", SignalName(signal));
  Log(absl::StrCat(SignalName(signal), ": stopping within ", Seconds(options_.grace),
                   "; a second signal kills the tasks"));
  Stop(signal == SIGINT ? SIGINT : SIGTERM);
}

void Supervisor::ReapEnded() {
  std::vector<Member*> ended;
  for (Member& member : members_) {
    if (!member.child->TryReap()) continue;
    Show(member, /*finish=*/true);
    ended.push_back(&member);
  }
  // If several failures are seen together, report the one that is not a consequence of another failure.
  std::stable_sort(ended.begin(), ended.end(), [](const Member* a, const Member* b) {
    return (CodeOf(*a->child->end()) == kRetryable) < (CodeOf(*b->child->end()) == kRetryable);
  });
  for (Member* member : ended) OnEnd(*member);
  if (phase_ == Phase::kStopping) NotifyServers();
}

void Supervisor::NotifyServers() {
  if (servers_told_ || WorkersRunning()) return;
  servers_told_ = true;
  for (const Member* member : Running()) member->child->Signal(stop_signal_);
}

void Supervisor::OnEnd(Member& member) {
  if (phase_ == Phase::kStopping || phase_ == Phase::kKilling) return;  // expected
  const Child& child = *member.child;
  if (!child.end()->clean()) {
    if (phase_ == Phase::kRunning && PlanRestart(member)) return;
    if (member.task->may_leave && Left(*child.end())) {
      Log(absl::StrCat(child.name(), " ", Describe(*child.end()), ": it has left the job"));
      return;
    }
    if (done_ && CodeOf(*child.end()) == kRetryable) {
      Log(absl::StrCat(child.name(), " ", Describe(*child.end()), " after ",
                       has_chief_ ? "the chief's" : "the last worker's", " end: nothing is lost"));
      return;
    }
    if (member.role() == Role::kChief && !early_server_.empty() && child.end()->signal == SIGKILL) {
      EndWithoutChief(absl::StrCat(child.name(), " ", Describe(*child.end())));
      return;
    }
    const std::string before = !has_chief_ || early_server_.empty()
                                   ? ""
                                   : absl::StrCat(early_server_, " ended before the workers, then ");
    const std::string fruitless =
        member.fruitless > options_.max_fruitless_restarts
            ? absl::StrCat(", the ", member.fruitless + 1, "th time in a row without a step of the job")
            : "";
    Fail(CodeOf(*child.end()), absl::StrCat(before, child.name(), " ", Describe(*child.end()), fruitless));
  } else if (EndsJob(member)) {
    done_ = true;
    EnterEnding();
  } else if (member.role() == Role::kServer && WorkersRunning()) {
    // At the regular end, a server may exit before the worker that stopped it.
    if (early_server_.empty()) early_server_ = child.name();
    OnEarlyServer();
  }
}

void Supervisor::OnEarlyServer() {
  if (!has_chief_) {
    for (const Member& other : members_) {
      if (other.role() != Role::kWorker || !other.restart_at.has_value()) continue;
      Fail(kRetryable, absl::StrCat(early_server_, " ended before ", other.child->name(), " was restarted"));
      return;
    }
  }
  EnterEnding();
}

bool Supervisor::EndsJob(const Member& member) const {
  if (has_chief_ || member.role() == Role::kServer) return member.role() == Role::kChief;
  // Several workers may have ended, of which this is the first to be examined.
  return std::all_of(members_.begin(), members_.end(), [](const Member& each) {
    return each.role() == Role::kServer || (each.child->end().has_value() && each.child->end()->clean());
  });
}

void Supervisor::OnDeadline() {
  if (!deadline_.has_value() || SteadyClock().Now() < *deadline_) return;
  std::vector<const Child*> late;
  for (const Member* member : Running()) late.push_back(member->child.get());
  if (late.empty()) return;
  if (phase_ == Phase::kEnding) {
    const std::string since = !has_chief_             ? "the last worker's end"
                              : early_server_.empty() ? "the chief's end"
                                                      : absl::StrCat("the end of ", early_server_);
    const std::string text =
        absl::StrCat(Names(late), " still ran ", Seconds(options_.end_limit), " after ", since);
    // Whether a restarted chief still runs. A chief that failed just after it had stopped the servers finds
    // no server when it is restarted.
    const bool lost_chief = std::any_of(members_.begin(), members_.end(), [](const Member& member) {
      return member.role() == Role::kChief && member.restarts > 0 && member.child->running();
    });
    // Whether every task that still runs waits in vain for the job that has ended: a worker that was paused
    // until no task was left to notify it, or a server that failed after it had been stopped and was then
    // restarted.
    const bool only_untold = std::all_of(members_.begin(), members_.end(), [](const Member& member) {
      return !member.child->running() || member.role() != Role::kServer || member.restarts > 0;
    });
    if (!has_chief_) {
      Log(absl::StrCat(text, ": stopping ", late.size() == 1 ? "it" : "them"));
      Stop(SIGTERM);
    } else if (lost_chief && !early_server_.empty()) {
      EndWithoutChief(text);
    } else if (done_ && only_untold) {
      exit_code_ = 0;
      Log(absl::StrCat(text, ": the result is complete, nothing is lost"));
      Stop(SIGTERM);
    } else {
      Fail(kFailure, text);
    }
  } else if (phase_ == Phase::kStopping) {
    Log(absl::StrCat(Names(late), " did not stop within ", Seconds(options_.grace), ": killing"));
    KillAll();
  }
}

void Supervisor::EnterEnding() {
  if (phase_ != Phase::kRunning && phase_ != Phase::kEnding) return;
  phase_ = Phase::kEnding;
  for (Member& member : members_) member.restart_at.reset();
  if ((has_chief_ || done_) && !deadline_.has_value()) deadline_ = SteadyClock().Now() + options_.end_limit;
}

void Supervisor::Fail(int code, const std::string& text) {
  exit_code_ = code;
  Log(Running().empty() ? text : absl::StrCat(text, "; stopping the rest"));
  Stop(SIGTERM);
}

void Supervisor::EndWithoutChief(const std::string& text) {
  exit_code_ = 0;
  Log(absl::StrCat(text, ", and had stopped ", early_server_, ": the result is complete, nothing is lost"));
  Stop(SIGTERM);
}

void Supervisor::Stop(int signal) {
  phase_ = Phase::kStopping;
  for (Member& member : members_) member.restart_at.reset();
  deadline_ = SteadyClock().Now() + options_.grace;
  stop_signal_ = signal;
  for (const Member* member : Running()) {
    if (member->role() != Role::kServer) member->child->Signal(signal);
  }
  NotifyServers();
}

void Supervisor::KillAll() {
  phase_ = Phase::kKilling;
  deadline_.reset();  // no process can ignore SIGKILL
  for (const Member* member : Running()) member->child->Signal(SIGKILL);
}

std::vector<const Supervisor::Member*> Supervisor::Running() const {
  std::vector<const Member*> running;
  for (const Member& member : members_) {
    if (member.child->running()) running.push_back(&member);
  }
  return running;
}

bool Supervisor::WorkersRunning() const {
  return std::any_of(members_.begin(), members_.end(), [](const Member& member) {
    return member.role() != Role::kServer && (member.child->running() || member.restart_at.has_value());
  });
}

void Supervisor::Log(const std::string& text) {
  Relay(options_.json ? JsonLogLine(options_.program, LogLevel::kWarning, text)
                      : absl::StrCat(options_.program, ": ", text, "\n"));
}

void Supervisor::Show(Member& member, bool finish) {
  const auto take = [&](Child::Stream stream) {
    return finish ? member.child->FinishOutput(stream) : member.child->ReadOutput(stream);
  };
  const std::string out = take(Child::kStdout), err = take(Child::kStderr);
  WriteAll(options_.out_fd, out);
  Relay(member.task->child.foreign ? err : faults_.Pass(err));
}

void Supervisor::Relay(const std::string& lines) {
  if (!lines.empty()) WriteAll(options_.log_fd, absl::StrCat(options_.clears_line ? "\r\x1b[K" : "", lines));
}

}  // namespace cairn::cli
