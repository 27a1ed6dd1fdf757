#include "client/training_client.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/data_position.h"
#include "client/job_end.h"
#include "client/this_process.h"
#include "client/transport/request.h"
#include "client/transport/server_session.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "common/net/grpc/backoff.h"

namespace cairn::client {
namespace {

constexpr Timeout kCallTimeout = std::chrono::seconds(10);
constexpr auto kLogEvery = std::chrono::seconds(10);
constexpr auto kBetweenSnapshots = std::chrono::milliseconds(100);

TimePoint Now() {
  return std::chrono::steady_clock::now();
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
      editions_(versions_.size(), 0),
      process_(DrawProcess()),
      heartbeats_(*connection_, {.report = options_.report, .changed = [this] { pushes_.Wake(); }}),
      pushes_(*connection_, {.task = options_.task,
                             .step_timeout = options_.step_timeout,
                             .trace = options_.trace,
                             .wire = options_.wire,
                             .failure = [this] { return failure(); },
                             .waiting_for = [this] { return heartbeats_.waiting_for(); }}) {}

TrainingClient::~TrainingClient() {
  heartbeats_.Stop();  // before the pushes that they wake are destroyed
}

absl::Status TrainingClient::Initialise(const v1::Job& job, StateSource& source) {
  v1::Job next = job;
  if (incarnation_ != 0) next.set_generation(job_.job.generation() + 1);
  return InitialiseServers(*connection_, {.task = options_.task, .job = next, .variables = variables_},
                           options_.split_bytes, source, &begun_generation_);
}

absl::Status TrainingClient::WaitReady(const v1::Job& job) {
  CAIRN_ASSIGN_OR_RETURN(
      job_, AwaitJob(*connection_, {.task = options_.task, .job = job, .variables = variables_}));
  return pushes_.Learn(job_, variables_);
}

absl::Status TrainingClient::Join() {
  CAIRN_RETURN_IF_ERROR(Persist([this] { return JoinOnce(); }));
  heartbeats_.Start(
      {.worker = worker_, .incarnation = incarnation_, .lease = FromSeconds(job_.job.lease_seconds())});
  return PullForStep();
}

absl::Status TrainingClient::Reconnect() {
  heartbeats_.Stop();
  pushes_.Drop();
  CAIRN_RETURN_IF_ERROR(interruption());
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

absl::Status TrainingClient::JoinOnce() {
  v1::JoinRequest request;
  request.set_worker(job_.job.elastic() ? -1 : options_.worker);
  request.set_task(options_.task);
  *request.mutable_process() = process_;
  for (int server = 0; server < connection_->num_servers(); ++server) {
    v1::JoinResponse response;
    CAIRN_RETURN_IF_ERROR(Annotate(connection_->stub(server).Join(request, &response, kCallTimeout),
                                   absl::StrCat("joining at ", connection_->NameOf(server))));
    if (server == 0) {
      request.set_incarnation(response.incarnation());
      request.set_incarnation_seal(response.incarnation_seal());
    }
    request.set_worker(response.worker());
    // An earlier push of this worker may have reached only some of the servers. This worker must not repeat
    // it, so the highest position on any server counts.
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
  const TimePoint start = Now();
  const TimePoint deadline = start + options_.step_timeout;
  TimePoint next_said = start + kLogEvery;
  net::Backoff backoff(StreamOf(options_.task));
  for (;;) {
    const int moves = connection_->moves();
    const absl::Status status = attempt();
    if (status.ok()) return status;
    // A restarted server has lost its variables, which the status of this attempt may not show.
    for (int server = 0; server < connection_->num_servers(); ++server) {
      const auto described = connection_->Describe(server);
      if (absl::IsAborted(described.status())) return described.status();
      if (described.ok()) CAIRN_RETURN_IF_ERROR(CheckGoesOn(*described));
    }
    const bool transient =
        IsWorthRepeating(status) || absl::IsDeadlineExceeded(status) || connection_->moves() != moves;
    if (!transient || Now() >= deadline) return status;
    if (Now() >= next_said) {
      next_said += kLogEvery;
      connection_->Report(
          absl::StrCat("trying again (", HowLong(start, options_.step_timeout), "): ", status.message()));
    }
    std::this_thread::sleep_for(backoff.Next());
    CAIRN_RETURN_IF_ERROR(failure());
  }
}

absl::Status TrainingClient::PullOnce(v1::Encoding encoding) {
  std::string marker;
  if (job_.one_log) {
    marker = absl::StrCat(options_.task, "#", incarnation_, ".", ++reads_);
    v1::PlaceMarkerRequest request;
    request.set_token(marker);
    v1::PlaceMarkerResponse response;
    CAIRN_RETURN_IF_ERROR(
        Annotate(connection_->stub(0).PlaceMarker(request, &response, kCallTimeout), "pull"));
  }
  std::vector<PendingDone> done(static_cast<size_t>(connection_->num_servers()));
  const bool traced = Wants(options_.trace);
  const int64_t asked = TraceNanos(Now());
  std::vector<std::unique_ptr<ServerSession>> sessions;
  for (int server = 0; server < connection_->num_servers(); ++server) {
    sessions.push_back(std::make_unique<ServerSession>(connection_->stub(server)));
    v1::ClientHeader header;
    header.mutable_read()->set_layout(job_.layout_ids[static_cast<size_t>(server)]);
    header.mutable_read()->set_marker(marker);
    header.mutable_read()->set_encoding(encoding);
    if (encoding == editions_encoding_) {
      header.mutable_read()->set_known_edition(editions_[static_cast<size_t>(server)]);
    }
    CAIRN_RETURN_IF_ERROR(sessions.back()->Begin(
        std::move(header), ReceiveInto(job_.layout.extents_on(server), incoming_.span()),
        done[static_cast<size_t>(server)].Callback()));
  }
  std::vector<int64_t> versions;
  std::vector<uint64_t> editions;
  bool finished = false;
  for (int server = 0; server < connection_->num_servers(); ++server) {
    const auto timeout = std::chrono::duration_cast<Timeout>(options_.step_timeout);
    auto result = done[static_cast<size_t>(server)].Wait(*sessions[static_cast<size_t>(server)], timeout);
    if (!result.ok())
      return Annotate(result.status(), absl::StrCat("pull from ", connection_->NameOf(server)));
    versions.push_back(result->version());
    editions.push_back(result->edition());
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
      return absl::InternalError(absl::StrCat("pull: the servers sent different versions: ", versions[0],
                                              " on ps/0 and ", result->version(), " on ",
                                              connection_->NameOf(server)));
    }
  }
  for (int server = 0; server < connection_->num_servers(); ++server) {
    const auto s = static_cast<size_t>(server);
    if (encoding != editions_encoding_ || editions[s] != editions_[s]) continue;
    for (const net::Extent& extent : job_.layout.extents_on(server)) {  // unchanged, not sent
      std::copy_n(parameters_.data() + extent.local_offset, extent.count,
                  incoming_.data() + extent.local_offset);
    }
  }
  std::swap(parameters_, incoming_);
  versions_ = std::move(versions);
  editions_ = std::move(editions);
  editions_encoding_ = encoding;
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
  absl::StatusOr<v1::ConnectResponse> response = absl::UnavailableError("not queried");
  const absl::Status status = Persist([&] {
    response = connection_->Describe(0);
    return response.status();
  });
  return status.ok() ? response : status;
}

absl::Status TrainingClient::SetLearningRate(float rate) {
  v1::ConfigChange config_change;
  config_change.set_learning_rate(rate);
  return Annotate(ChangeConfig(config_change), "changing the learning rate");
}

absl::Status TrainingClient::EndTraining() {
  v1::ConfigChange config_change;
  config_change.set_end(true);
  CAIRN_RETURN_IF_ERROR(Annotate(ChangeConfig(config_change), "ending the job"));
  return Pull();
}

absl::Status TrainingClient::ChangeConfig(const v1::ConfigChange& config_change) {
  v1::ChangeConfigRequest request;
  request.set_incarnation(incarnation_);
  request.set_number(++config_changes_);
  *request.mutable_config_change() = config_change;
  const int sequencers = job_.one_log ? 1 : connection_->num_servers();
  return Persist([&] {
    for (int server = 0; server < sequencers; ++server) {
      v1::ChangeConfigResponse response;
      CAIRN_RETURN_IF_ERROR(connection_->stub(server).ChangeConfig(request, &response, kCallTimeout));
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

void TrainingClient::BeginStep(absl::Span<const float> gradients, int64_t examples, int64_t position) {
  CAIRN_CHECK(static_cast<int64_t>(gradients.size()) == size_);
  heartbeats_.set_step(++step_);
  push_ended_ = false;
  pushes_.Begin({.worker = worker_,
                 .incarnation = incarnation_,
                 .number = step_,
                 .gradients = gradients,
                 .examples = examples,
                 .position = position,
                 .base_versions = versions_,
                 .values = incoming_.span()});
}

void TrainingClient::Announce(int variable) {
  pushes_.Announce(variable);
}

absl::Span<const float> TrainingClient::ComingParameters() {
  if (!std::exchange(push_ended_, true)) pushes_.End();
  return incoming_.span();
}

absl::StatusOr<StepResult> TrainingClient::FinishStep() {
  if (!std::exchange(push_ended_, true)) pushes_.End();
  auto result = AwaitAnswers();
  if (!result.ok()) pushes_.Drop();
  return result;
}

absl::StatusOr<StepResult> TrainingClient::AwaitAnswers() {
  const auto context = [&] { return absl::StrCat("step ", step_, " of ", options_.task); };
  auto answers = pushes_.Await();
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
  pushes_.Settle(*answers);
  pull_again |= !pushes_.values_intact();
  result.as_awaited = !pull_again;
  work_ = answers->front().work();
  const bool finished = answers->front().finished() || answers->front().outcome() == v1::OUTCOME_FINISHED;
  // The answer to a repeated push has no values if the first answer was lost: pull values of one version.
  if (pull_again) {
    CAIRN_RETURN_IF_ERROR(PullForStep());
  } else {
    std::swap(parameters_, incoming_);
    versions_ = std::move(versions);
    editions_.assign(versions_.size(), 0);
    finished_ = false;
  }
  finished_ |= finished;
  return result;
}

void TrainingClient::Interrupt(absl::Status reason) {
  {
    MutexLock lock(mutex_);
    interruption_ = std::move(reason);
  }
  pushes_.Wake();
}

absl::Status TrainingClient::interruption() const {
  MutexLock lock(mutex_);
  return interruption_;
}

absl::Status TrainingClient::failure() const {
  CAIRN_RETURN_IF_ERROR(interruption());
  return heartbeats_.failure();
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
    if (!connection_->Describe(server).ok()) continue;  // finds where the shard is served now
    (void)connection_->stub(server).Leave(request, &response, std::chrono::seconds(2));
  }
  heartbeats_.StopSoon();
}

absl::StatusOr<SnapshotMarker> TrainingClient::PlaceSnapshotMarker() {
  return client::PlaceSnapshotMarker(
      *connection_, job_, absl::StrCat("snapshot ", options_.task, "#", incarnation_, ".", ++reads_));
}

absl::StatusOr<TakenSnapshot> TrainingClient::TakeSnapshot() {
  CAIRN_ASSIGN_OR_RETURN(SnapshotMarker marked, PlaceSnapshotMarker());
  const int64_t version = marked.progress.version();
  return TakenSnapshot{.version = version, .read = [this, marked = std::move(marked)](Duration limit) {
                         return ReadSnapshot(*connection_, marked, limit);
                       }};
}

absl::Status TrainingClient::CheckSnapshotMayBeRetried(const absl::Status& failure) {
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
  return client::AwaitEnd(*connection_, worker_, options_.step_timeout, [this] { return interruption(); });
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
