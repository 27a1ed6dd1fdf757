#include "worker/client/training_client.h"

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "common/net/backoff.h"
#include "common/net/codec.h"
#include "common/net/gradient/wire_choice.h"
#include "worker/client/data_position.h"
#include "worker/client/job_end.h"

namespace cairn::client {
namespace {

constexpr Timeout kCallTimeout = std::chrono::seconds(10);
constexpr auto kSayEvery = std::chrono::seconds(10);
constexpr auto kBetweenSnapshots = std::chrono::milliseconds(100);
// Gradients are sent when so many elements of a server have been announced (256 KiB). Each sending wakes
// threads on both sides that take the core from the computation: with 64 KiB a cluster of small networks was
// a tenth slower.
constexpr int64_t kSendElements = int64_t{64} << 10;

TimePoint Now() {
  return std::chrono::steady_clock::now();
}

// What may be sent again: the server cannot be reached, or has no memory for it while others take theirs.
bool IsWorthRepeating(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
}

int64_t TotalElements(const std::vector<net::VariableInfo>& variables) {
  int64_t total = 0;
  for (const net::VariableInfo& variable : variables) total += variable.shape.num_elements();
  return total;
}

}  // namespace

TrainingClient::TrainingClient(std::unique_ptr<Connection> connection,
                               std::vector<net::VariableInfo> variables, TrainingOptions options)
    : connection_(std::move(connection)),
      variables_(std::move(variables)),
      options_(std::move(options)),
      size_(TotalElements(variables_)),
      worker_(options_.worker),
      parameters_(size_),
      incoming_(size_),
      versions_(static_cast<size_t>(connection_->num_servers()), 0),
      pushes_(static_cast<size_t>(connection_->num_servers())) {}

TrainingClient::~TrainingClient() {
  StopHeartbeats();
  DropSessions();
}

absl::Status TrainingClient::Initialise(const v1::Job& job, StateSource& source) {
  v1::Job next = job;
  if (incarnation_ != 0) next.set_generation(job_.job.generation() + 1);
  return InitialiseServers(*connection_, {.task = options_.task, .job = next, .variables = variables_},
                           options_.split_bytes, source);
}

absl::Status TrainingClient::WaitReady(const v1::Job& job) {
  CAIRN_ASSIGN_OR_RETURN(
      job_, AwaitJob(*connection_, {.task = options_.task, .job = job, .variables = variables_}));
  CAIRN_RETURN_IF_ERROR(net::CheckEncoding(job_.job.wire()));
  CAIRN_RETURN_IF_ERROR(net::CheckGradientWire(job_.job, variables_));
  encodings_ = net::GradientEncodings(job_.job, variables_);
  bool in_16_bits = false, compresses = false;
  for (const v1::Encoding encoding : encodings_) {
    in_16_bits |= net::CodecOf(encoding) != nullptr;
    compresses |= net::GradientCodecOf(encoding) != nullptr;
  }
  encoded_.clear();
  for (int server = 0; server < connection_->num_servers(); ++server) {
    encoded_.emplace_back(in_16_bits ? job_.layout.arena_size(server) : 0);
  }
  MutexLock lock(mutex_);
  compressed_.reset();
  if (compresses) {
    compressed_ = std::make_unique<CompressedGradients>(job_.layout, variables_, encodings_, job_.job.topk_fraction(),
                                                        options_.wire);
  }
  for (v1::Encoding& encoding : encodings_) {
    if (net::GradientCodecOf(encoding) != nullptr) encoding = v1::ENCODING_FLOAT32;
  }
  return absl::OkStatus();
}

absl::Status TrainingClient::Join() {
  CAIRN_RETURN_IF_ERROR(Persist([this] { return JoinOnce(); }));
  heartbeats_ = Thread("heartbeats", [this] { Heartbeats(); });
  return PullForStep();
}

absl::Status TrainingClient::Reconnect() {
  StopHeartbeats();
  DropSessions();
  {
    MutexLock lock(mutex_);
    if (interrupted_) return failure_;
    failure_ = absl::OkStatus();
    waiting_for_.clear();
    stopping_ = false;
  }
  return connection_->Reach();
}

bool TrainingClient::CanReconnectAfter(const absl::Status& failure) const {
  if (!absl::IsAborted(failure)) return false;
  if (incarnation_ == 0 || job_.job.restorable()) return true;
  for (int server = 0; server < connection_->num_servers(); ++server) {
    if (!connection_->Describe(server).ok()) return false;
  }
  return true;
}

void TrainingClient::StopHeartbeats() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  heartbeats_.Join();
}

absl::Status TrainingClient::JoinOnce() {
  v1::JoinRequest request;
  request.set_worker(job_.job.elastic() ? -1 : options_.worker);
  request.set_task(options_.task);
  for (int server = 0; server < connection_->num_servers(); ++server) {
    v1::JoinResponse response;
    CAIRN_RETURN_IF_ERROR(Annotate(connection_->stub(server).Join(request, &response, kCallTimeout),
                                   absl::StrCat("joining at ", connection_->NameOf(server))));
    request.set_incarnation(response.incarnation());
    request.set_worker(response.worker());
    // A push of ours before may have come to some servers only. It shall not come to those again.
    position_ = server == 0 ? response.position() : std::max(position_, response.position());
    if (server == 0) {
      worker_ = response.worker();
      clock_at_join_ = response.clock();
      work_ = response.work();
    }
  }
  incarnation_ = request.incarnation();
  return absl::OkStatus();
}

absl::Status TrainingClient::Pull() {
  return Persist([this] { return PullOnce(v1::ENCODING_FLOAT32); });
}

absl::Status TrainingClient::PullForStep() {
  return Persist([this] { return PullOnce(job_.job.wire()); });
}

absl::Status TrainingClient::Persist(absl::FunctionRef<absl::Status()> attempt) {
  const TimePoint deadline = Now() + options_.step_timeout;
  TimePoint next_said = Now() + kSayEvery;
  net::Backoff backoff(StreamOf(options_.task));
  for (;;) {
    const int moves = Moves();
    const absl::Status status = attempt();
    if (status.ok()) return status;
    // A server that was restarted has lost its variables, whatever this attempt was told.
    for (int server = 0; server < connection_->num_servers(); ++server) {
      const auto described = connection_->Describe(server);
      if (absl::IsAborted(described.status())) return described.status();
      if (described.ok()) CAIRN_RETURN_IF_ERROR(CheckGoesOn(*described));
    }
    const bool transient = IsWorthRepeating(status) || absl::IsDeadlineExceeded(status) || Moves() != moves;
    if (!transient || Now() >= deadline) return status;
    if (Now() >= next_said) {
      next_said += kSayEvery;
      connection_->Say(absl::StrCat("trying again: ", status.message()));
    }
    std::this_thread::sleep_for(backoff.Next());
    CAIRN_RETURN_IF_ERROR(failure());
  }
}

absl::Status TrainingClient::PullOnce(v1::Encoding encoding) {
  std::string mark;
  if (job_.one_log) {
    mark = absl::StrCat(options_.task, "#", incarnation_, ".", ++reads_);
    v1::MarkRequest request;
    request.set_token(mark);
    v1::MarkResponse response;
    CAIRN_RETURN_IF_ERROR(Annotate(connection_->stub(0).Mark(request, &response, kCallTimeout), "pull"));
  }
  std::vector<PendingDone> done(static_cast<size_t>(connection_->num_servers()));
  const bool traced = Wants(options_.trace);
  const int64_t asked = TraceNanos(Now());
  std::vector<std::unique_ptr<ServerSession>> sessions;
  for (int server = 0; server < connection_->num_servers(); ++server) {
    sessions.push_back(std::make_unique<ServerSession>(connection_->stub(server)));
    v1::ClientHeader header;
    header.mutable_read()->set_layout(job_.layout_ids[static_cast<size_t>(server)]);
    header.mutable_read()->set_mark(mark);
    header.mutable_read()->set_encoding(encoding);
    CAIRN_RETURN_IF_ERROR(sessions.back()->Begin(
        std::move(header), ReceiveInto(job_.layout.extents_on(server), incoming_.span()),
        done[static_cast<size_t>(server)].Callback()));
  }
  std::vector<int64_t> versions;
  bool finished = false;
  for (int server = 0; server < connection_->num_servers(); ++server) {
    const auto timeout = std::chrono::duration_cast<Timeout>(options_.step_timeout);
    auto result = done[static_cast<size_t>(server)].Wait(timeout);
    if (!result.ok())
      return Annotate(result.status(), absl::StrCat("pull from ", connection_->NameOf(server)));
    versions.push_back(result->version());
    if (traced) {
      options_.trace->Record({.lane = TraceLane::kPull,
                              .index = server,
                              .name = "read",
                              .begin = asked,
                              .end = TraceNanos(Now()),
                              .step = result->version()});
    }
    if (server == 0) finished = result->finished();
    if (job_.one_log && versions[static_cast<size_t>(server)] != versions[0]) {
      return absl::InternalError(absl::StrCat("pull: version ", versions[0], " on ps/0 and ",
                                              result->version(), " on ", connection_->NameOf(server)));
    }
  }
  std::swap(parameters_, incoming_);
  versions_ = std::move(versions);
  finished_ = finished;
  return absl::OkStatus();
}

absl::Status TrainingClient::AwaitWork() {
  v1::WaitResponse answer;
  CAIRN_RETURN_IF_ERROR(connection_->WaitUntil(
      0, v1::CONDITION_WORK, worker_, options_.step_timeout, [this] { return failure(); }, &answer));
  work_ = answer.work();
  CAIRN_RETURN_IF_ERROR(PullForStep());
  finished_ |= work_.over();
  return absl::OkStatus();
}

absl::StatusOr<float> TrainingClient::LearningRate() {
  CAIRN_ASSIGN_OR_RETURN(const v1::ConnectResponse response, DescribeLeader());
  return response.learning_rate();
}

absl::StatusOr<v1::ConnectResponse> TrainingClient::DescribeLeader() {
  if (!connection_->replicated()) return connection_->Describe(0);
  absl::StatusOr<v1::ConnectResponse> response = absl::UnavailableError("not asked");
  const absl::Status status = Persist([&] {
    response = connection_->Describe(0);
    return response.status();
  });
  return status.ok() ? response : status;
}

int TrainingClient::Moves() const {
  int moves = 0;
  for (int server = 0; server < connection_->num_servers(); ++server) moves += connection_->moves(server);
  return moves;
}

absl::Status TrainingClient::SetLearningRate(float rate) {
  v1::Amendment amendment;
  amendment.set_learning_rate(rate);
  return Annotate(Amend(amendment), "changing the learning rate");
}

absl::Status TrainingClient::EndTraining() {
  v1::Amendment amendment;
  amendment.set_end(true);
  CAIRN_RETURN_IF_ERROR(Annotate(Amend(amendment), "ending the job"));
  return Pull();
}

absl::Status TrainingClient::Amend(const v1::Amendment& amendment) {
  v1::AmendRequest request;
  request.set_incarnation(incarnation_);
  request.set_number(++amendments_);
  *request.mutable_amendment() = amendment;
  const int sequencers = job_.one_log ? 1 : connection_->num_servers();
  return Persist([&] {
    for (int server = 0; server < sequencers; ++server) {
      v1::AmendResponse response;
      CAIRN_RETURN_IF_ERROR(connection_->stub(server).Amend(request, &response, kCallTimeout));
    }
    return absl::OkStatus();
  });
}

absl::Status TrainingClient::Write(absl::Span<const float> values) {
  CAIRN_CHECK(static_cast<int64_t>(values.size()) == size_);
  CAIRN_RETURN_IF_ERROR(Persist([&] {
    return WriteState(*connection_, job_, {values}, {.initialise = false, .timeout = options_.step_timeout});
  }));
  return Pull();
}

ServerSession::OnDone TrainingClient::OnPushDone(int server, uint64_t attempt, FirstValuesAt first_values) {
  return [this, server, attempt, first_values](absl::StatusOr<v1::Done> result) {
    MutexLock lock(mutex_);
    if (attempt != attempt_ || pushes_.empty()) return;
    if (result.ok() && first_values != nullptr) TraceAnswer(server, *first_values);
    pushes_[static_cast<size_t>(server)].done = std::move(result);
    changed_.NotifyAll();
  };
}

ServerSession::OnChunk TrainingClient::ReceiveAnswer(int server) {
  ServerSession::OnChunk into = ReceiveInto(job_.layout.extents_on(server), incoming_.span());
  if (options_.wire == nullptr) return into;
  return [into = std::move(into), wire = options_.wire](const v1::Chunk& chunk, net::Payload payload) {
    const int64_t bytes = net::PayloadBytes(payload);
    wire->pull_bytes.Add(bytes);
    wire->pull_float32_bytes.Add(net::CodecOf(chunk.encoding()) == nullptr ? bytes : chunk.count() * 4);
    return into(chunk, payload);
  };
}

void TrainingClient::StartPush(int server) {
  Push& push = pushes_[static_cast<size_t>(server)];
  push.done.reset();
  push.announced.clear();
  push.compressed_sent = 0;
  push.announced_elements = 0;
  v1::ClientHeader header;
  v1::PushBegin& begin = *header.mutable_push();
  begin.set_layout(job_.layout_ids[static_cast<size_t>(server)]);
  begin.set_worker(worker_);
  begin.set_incarnation(incarnation_);
  begin.set_step(step_);
  begin.set_base_version(versions_[static_cast<size_t>(server)]);
  begin.set_examples(examples_);
  begin.set_read_values(true);
  begin.set_position(push_position_);
  begin.set_values_encoding(job_.job.wire());
  ServerSession::OnChunk receive = ReceiveAnswer(server);
  FirstValuesAt first_values;
  if (traced_) {
    first_values = std::make_shared<int64_t>(0);
    receive = [first_values, into = std::move(receive)](const v1::Chunk& chunk, net::Payload payload) {
      if (*first_values == 0) *first_values = TraceNanos(Now());
      return into(chunk, payload);
    };
  }
  const auto id = push.session->Begin(std::move(header), std::move(receive),
                                      OnPushDone(server, attempt_, std::move(first_values)));
  if (id.ok()) {
    push.request_id = *id;
  } else {
    push.done = id.status();
  }
}

void TrainingClient::BeginStep(absl::Span<const float> gradients, int64_t examples, int64_t position) {
  CAIRN_CHECK(static_cast<int64_t>(gradients.size()) == size_);
  gradients_ = gradients;
  examples_ = examples;
  push_position_ = position;
  ++step_;
  traced_ = Wants(options_.trace);
  std::vector<std::unique_ptr<ServerSession>> broken;  // closed outside the lock
  MutexLock lock(mutex_);
  heartbeat_step_ = step_;
  ++attempt_;
  if (compressed_ != nullptr) compressed_->BeginStep();
  for (int server = 0; server < connection_->num_servers(); ++server) {
    Push& push = pushes_[static_cast<size_t>(server)];
    if (push.session == nullptr || !push.session->status().ok() || push.moves != connection_->moves(server)) {
      broken.push_back(std::move(push.session));
      push.moves = connection_->moves(server);
      push.session = std::make_unique<ServerSession>(connection_->stub(server));
    }
    push.began = push.sent = push.bytes = 0;
    StartPush(server);
  }
}

void TrainingClient::Announce(int variable) {
  if (examples_ == 0) return;
  MutexLock lock(mutex_);
  if (compressed_ != nullptr && compressed_->Compress(variable, gradients_)) {
    for (const net::Extent& extent : job_.layout.extents_of(variable)) {
      Push& push = pushes_[static_cast<size_t>(extent.server)];
      const auto& ready = compressed_->ready(extent.server);
      int64_t floats = 0;
      for (size_t i = push.compressed_sent; i < ready.size(); ++i) floats += static_cast<int64_t>(ready[i].payload.size());
      if (push.announced_elements + floats >= kSendElements) SendAnnounced(extent.server);
    }
    return;
  }
  for (const net::Extent& extent : job_.layout.extents_of(variable)) {
    Announce(extent, encodings_[static_cast<size_t>(variable)]);
    if (pushes_[static_cast<size_t>(extent.server)].announced_elements >= kSendElements) SendAnnounced(extent.server);
  }
}

void TrainingClient::Announce(const net::Extent& extent, v1::Encoding encoding) {
  Push& push = pushes_[static_cast<size_t>(extent.server)];
  push.announced[encoding].push_back(extent);
  push.announced_elements += extent.count;
}

void TrainingClient::SendAnnounced(int server) {
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
    for (const net::Extent& extent : extents) bytes += extent.count * (encoding == v1::ENCODING_FLOAT32 ? 4 : 2);
    std::sort(extents.begin(), extents.end(),
              [](const net::Extent& a, const net::Extent& b) { return a.server_offset < b.server_offset; });
    SendExtents(*push.session, push.request_id, extents, gradients_,
                {.encoding = encoding, .room = encoded_[static_cast<size_t>(server)].span()});
    extents.clear();
  }
  push.announced_elements = 0;
  push.bytes += bytes;
  if (options_.wire == nullptr) return;
  options_.wire->push_bytes.Add(bytes);
  options_.wire->push_float32_bytes.Add(elements * 4);
}

absl::StatusOr<StepResult> TrainingClient::FinishStep() {
  {
    MutexLock lock(mutex_);
    for (int server = 0; server < connection_->num_servers(); ++server) {
      SendAnnounced(server);
      Push& push = pushes_[static_cast<size_t>(server)];
      if (traced_) TracePush(server);  // before the server can know that it has all
      push.session->SendEnd(push.request_id);
    }
  }
  auto result = AwaitAnswers();
  if (!result.ok()) DropSessions();
  return result;
}

void TrainingClient::TracePush(int server) {
  Push& push = pushes_[static_cast<size_t>(server)];
  push.sent = TraceNanos(Now());
  if (push.began == 0) push.began = push.sent;  // one of no examples
  options_.trace->Record({.lane = TraceLane::kPush,
                          .index = server,
                          .name = "push",
                          .begin = push.began,
                          .end = push.sent,
                          .step = options_.trace->step(),
                          .bytes = push.bytes});
  options_.trace->Record(
      {.kind = TraceEvent::Kind::kFlowOut,
       .lane = TraceLane::kPush,
       .index = server,
       .begin = std::max(push.began, push.sent - 1),  // within the slice
       .flow = {.worker = worker_, .server = server, .incarnation = incarnation_, .number = step_}});
}

void TrainingClient::TraceAnswer(int server, int64_t first_values) const {
  const int64_t sent = pushes_[static_cast<size_t>(server)].sent;
  const int64_t now = TraceNanos(Now());
  if (sent == 0) return;  // answered before all of it was sent: seen before
  const auto record = [&](TraceLane lane, const char* name, int64_t begin, int64_t end) {
    options_.trace->Record({.lane = lane,
                            .index = server,
                            .name = name,
                            .begin = begin,
                            .end = end,
                            .step = options_.trace->step()});
  };
  // The first may come while gradients still go.
  record(TraceLane::kWait, "wait", sent, first_values == 0 ? now : std::max(sent, first_values));
  if (first_values != 0) record(TraceLane::kPull, "pull", first_values, now);
}

absl::StatusOr<StepResult> TrainingClient::AwaitAnswers() {
  const auto context = [&] { return absl::StrCat("step ", step_, " of ", options_.task); };
  auto answers = AwaitPushes();
  if (!answers.ok()) return Annotate(answers.status(), context());
  StepResult result;
  std::vector<int64_t> versions;
  bool pull_again = false;
  for (int server = 0; server < connection_->num_servers(); ++server) {
    const v1::Done& done = (*answers)[static_cast<size_t>(server)];
    if (done.outcome() == v1::OUTCOME_REJECTED) {
      return absl::AbortedError(
          absl::StrCat(context(), ": ", connection_->NameOf(server), " does not know this worker any more"));
    }
    result.duplicate |= done.duplicate();
    pull_again |= !done.has_values();
    result.staleness = std::max(result.staleness, done.staleness());
    if (server == 0 || done.outcome() == v1::OUTCOME_STALE) result.outcome = done.outcome();
    versions.push_back(done.version());
    pull_again |= job_.one_log && versions.back() != versions[0];
  }
  {
    MutexLock lock(mutex_);
    std::vector<bool> counted;
    for (const v1::Done& done : *answers) counted.push_back(done.outcome() == v1::OUTCOME_ACCEPTED);
    if (compressed_ != nullptr) compressed_->EndStep(counted);
  }
  work_ = answers->front().work();
  const bool finished = answers->front().finished() || answers->front().outcome() == v1::OUTCOME_FINISHED;
  // A repeated push whose answer was lost comes back without values: read them anew, of one version.
  if (pull_again) {
    CAIRN_RETURN_IF_ERROR(PullForStep());
  } else {
    std::swap(parameters_, incoming_);
    versions_ = std::move(versions);
    finished_ = false;
  }
  finished_ |= finished;
  return result;
}

void TrainingClient::DropSessions() {
  std::vector<std::unique_ptr<ServerSession>> sessions;  // closed outside the lock
  MutexLock lock(mutex_);
  for (Push& push : pushes_) sessions.push_back(std::move(push.session));
}

TrainingClient::Unanswered TrainingClient::FindUnanswered() const {
  Unanswered unanswered;
  for (int server = 0; server < connection_->num_servers(); ++server) {
    const auto& done = pushes_[static_cast<size_t>(server)].done;
    const bool answered = done.has_value() && done->ok();
    if (!answered && pushes_[static_cast<size_t>(server)].moves != connection_->moves(server)) {
      unanswered.failed.push_back(server);
      if (unanswered.failure.ok()) {
        unanswered.failure = absl::UnavailableError(absl::StrCat("ps/", server, "'s part has moved"));
      }
    } else if (!done.has_value()) {
      unanswered.waiting.push_back(server);
    } else if (!done->ok()) {
      unanswered.failed.push_back(server);
      if (unanswered.failure.ok() ||
          (IsWorthRepeating(unanswered.failure) && !IsWorthRepeating(done->status()))) {
        unanswered.failure = Annotate(done->status(), connection_->NameOf(server));
      }
    }
  }
  return unanswered;
}

// All servers at once: a synchronous round closes when the push is on all of them, so the answer of one may
// depend on the repeated push to another.
absl::StatusOr<std::vector<v1::Done>> TrainingClient::AwaitPushes() {
  const TimePoint deadline = Now() + options_.step_timeout;
  net::Backoff backoff(StreamOf(options_.task));
  TimePoint next_said = Now() + kSayEvery;
  TimePoint next_complaint = Now();
  for (;;) {
    Unanswered unanswered;
    {
      MutexLock lock(mutex_);
      while (unanswered = FindUnanswered(), unanswered.failed.empty() && !unanswered.waiting.empty()) {
        if (!failure_.ok()) return failure_;
        const std::string waits_for =
            absl::StrCat(connection_->NameOf(unanswered.waiting[0]),
                         waiting_for_.empty() ? "" : absl::StrCat("; the round waits for ", waiting_for_));
        if (Now() >= deadline) return absl::DeadlineExceededError(absl::StrCat("no answer from ", waits_for));
        if (Now() >= next_said) {
          next_said += kSayEvery;
          connection_->Say(absl::StrCat("step ", step_, " waits for ", waits_for));
        }
        changed_.WaitUntil(mutex_, std::min(deadline, next_said));
      }
      if (unanswered.failed.empty()) {
        std::vector<v1::Done> answers;
        for (const Push& push : pushes_) answers.push_back(**push.done);
        return answers;
      }
    }
    if (Now() >= deadline) return unanswered.failure;
    if (!IsWorthRepeating(
            unanswered.failure)) {  // perhaps only there, and another server serves the part now
      const int moves = Moves();
      for (int server : unanswered.failed) {
        if (connection_->replicated()) (void)connection_->Describe(server);
      }
      if (Moves() == moves) return unanswered.failure;
    }
    if (Now() >= next_complaint) {
      next_complaint = Now() + kSayEvery;
      connection_->Say(
          absl::StrCat("step ", step_, ": ", unanswered.failure.message(), "; the push will be sent again"));
    }
    std::this_thread::sleep_for(backoff.Next());
    CAIRN_RETURN_IF_ERROR(failure());
    for (int server : unanswered.failed) {
      if (absl::Status status = RepeatPush(server); !status.ok() && !absl::IsUnavailable(status))
        return status;
    }
  }
}

absl::Status TrainingClient::RepeatPush(int server) {
  // A server that was restarted has lost what it held: nothing to repeat.
  CAIRN_ASSIGN_OR_RETURN(const v1::ConnectResponse described, connection_->Describe(server));
  CAIRN_RETURN_IF_ERROR(CheckGoesOn(described));
  const int moves = connection_->moves(server);
  std::unique_ptr<ServerSession> old;
  {
    MutexLock lock(mutex_);
    old = std::move(pushes_[static_cast<size_t>(server)].session);
  }
  old.reset();  // what it has to say about this push, where it has not been heard of for a while, is said now
  auto session = std::make_unique<ServerSession>(connection_->stub(server));
  MutexLock lock(mutex_);
  Push& push = pushes_[static_cast<size_t>(server)];
  push.moves = moves;
  push.session = std::move(session);
  StartPush(server);
  if (examples_ > 0) {
    for (size_t variable = 0; variable < variables_.size(); ++variable) {
      if (compressed_ != nullptr && compressed_->compressed(static_cast<int>(variable))) continue;
      for (const net::Extent& extent : job_.layout.extents_of(static_cast<int>(variable))) {
        if (extent.server == server) Announce(extent, encodings_[variable]);
      }
    }
    SendAnnounced(server);
  }
  push.session->SendEnd(push.request_id);
  return absl::OkStatus();
}

void TrainingClient::Heartbeats() {
  const auto period =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(job_.job.lease_seconds() / 4));
  const auto timeout = std::chrono::duration_cast<Timeout>(period);
  for (;;) {
    v1::HeartbeatRequest request;
    request.set_worker(worker_);
    request.set_incarnation(incarnation_);
    {
      MutexLock lock(mutex_);
      const TimePoint next = Now() + period;
      while (!stopping_ && Now() < next) changed_.WaitUntil(mutex_, next);
      if (stopping_) return;
      request.set_step(heartbeat_step_);
    }
    if (options_.report) *request.mutable_report() = options_.report();
    for (int server = 0; server < connection_->num_servers(); ++server) {
      v1::HeartbeatResponse response;
      const TimePoint sent = Now();
      absl::Status status = connection_->stub(server).Heartbeat(request, &response, timeout);
      if (status.ok()) connection_->NoteClock(server, sent, response.clock_unix_nanos());
      const bool failed = status.ok() && response.state() == v1::STATE_FAILED;
      if (failed) {
        status = absl::Status(static_cast<absl::StatusCode>(response.failure_code()), response.failure());
      } else if (status.ok() && response.state() == v1::STATE_FINISHED) {
        status = TrainingIsOver();
      }
      const int moves = connection_->moves(server);
      if (absl::IsAborted(status)) {  // perhaps it does not know us because it is new itself
        if (absl::Status lost = connection_->Describe(server).status(); absl::IsAborted(lost)) status = lost;
      } else if (!status.ok() && !failed && connection_->replicated()) {
        if (absl::Status lost = connection_->Describe(server).status(); absl::IsAborted(lost)) status = lost;
      }
      const bool moved = connection_->moves(server) != moves;
      MutexLock lock(mutex_);
      if (status.ok()) {
        if (server == 0) waiting_for_ = response.waiting_for();
      } else if (moved) {  // what was asked of it must be asked elsewhere
        changed_.NotifyAll();
      } else if (failed || absl::IsAborted(status) || IsOver(status)) {
        failure_.Update(status);
        changed_.NotifyAll();
      }  // else it cannot be reached now; a step that needs it says so
    }
  }
}

void TrainingClient::Interrupt(absl::Status reason) {
  MutexLock lock(mutex_);
  failure_ = std::move(reason);
  interrupted_ = true;
  changed_.NotifyAll();
}

absl::Status TrainingClient::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

void TrainingClient::Leave(v1::LeaveReason reason, const std::string& message) {
  if (incarnation_ == 0) return;
  v1::LeaveRequest request;
  request.set_worker(worker_);
  request.set_incarnation(incarnation_);
  request.set_reason(reason);
  request.set_message(message);
  for (int server = 0; server < connection_->num_servers(); ++server) {
    v1::LeaveResponse response;
    const absl::Status left = connection_->stub(server).Leave(request, &response, std::chrono::seconds(2));
    if (left.ok() || !connection_->replicated()) continue;
    if (!connection_->Describe(server).ok()) continue;  // where it is served now
    (void)connection_->stub(server).Leave(request, &response, std::chrono::seconds(2));
  }
  MutexLock lock(mutex_);
  stopping_ = true;
  changed_.NotifyAll();
}

absl::StatusOr<MarkedSnapshot> TrainingClient::MarkSnapshot() {
  return client::MarkSnapshot(*connection_, job_,
                              absl::StrCat("snapshot ", options_.task, "#", incarnation_, ".", ++reads_));
}

absl::StatusOr<TakenSnapshot> TrainingClient::TakeSnapshot() {
  CAIRN_ASSIGN_OR_RETURN(MarkedSnapshot marked, MarkSnapshot());
  const int64_t version = marked.progress.version();
  return TakenSnapshot{.version = version, .read = [this, marked = std::move(marked)](Duration limit) {
                         return ReadSnapshot(*connection_, marked, limit);
                       }};
}

absl::Status TrainingClient::MendSnapshot(const absl::Status& failure) {
  if (!absl::IsUnavailable(failure) || !connection_->replicated()) return failure;
  std::this_thread::sleep_for(kBetweenSnapshots);
  return connection_->DescribeAll().status();
}

absl::Status TrainingClient::WaitForOthers(Duration timeout) {
  return connection_->WaitUntil(0, v1::CONDITION_ALL_OTHERS_LEFT, worker_, timeout,
                                [this] { return failure(); });
}

absl::Status TrainingClient::Finish() {
  return EndServers(*connection_);
}

absl::Status TrainingClient::AwaitEnd() {
  if (!job_.job.restorable()) return absl::OkStatus();
  return client::AwaitEnd(*connection_, worker_, options_.step_timeout, [this] {
    MutexLock lock(mutex_);
    return interrupted_ ? failure_ : absl::OkStatus();
  });
}

absl::StatusOr<v1::DataPosition> TrainingClient::UsedData() {
  std::vector<v1::DataPosition> servers;
  for (int server = 0; server < (job_.one_log ? 1 : connection_->num_servers()); ++server) {
    CAIRN_ASSIGN_OR_RETURN(const v1::ConnectResponse response, connection_->Describe(server));
    servers.push_back(response.data());
  }
  return AtTheEnd(servers);
}

absl::StatusOr<v1::Counters> TrainingClient::ServerCounters() {
  CAIRN_ASSIGN_OR_RETURN(v1::ConnectResponse response, DescribeLeader());
  return response.counters();
}

}  // namespace cairn::client
