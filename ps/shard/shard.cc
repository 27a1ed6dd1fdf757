#include "ps/shard/shard.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/wire/update_chunk.h"

namespace cairn::ps {
namespace {

constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

absl::Span<const optim::Norms> NormsOf(const optim::Optimizer* optimizer) {
  return optimizer == nullptr ? absl::Span<const optim::Norms>() : optimizer->norms();
}

}  // namespace

Shard::Shard(Options options)
    : faults_(options.faults),
      metrics_(options.metrics),
      trace_(options.trace),
      server_(options.server),
      leader_(options.leader),
      optimizer_(std::move(options.optimizer)),
      staleness_aware_learning_rate_(options.staleness_aware_learning_rate),
      final_version_(options.final_version > 0 ? options.final_version : kNoEnd),
      store_(std::move(options.slices), optimizer_.get(), options.initial_version, options.memory_limit,
             options.thread_pool),
      entries_(NormsOf(optimizer_.get()), options.initial_version, options.most_workers) {
  if (options.learning_rate.has_value()) store_.SetLearningRate(*options.learning_rate);
  if (trace_ != nullptr) trace_->AtStep(options.initial_version + 1);
  if (options.speculative_updates && store_.size() >= net::kMinSpeculativeUpdate) {
    speculative_ = std::make_unique<SpeculativeUpdate>(store_, options.thread_pool, trace_);
  }
}

absl::Status OpenPush::AddChunk(const v1::Chunk& chunk, net::Payload payload) {
  if (discard_) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(accumulator_.Add(chunk, payload));
  if (speculative_ != nullptr) {
    const auto [begin, end] = accumulator_.last();
    speculative_->Arrived(request_.gradient.key, accumulator_.elements(), begin, end);
  }
  return absl::OkStatus();
}

absl::Span<float> OpenPush::DestinationFor(const v1::Chunk& chunk, int64_t count) {
  return discard_ ? absl::Span<float>() : accumulator_.DestinationFor(chunk, count);
}

std::unique_ptr<OpenPush> Shard::BeginPush(const PushRequest& request) {
  Pass("push");
  bool seen;
  {
    MutexLock lock(mutex_);
    seen = ledger_.Admit(request.gradient.key).admission != Ledger::Admission::kNew;
  }
  const bool speculative = speculative_ != nullptr && !seen &&
                           speculative_->Begin(request.gradient, request.send_values, request.allow);
  const bool discard = seen || request.gradient.examples == 0;
  return std::make_unique<OpenPush>(request, store_.pool(), discard,
                                    speculative ? speculative_.get() : nullptr);
}

void Shard::FinishPush(std::unique_ptr<OpenPush> push, PushReply reply) {
  const PushRequest& request = push->request_;
  const PushKey& key = request.gradient.key;
  if (!push->discard_ && !push->accumulator_.complete()) {
    reply(absl::InvalidArgumentError(absl::StrCat(Describe(key), ": ", push->accumulator_.received(), " of ",
                                                  store_.size(), " elements received")));
    return;
  }

  bool staged = false, was_missing = false;
  absl::StatusOr<PushResult> answer = PushResult{};
  {
    MutexLock lock(mutex_);
    const Ledger::Verdict verdict = ledger_.Admit(key);
    if (!failure_.ok()) {
      answer = failure_;
    } else if (verdict.admission == Ledger::Admission::kNew && staged_.size() >= kMaxStaged) {
      answer = absl::ResourceExhaustedError(absl::StrCat(
          Describe(key), ": ", staged_.size(), " pushes wait for their decision, at most ", kMaxStaged));
    } else if (verdict.admission == Ledger::Admission::kNew) {
      ledger_.Stage(key);
      Staged& entry = staged_[key];
      entry.gradient = request.gradient;
      entry.data = push->accumulator_.Take();
      entry.came = std::chrono::steady_clock::now();
      const bool speculative =
          std::exchange(push->speculative_, nullptr) != nullptr && request.send_values != nullptr;
      entry.waiting.push_back({request.read_values, /*duplicate=*/false, std::move(reply), speculative});
      staged = true;
      was_missing = std::erase(missing_, key) > 0 && missing_.empty();
    } else if (const auto under_way = staged_.find(key);
               verdict.admission == Ledger::Admission::kUnderWay && under_way != staged_.end()) {
      ++duplicates_;
      if (under_way->second.waiting.size() <= kMaxRepeats) {
        under_way->second.waiting.push_back({request.read_values, /*duplicate=*/true, std::move(reply)});
        return;
      }
      answer =
          absl::ResourceExhaustedError(absl::StrCat(Describe(key), ": ", kMaxRepeats, " repeats of it wait"));
    } else if (verdict.admission == Ledger::Admission::kDecided) {
      ++duplicates_;
      const bool same = verdict.ruling.step == key.step;
      answer->outcome = same ? verdict.ruling.outcome : v1::OUTCOME_REJECTED;
      answer->version = verdict.ruling.version;
      answer->staleness = verdict.ruling.staleness;
      answer->duplicate = true;
      answer->finished = finished(verdict.ruling.version);
    } else {
      // The push is from an earlier incarnation, or a later step has been staged.
      ++rejected_;
      answer->outcome = v1::OUTCOME_REJECTED;
      answer->version = store_.current().version;
    }
  }
  if (staged) {
    port_.load()->ReportStaged(request.gradient);
    if (was_missing) ExecuteQueue();
  } else {
    AnswerWhenReplicated<PushResult>(std::move(reply), std::move(answer));
  }
}

void Shard::Read(const std::string& marker, ReadReply reply) {
  Pass("read");
  absl::StatusOr<ReadResult> answer = ReadResult{};
  {
    MutexLock lock(mutex_);
    if (!failure_.ok()) {
      answer = failure_;
    } else if (marker.empty()) {
      MakeRoom();
      if (absl::Status room = store_.CheckRoomForReader(); !room.ok()) {
        answer = std::move(room);
      } else {
        answer->values = store_.current();
        answer->finished = finished(answer->values.version);
      }
    } else {
      auto found = markers_.Read(marker, reply);
      if (!found.has_value()) return;
      answer = *std::move(found);
    }
  }
  AnswerWhenReplicated<ReadResult>(std::move(reply), std::move(answer));
}

void Shard::Write(std::unique_ptr<Accumulator> data, WriteReply done) {
  WriteBetween(std::move(data), /*state=*/false, std::move(done));
}

void Shard::WriteState(std::unique_ptr<Accumulator> state, WriteReply done) {
  WriteBetween(std::move(state), /*state=*/true, std::move(done));
}

void Shard::WriteBetween(std::unique_ptr<Accumulator> data, bool state, WriteReply done) {
  PendingTask task = [this, data = std::move(data), state, done = std::move(done)](Replies& replies) mutable {
    std::vector<optim::VariableStore::Run> runs;
    for (const auto& [begin, end] : data->runs()) runs.push_back({begin, end});
    if (const auto values = data->Take().buffer(); values != nullptr) {
      if (state) {
        store_.WriteState(*values);
      } else {
        store_.Write(*values, runs);
      }
    }
    const optim::Values written = store_.current();
    if (Replicator* const replicator = replicator_; replicator != nullptr) {
      ReplicationItem item;
      item.body.set_written(written.version);
      item.floats = {written.data};
      replicator->Send(Replicator::Component::kShard, std::move(item));
    }
    replies.push_back([done = std::move(done), version = written.version](const absl::Status& lost) mutable {
      done(lost.ok() ? absl::StatusOr<int64_t>(version) : lost);
    });
  };
  {
    MutexLock lock(mutex_);
    queue_.push_back(std::move(task));
  }
  ExecuteQueue();
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
  for (const auto& [id, staged] : staged_) {
    if (!staged.applied_staleness.has_value()) gradients.push_back(staged.gradient);
  }
  return gradients;
}

std::optional<Sums> Shard::UnansweredSums() const {
  MutexLock lock(mutex_);
  return unanswered_;
}

void Shard::Fail(absl::Status failure) {
  Replies replies;
  {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = failure;
    for (auto& [id, staged] : staged_) {
      for (Staged::Waiting& waiting : staged.waiting) {
        replies.push_back(
            [reply = std::move(waiting.reply), failure](const absl::Status&) mutable { reply(failure); });
      }
    }
    staged_.clear();
    for (ReadReply& reader : markers_.Clear()) {
      replies.push_back(
          [reply = std::move(reader), failure](const absl::Status&) mutable { reply(failure); });
    }
  }
  for (Reply& reply : replies) reply(absl::OkStatus());  // failures need not wait for the backup
}

absl::Status Shard::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

std::vector<std::string> Shard::slot_names() const {
  if (optimizer_ == nullptr) return {};
  const auto names = optimizer_->slot_names();
  return {names.begin(), names.end()};
}

Shard::Load Shard::load() const {
  MutexLock lock(mutex_);
  Load load = {.staged = 0, .queued = static_cast<int64_t>(queue_.size())};
  for (const auto& [id, staged] : staged_) {
    if (staged.applied_staleness.has_value()) continue;  // decided; only its answer waits
    ++load.staged;
    load.staged_since = std::min(load.staged_since.value_or(staged.came), staged.came);
  }
  return load;
}

int64_t Shard::duplicates() const {
  MutexLock lock(mutex_);
  return duplicates_;
}

int64_t Shard::rejected() const {
  MutexLock lock(mutex_);
  return rejected_;
}

}  // namespace cairn::ps
