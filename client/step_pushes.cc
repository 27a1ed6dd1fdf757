#include "client/step_pushes.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/job_end.h"
#include "client/transport/request.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "common/net/data_channel/shared_memory/shared_buffer.h"
#include "common/net/grpc/backoff.h"
#include "common/net/grpc/unreachable.h"
#include "common/net/wire/codec.h"
#include "common/net/wire/wire_choice.h"

namespace cairn::client {
namespace {

constexpr auto kLogEvery = std::chrono::seconds(10);
// Gradients are sent when this many elements of a server have been announced (256 KiB). Each send wakes
// threads on both sides, which takes the core from the computation: with 64 KiB, a cluster training small
// networks was a tenth slower.
constexpr int64_t kSendElements = int64_t{64} << 10;

TimePoint Now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

// Called by the server's stream, which ends before the step whose values it receives.
class StepPushes::AnswerSink final : public ChunkSink {
 public:
  AnswerSink(StepPushes& pushes, int server, FirstValuesAt first_values)
      : arrivals_(pushes.arrivals_),
        wire_(pushes.options_.wire),
        server_(server),
        values_(ReceiveInto(pushes.job_->layout.extents_on(server), pushes.step_.values)),
        first_values_(std::move(first_values)) {}

  absl::Status Add(const v1::Chunk& chunk, net::Payload payload) override {
    NoteFirst();
    const int64_t bytes = net::PayloadBytes(payload);
    const int64_t elements = net::CodecOf(chunk.encoding()) == nullptr ? bytes / 4 : chunk.count();
    if (wire_ != nullptr) {
      wire_->pull_bytes.Add(bytes);
      wire_->pull_float32_bytes.Add(elements * 4);
    }
    if (!arrivals_.Admit(server_, chunk.offset(), elements)) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(values_->Add(chunk, payload));
    arrivals_.Add(server_, chunk.offset(), elements);
    return absl::OkStatus();
  }
  absl::Span<float> DestinationFor(const v1::Chunk& chunk, int64_t count) override {
    NoteFirst();
    const absl::Span<float> place = values_->DestinationFor(chunk, count);
    if (place.empty() || !arrivals_.Admit(server_, chunk.offset(), count)) return {};
    return place;
  }

 private:
  void NoteFirst() const {
    if (first_values_ != nullptr && *first_values_ == 0) *first_values_ = TraceNanos(Now());
  }

  Arrivals& arrivals_;
  WireMetrics* const wire_;  // may be null
  const int server_;
  const std::unique_ptr<ChunkSink> values_;
  const FirstValuesAt first_values_;
};

StepPushes::StepPushes(Connection& connection, Options options)
    : connection_(connection),
      options_(std::move(options)),
      pushes_(static_cast<size_t>(connection_.num_servers())) {}

absl::Status StepPushes::Learn(const LearntJob& job, const std::vector<net::VariableInfo>& variables) {
  CAIRN_RETURN_IF_ERROR(net::CheckEncoding(job.job.wire()));
  CAIRN_RETURN_IF_ERROR(net::CheckGradientWire(job.job, variables));
  job_ = &job;
  variables_ = &variables;
  encodings_ = net::GradientEncodings(job.job, variables);
  bool in_16_bits = false, compresses = false;
  for (const v1::Encoding encoding : encodings_) {
    in_16_bits |= net::CodecOf(encoding) != nullptr;
    compresses |= net::GradientCodecOf(encoding) != nullptr;
  }
  encoded_.clear();
  for (int server = 0; server < connection_.num_servers(); ++server) {
    encoded_.emplace_back(in_16_bits ? job.layout.arena_size(server) : 0);
  }
  MutexLock lock(mutex_);
  compressed_.reset();
  if (compresses) {
    compressed_ = std::make_unique<CompressedGradients>(job.layout, variables, encodings_,
                                                        job.job.topk_fraction(), options_.wire);
  }
  for (v1::Encoding& encoding : encodings_) {
    if (net::GradientCodecOf(encoding) != nullptr) encoding = v1::ENCODING_FLOAT32;
  }
  return absl::OkStatus();
}

void StepPushes::Begin(const Step& step) {
  CAIRN_CHECK(static_cast<int64_t>(step.gradients.size()) == static_cast<int64_t>(step.values.size()));
  step_ = step;
  unanswered_ = true;
  base_versions_.assign(step.base_versions.begin(), step.base_versions.end());
  step_.base_versions = base_versions_;
  traced_ = Wants(options_.trace);
  std::vector<std::unique_ptr<ServerSession>> broken;  // destroyed outside the lock
  MutexLock lock(mutex_);
  ++attempt_;
  arrivals_.Begin(job_->layout);
  if (compressed_ != nullptr) compressed_->BeginStep();
  for (int server = 0; server < connection_.num_servers(); ++server) {
    Push& push = pushes_[static_cast<size_t>(server)];
    if (push.session == nullptr || !push.session->status().ok() || push.moves != connection_.moves(server)) {
      broken.push_back(std::move(push.session));
      push.moves = connection_.moves(server);
      push.session = std::make_unique<ServerSession>(connection_.stub(server));
    }
    push.began = push.sent = push.bytes = 0;
    Start(server);
  }
}

void StepPushes::Start(int server) {
  Push& push = pushes_[static_cast<size_t>(server)];
  push.done.reset();
  push.announced.clear();
  push.compressed_sent = 0;
  push.announced_elements = 0;
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
  begin.set_values_encoding(job_->job.wire());
  FirstValuesAt first_values;
  if (traced_) first_values = std::make_shared<int64_t>(0);
  const auto id =
      push.session->Begin(std::move(header), std::make_unique<AnswerSink>(*this, server, first_values),
                          OnDone(server, attempt_, first_values));
  if (id.ok()) {
    push.request_id = *id;
  } else {
    Answered(server, id.status());
  }
}

void StepPushes::Answered(int server, absl::StatusOr<v1::Done> result) {
  const bool failed = !result.ok();
  pushes_[static_cast<size_t>(server)].done = std::move(result);
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
  ServerSession* const session = pushes_[static_cast<size_t>(server)].session.get();
  const uint64_t roused = roused_;
  const auto enough = [this, server, roused] {
    MutexLock lock(mutex_);
    return pushes_[static_cast<size_t>(server)].done.has_value() || roused_ != roused;
  };
  mutex_.Unlock();
  const bool received = session->ReceiveUntil(enough, deadline);
  mutex_.Lock();
  if (!received && !pushes_[static_cast<size_t>(server)].done.has_value() && roused_ == roused) {
    changed_.WaitUntil(mutex_, deadline);
  }
}

ServerSession::OnDone StepPushes::OnDone(int server, uint64_t attempt, FirstValuesAt first_values) {
  return [this, server, attempt, first_values](absl::StatusOr<v1::Done> result) {
    MutexLock lock(mutex_);
    if (attempt != attempt_ || pushes_.empty()) return;
    if (result.ok() && first_values != nullptr) TraceAnswer(server, *first_values);
    Answered(server, std::move(result));
  };
}

void StepPushes::Announce(int variable) {
  if (step_.examples == 0) return;
  MutexLock lock(mutex_);
  if (compressed_ != nullptr && compressed_->Compress(variable, step_.gradients)) {
    for (const net::Extent& extent : job_->layout.extents_of(variable)) {
      Push& push = pushes_[static_cast<size_t>(extent.server)];
      const auto& ready = compressed_->ready(extent.server);
      int64_t floats = 0;
      for (size_t i = push.compressed_sent; i < ready.size(); ++i)
        floats += static_cast<int64_t>(ready[i].payload.size());
      if (push.announced_elements + floats >= kSendElements) SendAnnounced(extent.server);
    }
    return;
  }
  for (const net::Extent& extent : job_->layout.extents_of(variable)) {
    Announce(extent, encodings_[static_cast<size_t>(variable)]);
    if (pushes_[static_cast<size_t>(extent.server)].announced_elements >= kSendElements)
      SendAnnounced(extent.server);
  }
}

void StepPushes::Announce(const net::Extent& extent, v1::Encoding encoding) {
  Push& push = pushes_[static_cast<size_t>(extent.server)];
  push.announced[encoding].push_back(extent);
  push.announced_elements += extent.count;
}

void StepPushes::SendAnnounced(int server) {
  Push& push = pushes_[static_cast<size_t>(server)];
  int64_t bytes = 0, elements = push.announced_elements;
  if (compressed_ != nullptr) {
    const auto& ready = compressed_->ready(server);
    for (; push.compressed_sent < ready.size(); ++push.compressed_sent) {
      if (traced_ && push.began == 0) push.began = TraceNanos(Now());
      const CompressedGradients::Ready& next = ready[push.compressed_sent];
      push.session->SendChunk(push.request_id, next.chunk, {&next.payload, 1});
      bytes += static_cast<int64_t>(next.payload.size()) * 4;
      elements += next.chunk.count();
    }
  }
  if (traced_ && push.began == 0 && push.announced_elements > 0) push.began = TraceNanos(Now());
  for (auto& [encoding, extents] : push.announced) {
    for (const net::Extent& extent : extents)
      bytes += extent.count * (encoding == v1::ENCODING_FLOAT32 ? 4 : 2);
    std::sort(extents.begin(), extents.end(),
              [](const net::Extent& a, const net::Extent& b) { return a.server_offset < b.server_offset; });
    SendExtents(*push.session, push.request_id, extents, step_.gradients,
                {.encoding = encoding, .room = encoded_[static_cast<size_t>(server)].span()});
    extents.clear();
  }
  push.announced_elements = 0;
  push.bytes += bytes;
  if (options_.wire == nullptr) return;
  options_.wire->push_bytes.Add(bytes);
  options_.wire->push_float32_bytes.Add(elements * 4);
}

void StepPushes::End() {
  deadline_ = Now() + options_.step_timeout;
  moves_at_end_ = connection_.moves();
  MutexLock lock(mutex_);
  for (int server = 0; server < connection_.num_servers(); ++server) {
    SendAnnounced(server);
    Push& push = pushes_[static_cast<size_t>(server)];
    if (traced_) TracePush(server);  // before the server can have received everything
    push.session->SendEnd(push.request_id);
  }
}

StepPushes::Unanswered StepPushes::FindUnanswered() const {
  Unanswered unanswered;
  for (int server = 0; server < connection_.num_servers(); ++server) {
    const auto& done = pushes_[static_cast<size_t>(server)].done;
    const bool answered = done.has_value() && done->ok();
    if (!answered && pushes_[static_cast<size_t>(server)].moves != connection_.moves(server)) {
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

// Waits for all servers at once: a synchronous round closes when the push is on all of them, so the answer of
// one may depend on the repeated push to another.
absl::StatusOr<std::vector<v1::Done>> StepPushes::Await() {
  net::Backoff backoff(StreamOf(options_.task));
  TimePoint next_said = Now() + kLogEvery;
  TimePoint next_complaint = Now();
  absl::Status down;  // the error of a server that could not be reached to repeat its push
  for (;;) {
    Unanswered unanswered;
    {
      MutexLock lock(mutex_);
      while (unanswered = FindUnanswered(), unanswered.failed.empty() && !unanswered.waiting.empty()) {
        CAIRN_RETURN_IF_ERROR(options_.failure());
        const auto waits_for = [&] {
          const std::string round = options_.waiting_for();
          return absl::StrCat(connection_.NameOf(unanswered.waiting[0]),
                              round.empty() ? "" : "; the round waits for ", round);
        };
        const TimePoint now = Now();
        if (now >= deadline_)
          return absl::DeadlineExceededError(absl::StrCat("no answer from ", waits_for()));
        if (now >= next_said) {
          next_said += kLogEvery;
          connection_.Report(absl::StrCat("step ", step_.number, " waits for ", waits_for()));
        }
        AwaitChange(unanswered.waiting[0], std::min(deadline_, next_said));
      }
      if (unanswered.failed.empty()) {
        std::vector<v1::Done> answers;
        for (const Push& push : pushes_) answers.push_back(**push.done);
        unanswered_ = false;
        return answers;
      }
    }
    if (Now() >= deadline_) return down.ok() ? unanswered.failure : down;
    // The failure may concern a single server, while another server already serves its shard.
    if (!IsWorthRepeating(unanswered.failure)) {
      const int moves = connection_.moves();
      for (int server : unanswered.failed) {
        if (connection_.replicated()) (void)connection_.Describe(server);
      }
      if (connection_.moves() == moves) return unanswered.failure;
    }
    if (Now() >= next_complaint) {
      next_complaint = Now() + kLogEvery;
      const std::string why =
          down.ok() ? absl::StrCat(unanswered.failure.message())
                    : absl::StrCat(down.message(), " (",
                                   HowLong(deadline_ - options_.step_timeout, options_.step_timeout), ")");
      connection_.Report(absl::StrCat("step ", step_.number, ": ", why, "; the push will be sent again"));
    }
    std::this_thread::sleep_for(backoff.Next());
    CAIRN_RETURN_IF_ERROR(options_.failure());
    down = absl::OkStatus();
    for (int server : unanswered.failed) {
      const absl::Status status = Repeat(server);
      if (!status.ok() && !IsTransient(status)) return status;
      if (!status.ok()) {
        down = absl::UnavailableError(absl::StrCat(connection_.NameOf(server),
                                                   " is down or unreachable: ", net::WhyUnreachable(status)));
      }
    }
  }
}

absl::Status StepPushes::Repeat(int server) {
  // A server that was restarted has lost its state: there is nothing to repeat.
  CAIRN_ASSIGN_OR_RETURN(const v1::ConnectResponse described, connection_.Describe(server));
  CAIRN_RETURN_IF_ERROR(CheckGoesOn(described));
  const int moves = connection_.moves(server);
  std::unique_ptr<ServerSession> old;
  {
    MutexLock lock(mutex_);
    old = std::move(pushes_[static_cast<size_t>(server)].session);
  }
  // Closing the old session delivers its last callbacks for this push before the push starts again.
  old.reset();
  auto session = std::make_unique<ServerSession>(connection_.stub(server));
  MutexLock lock(mutex_);
  Push& push = pushes_[static_cast<size_t>(server)];
  push.moves = moves;
  push.session = std::move(session);
  Start(server);
  if (step_.examples > 0) {
    for (size_t variable = 0; variable < variables_->size(); ++variable) {
      if (compressed_ != nullptr && compressed_->compressed(static_cast<int>(variable))) continue;
      for (const net::Extent& extent : job_->layout.extents_of(static_cast<int>(variable))) {
        if (extent.server == server) Announce(extent, encodings_[variable]);
      }
    }
    SendAnnounced(server);
  }
  push.session->SendEnd(push.request_id);
  return absl::OkStatus();
}

bool StepPushes::AwaitValues(int variable) {
  // Longer waits are left to Await(), which logs them and repeats pushes.
  const TimePoint deadline = Now() + kLogEvery;
  const auto failure = [this] {
    if (connection_.moves() != moves_at_end_) return absl::UnavailableError("a shard has moved");
    return options_.failure();
  };
  return arrivals_.Await(variable, deadline, failure, [&](int server, absl::FunctionRef<bool()> enough) {
    ServerSession* session;
    {
      MutexLock lock(mutex_);
      session = pushes_[static_cast<size_t>(server)].session.get();
    }
    session->ReceiveUntil(enough, deadline);
  });
}

void StepPushes::Settle(absl::Span<const v1::Done> answers) {
  MutexLock lock(mutex_);
  if (compressed_ == nullptr) return;
  std::vector<bool> counted;
  for (const v1::Done& done : answers) counted.push_back(done.outcome() == v1::OUTCOME_ACCEPTED);
  compressed_->EndStep(counted);
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

void StepPushes::TracePush(int server) {
  Push& push = pushes_[static_cast<size_t>(server)];
  push.sent = TraceNanos(Now());
  if (push.began == 0) push.began = push.sent;  // a push without examples
  options_.trace->Record({.lane = TraceLane::kPush,
                          .index = server,
                          .name = "push",
                          .begin = push.began,
                          .end = push.sent,
                          .step = options_.trace->step(),
                          .bytes = push.bytes});
  options_.trace->Record({.kind = TraceEvent::Kind::kFlowOut,
                          .lane = TraceLane::kPush,
                          .index = server,
                          .begin = std::max(push.began, push.sent - 1),  // within the slice
                          .flow = {.worker = step_.worker,
                                   .server = server,
                                   .incarnation = step_.incarnation,
                                   .number = step_.number}});
}

void StepPushes::TraceAnswer(int server, int64_t first_values) const {
  const int64_t sent = pushes_[static_cast<size_t>(server)].sent;
  const int64_t now = TraceNanos(Now());
  if (sent == 0) return;  // the server had seen the push before, and answered before all of it was sent
  const auto record = [&](TraceLane lane, const char* name, int64_t begin, int64_t end) {
    options_.trace->Record({.lane = lane,
                            .index = server,
                            .name = name,
                            .begin = begin,
                            .end = end,
                            .step = options_.trace->step()});
  };
  // The first values may arrive while gradients are still being sent.
  record(TraceLane::kWait, "wait", sent, first_values == 0 ? now : std::max(sent, first_values));
  if (first_values != 0) record(TraceLane::kPull, "pull", first_values, now);
}

}  // namespace cairn::client
