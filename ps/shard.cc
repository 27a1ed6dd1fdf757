#include "ps/shard.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::ps {
namespace {

// Marks whose values are kept for readers that are still on their way. Each may hold a version of all values.
constexpr size_t kKeptMarks = 64;
constexpr size_t kMostAwaitedMarks = 1024;
// Marks that are remembered without their values, to refuse a reader that comes too late.
constexpr size_t kRememberedMarks = 4096;

std::string Describe(const PushKey& key) {
  return absl::StrCat("push of worker ", key.worker, " (incarnation ", key.incarnation, "), step ", key.step);
}

}  // namespace

v1::Outcome OutcomeOf(Refuse::Reason reason) {
  switch (reason) {
    case Refuse::Reason::kStale:
      return v1::OUTCOME_STALE;
    case Refuse::Reason::kFinished:
      return v1::OUTCOME_FINISHED;
    case Refuse::Reason::kAhead:
    case Refuse::Reason::kNotAMember:
    case Refuse::Reason::kOldIncarnation:
    case Refuse::Reason::kSecondInRound:
      return v1::OUTCOME_REJECTED;
  }
  return v1::OUTCOME_REJECTED;
}

Shard::Shard(Options options)
    : optimizer_(std::move(options.optimizer)),
      final_version_(options.final_version),
      store_(std::move(options.slices), optimizer_.get()) {}

std::unique_ptr<OpenPush> Shard::BeginPush(const PushRequest& request) {
  MutexLock lock(mutex_);
  const bool seen = ledger_.Admit(request.gradient.key).admission != Ledger::Admission::kNew;
  return std::make_unique<OpenPush>(request, store_.pool(),
                                    /*discard=*/seen || request.gradient.examples == 0);
}

void Shard::FinishPush(std::unique_ptr<OpenPush> push, PushReply reply) {
  const PushRequest& request = push->request_;
  const PushKey& key = request.gradient.key;
  if (!push->discard_ && !push->accumulator_.complete()) {
    reply(absl::InvalidArgumentError(absl::StrCat(Describe(key), ": ", push->accumulator_.received(), " of ",
                                                  store_.size(), " elements came")));
    return;
  }

  bool staged = false;
  absl::StatusOr<PushResult> answer = PushResult{};
  {
    MutexLock lock(mutex_);
    const Ledger::Verdict verdict = ledger_.Admit(key);
    if (!failure_.ok()) {
      answer = failure_;
    } else if (verdict.admission == Ledger::Admission::kNew) {
      ledger_.Stage(key);
      Staged& entry = staged_[key];
      entry.gradient = request.gradient;
      entry.data = push->accumulator_.Take();
      entry.waiting.push_back({request.read_values, /*duplicate=*/false, std::move(reply)});
      staged = true;
    } else if (const auto under_way = staged_.find(key);
               verdict.admission == Ledger::Admission::kUnderWay && under_way != staged_.end()) {
      ++duplicates_;
      under_way->second.waiting.push_back({request.read_values, /*duplicate=*/true, std::move(reply)});
      return;
    } else if (verdict.admission == Ledger::Admission::kDecided) {
      ++duplicates_;
      const bool same = verdict.ruling.step == key.step;
      answer->outcome = same ? verdict.ruling.outcome : v1::OUTCOME_REJECTED;
      answer->version = verdict.ruling.version;
      answer->staleness = verdict.ruling.staleness;
      answer->duplicate = true;
      answer->finished = finished(verdict.ruling.version);
    } else {  // from an old life, or a step overtaken by a later one that is under way
      answer->outcome = v1::OUTCOME_REJECTED;
      answer->version = store_.current().version;
    }
  }
  if (staged) {
    port_->ReportStaged(request.gradient);
  } else {
    reply(std::move(answer));
  }
}

void Shard::Read(const std::string& mark, ReadReply reply) {
  absl::StatusOr<ReadResult> answer = ReadResult{};
  {
    MutexLock lock(mutex_);
    if (!failure_.ok()) {
      answer = failure_;
    } else if (mark.empty()) {
      answer->values = store_.current();
    } else {
      const auto kept =
          std::find_if(marks_.begin(), marks_.end(), [&](const auto& entry) { return entry.first == mark; });
      if (kept == marks_.end()) {
        if (awaiting_mark_.size() < kMostAwaitedMarks) {
          awaiting_mark_[mark].push_back(std::move(reply));
          return;
        }
        answer = absl::ResourceExhaustedError("too many reads wait for a mark");
      } else {
        if (kept->second.data == nullptr) {
          answer = absl::AbortedError(absl::StrCat("the values at mark ", mark, " are not kept any more"));
        } else {
          answer->values = std::move(kept->second);
        }
        marks_.erase(kept);
      }
    }
  }
  if (answer.ok()) answer->finished = finished(answer->values.version);
  reply(std::move(answer));
}

void Shard::Write(std::unique_ptr<Accumulator> data, WriteReply done) {
  {
    MutexLock lock(mutex_);
    queue_.push_back(PendingWrite{std::move(data), std::move(done)});
  }
  ExecuteQueue();
}

void Shard::Append(const LogEntry& entry) {
  MutexLock lock(mutex_);
  CAIRN_CHECK(entry.index == next_index_);
  ++next_index_;
  queue_.push_back(entry);
}

void Shard::Flush() {
  ExecuteQueue();
}

int64_t Shard::next_index() const {
  MutexLock lock(mutex_);
  return next_index_;
}

std::vector<Gradient> Shard::StagedGradients() const {
  MutexLock lock(mutex_);
  std::vector<Gradient> gradients;
  for (const auto& [id, staged] : staged_) gradients.push_back(staged.gradient);
  return gradients;
}

void Shard::ExecuteQueue() {
  {
    MutexLock lock(mutex_);
    if (executing_) return;  // the thread at work will see what was queued
    executing_ = true;
  }
  int64_t executed = 0;
  for (;;) {
    std::variant<LogEntry, PendingWrite> next;
    {
      MutexLock lock(mutex_);
      if (queue_.empty()) {
        executing_ = false;
        break;
      }
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    Replies replies;
    if (auto* write = std::get_if<PendingWrite>(&next)) {
      std::vector<VariableStore::Run> runs;
      for (const auto& [begin, end] : write->data->runs()) runs.push_back({begin, end});
      if (const auto data = write->data->Take(); data != nullptr) store_.Write(*data, runs);
      replies.push_back(
          [done = std::move(write->done), version = store_.current().version]() mutable { done(version); });
    } else {
      const LogEntry& entry = std::get<LogEntry>(next);
      if (const auto* apply = std::get_if<Apply>(&entry.what)) ExecuteApply(*apply, replies);
      if (const auto* refuse = std::get_if<Refuse>(&entry.what)) ExecuteRefuse(*refuse, replies);
      if (const auto* mark = std::get_if<Mark>(&entry.what)) ExecuteMark(*mark, replies);
      executed = entry.index;
    }
    for (auto& reply : replies) reply();
  }
  if (executed > 0) port_->ReportExecuted(executed);
}

void Shard::ExecuteApply(const Apply& apply, Replies& replies) {
  std::vector<WeightedGradient> gradients;
  std::vector<std::shared_ptr<const AlignedBuffer>> held;
  absl::Status status;
  {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return;
    for (const Gradient& gradient : apply.contributors) {
      const auto found = staged_.find(gradient.key);
      if (found == staged_.end()) {
        status =
            absl::InternalError(absl::StrCat("version ", apply.version, " needs the ", Describe(gradient.key),
                                             ", which this server does "
                                             "not hold"));
        break;
      }
      held.push_back(found->second.data);
      gradients.push_back({held.back() == nullptr ? nullptr : held.back()->data(), gradient.examples});
    }
  }
  if (status.ok()) status = store_.ApplyMean(gradients, /*last=*/finished(apply.version));
  if (!status.ok()) {
    Fail(std::move(status));
    return;
  }
  const Values values = store_.current();
  MutexLock lock(mutex_);
  for (const Gradient& gradient : apply.contributors) {
    Settle(gradient.key, v1::OUTCOME_ACCEPTED, apply.version - 1 - gradient.base_version, values, replies);
  }
}

void Shard::ExecuteRefuse(const Refuse& refuse, Replies& replies) {
  const Values values = store_.current();
  MutexLock lock(mutex_);
  Settle(refuse.key, OutcomeOf(refuse.reason), refuse.staleness, values, replies);
}

void Shard::ExecuteMark(const Mark& mark, Replies& replies) {
  const Values values = store_.current();
  MutexLock lock(mutex_);
  const auto waiting = awaiting_mark_.find(mark.token);
  if (waiting == awaiting_mark_.end()) {
    marks_.emplace_back(mark.token, values);
    if (marks_.size() > kKeptMarks) marks_[marks_.size() - 1 - kKeptMarks].second.data.reset();
    if (marks_.size() > kRememberedMarks) marks_.pop_front();
    return;
  }
  for (ReadReply& reply : waiting->second) {
    replies.push_back(
        [reply = std::move(reply), result = ReadResult{values, finished(values.version)}]() mutable {
          reply(std::move(result));
        });
  }
  awaiting_mark_.erase(waiting);
}

void Shard::Settle(const PushKey& key, v1::Outcome outcome, int64_t staleness, const Values& values,
                   Replies& replies) {
  ledger_.Decide(key, outcome, values.version, staleness);
  const auto found = staged_.find(key);
  if (found == staged_.end()) return;
  for (Staged::Waiting& waiting : found->second.waiting) {
    PushResult result = {.outcome = outcome,
                         .duplicate = waiting.duplicate,
                         .staleness = staleness,
                         .version = values.version,
                         .finished = finished(values.version),
                         .values = {}};
    if (waiting.read_values) result.values = values;
    replies.push_back([reply = std::move(waiting.reply), result = std::move(result)]() mutable {
      reply(std::move(result));
    });
  }
  staged_.erase(found);
}

void Shard::Fail(absl::Status failure) {
  Replies replies;
  {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = failure;
    for (auto& [id, staged] : staged_) {
      for (Staged::Waiting& waiting : staged.waiting) {
        replies.push_back([reply = std::move(waiting.reply), failure]() mutable { reply(failure); });
      }
    }
    staged_.clear();
    for (auto& [token, readers] : awaiting_mark_) {
      for (ReadReply& reader : readers) {
        replies.push_back([reply = std::move(reader), failure]() mutable { reply(failure); });
      }
    }
    awaiting_mark_.clear();
    marks_.clear();
  }
  for (auto& reply : replies) reply();
}

absl::Status Shard::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

int64_t Shard::duplicates() const {
  MutexLock lock(mutex_);
  return duplicates_;
}

}  // namespace cairn::ps
