#include "ps/follow.h"

#include <chrono>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/log.h"
#include "common/core/mutex.h"
#include "common/core/thread.h"
#include "common/net/backoff.h"
#include "common/net/grpc_util.h"

namespace cairn::ps {
namespace {

v1::PushKey ToProto(const PushKey& key) {
  v1::PushKey proto;
  proto.set_worker(key.worker);
  proto.set_incarnation(key.incarnation);
  proto.set_step(key.step);
  return proto;
}

PushKey FromProto(const v1::PushKey& proto) {
  return {.worker = proto.worker(), .incarnation = proto.incarnation(), .step = proto.step()};
}

v1::StagedGradient ToProto(const Gradient& gradient) {
  v1::StagedGradient proto;
  *proto.mutable_key() = ToProto(gradient.key);
  proto.set_base_version(gradient.base_version);
  proto.set_examples(gradient.examples);
  return proto;
}

Gradient FromProto(const v1::StagedGradient& proto) {
  return {.key = FromProto(proto.key()), .base_version = proto.base_version(), .examples = proto.examples()};
}

// ps/0's end of one stream, and where the sequencer puts the log for it.
class FollowerStream final : public grpc::ServerBidiReactor<v1::FollowerMessage, v1::LeaderMessage>,
                             public LogSink {
 public:
  static FollowerStream* Start(Server& server) {
    auto stream = std::make_shared<FollowerStream>(server);
    stream->self_ = stream;
    stream->StartRead(&stream->incoming_);
    return stream.get();
  }
  explicit FollowerStream(Server& server) : server_(server) {}

  void OnReadDone(bool ok) override {
    const absl::Status status =
        ok ? Handle(incoming_) : absl::CancelledError("the follower closed the stream");
    if (!status.ok()) {
      End(net::ToGrpc(status));
      return;
    }
    StartRead(&incoming_);
  }

  void Append(const LogEntry& entry) override {
    v1::LeaderMessage message;
    *message.mutable_decision() = ps::ToProto(entry);
    MutexLock lock(mutex_);
    outgoing_.push_back(std::move(message));
  }
  void Flush() override {
    MutexLock lock(mutex_);
    WriteNext();
  }
  void End() override { End(net::ToGrpc(absl::UnavailableError("the job is being created anew"))); }
  void OnWriteDone(bool ok) override {
    MutexLock lock(mutex_);
    writing_ = false;
    outgoing_.pop_front();
    if (!ok) ending_ = true;
    WriteNext();
  }
  void OnCancel() override { End(grpc::Status::CANCELLED); }
  void OnDone() override {
    if (job_ != nullptr) job_->sequencer()->Unsubscribe(follower_, this);
    job_.reset();
    self_.reset();  // perhaps deletes this
  }

 private:
  absl::Status Handle(const v1::FollowerMessage& message) {
    if (message.has_subscribe()) {
      if (job_ != nullptr) return absl::InvalidArgumentError("a second subscription on one stream");
      auto job = server_.JobToFollow(message.subscribe().run_id());
      if (!job.ok()) return job.status();
      if (message.subscribe().server() < 1 || message.subscribe().server() >= (*job)->job().servers_size()) {
        return absl::InvalidArgumentError(absl::StrCat("ps/", message.subscribe().server(),
                                                       " subscribes to a job on ",
                                                       (*job)->job().servers_size(), " servers"));
      }
      follower_ = message.subscribe().server();
      job_ = *std::move(job);
      if (!job_->sequencer()->Subscribe(follower_, message.subscribe().next_index(), self_)) {
        return absl::FailedPreconditionError(absl::StrCat("ps/", follower_, " asks for the log from entry ",
                                                          message.subscribe().next_index(),
                                                          ", which is not kept any more"));
      }
      return absl::OkStatus();
    }
    if (job_ == nullptr) return absl::InvalidArgumentError("the first message must subscribe");
    if (message.has_staged()) {
      job_->sequencer()->OnStaged(follower_, FromProto(message.staged()));
    } else {
      job_->sequencer()->OnExecuted(follower_, message.executed());
    }
    return absl::OkStatus();
  }

  void End(grpc::Status status) {
    MutexLock lock(mutex_);
    if (!std::exchange(ending_, true)) status_ = std::move(status);
    WriteNext();
  }
  // Starts the next write, or finishes the stream when it is ending.
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) return;
    if (ending_) {
      finished_ = true;
      Finish(status_);
    } else if (!outgoing_.empty()) {
      writing_ = true;
      StartWrite(&outgoing_.front());
    }
  }

  Server& server_;
  std::shared_ptr<FollowerStream> self_;  // until OnDone
  std::shared_ptr<ActiveJob> job_;        // from the subscription on
  int follower_ = 0;
  v1::FollowerMessage incoming_;

  Mutex mutex_;
  std::deque<v1::LeaderMessage> outgoing_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;  // the front of outgoing_
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

// One try of the follower's end: a stream from its opening to its OnDone.
class LeaderStream final : public grpc::ClientBidiReactor<v1::FollowerMessage, v1::LeaderMessage> {
 public:
  LeaderStream(v1::ParameterServer::Stub& stub, Shard& shard) : shard_(shard) {
    stub.async()->Follow(&context_, this);
    AddHold();  // for writes that come from other threads, until Close
    StartRead(&incoming_);
    StartCall();
  }

  void Send(v1::FollowerMessage message) {
    MutexLock lock(mutex_);
    if (closed_) return;
    outgoing_.push_back(std::move(message));
    if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Close();
      return;
    }
    auto entry = ps::FromProto(incoming_.decision());
    // An entry out of order would come from a leader that is not ours: the next subscription tells.
    if (!entry.ok() || entry->index != shard_.next_index()) {
      context_.TryCancel();
    } else {
      shard_.Append(*entry);
      shard_.Flush();
    }
    StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override {
    MutexLock lock(mutex_);
    outgoing_.pop_front();
    if (ok && !closed_ && !outgoing_.empty()) StartWrite(&outgoing_.front());
  }
  void OnDone(const grpc::Status& status) override {
    MutexLock lock(mutex_);
    result_ = net::FromGrpc(status);
    done_ = true;
    changed_.NotifyAll();
  }

  void Cancel() { context_.TryCancel(); }
  // True when the stream has ended.
  bool WaitForEnd(TimePoint deadline) {
    MutexLock lock(mutex_);
    while (!done_ && changed_.WaitUntil(mutex_, deadline)) {
    }
    return done_;
  }
  absl::Status result() {
    MutexLock lock(mutex_);
    return result_;
  }

 private:
  void Close() {
    {
      MutexLock lock(mutex_);
      if (std::exchange(closed_, true)) return;
    }
    RemoveHold();
  }

  Shard& shard_;
  grpc::ClientContext context_;
  v1::LeaderMessage incoming_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<v1::FollowerMessage> outgoing_ ABSL_GUARDED_BY(mutex_);  // the front is being written
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status result_ ABSL_GUARDED_BY(mutex_);
};

// Keeps a stream to the leader open from a thread of its own.
class LeaderLink final : public SequencerPort {
 public:
  LeaderLink(const std::string& address, int index, const v1::Job& job, std::shared_ptr<Shard> shard)
      : address_(address), index_(index), run_id_(job.run_id()), shard_(std::move(shard)) {
    thread_ = Thread("leader-link", [this] { Run(); });
  }
  ~LeaderLink() override {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      if (stream_ != nullptr) stream_->Cancel();
      changed_.NotifyAll();
    }
    thread_.Join();
  }

  void ReportStaged(const Gradient& gradient) override {
    v1::FollowerMessage message;
    *message.mutable_staged() = ToProto(gradient);
    Send(std::move(message));
  }
  void ReportExecuted(int64_t index) override {
    v1::FollowerMessage message;
    message.set_executed(index);
    Send(std::move(message));
  }

 private:
  void Send(v1::FollowerMessage message) {
    MutexLock lock(mutex_);
    if (stream_ != nullptr) stream_->Send(std::move(message));  // else said again after the next subscription
  }

  void Run() {
    const auto channel = net::MakeChannel(address_);
    const auto stub = v1::ParameterServer::NewStub(channel);
    net::Backoff backoff(static_cast<uint64_t>(index_));
    TimePoint last_said = std::chrono::steady_clock::now();
    for (;;) {
      const TimePoint opened = std::chrono::steady_clock::now();
      auto stream = std::make_shared<LeaderStream>(*stub, *shard_);
      v1::FollowerMessage subscribe;
      subscribe.mutable_subscribe()->set_server(index_);
      subscribe.mutable_subscribe()->set_run_id(run_id_);
      subscribe.mutable_subscribe()->set_next_index(shard_->next_index());
      stream->Send(std::move(subscribe));
      {
        MutexLock lock(mutex_);
        if (stopping_) stream->Cancel();
        stream_ = stream;
      }
      for (const Gradient& gradient : shard_->StagedGradients()) ReportStaged(gradient);
      // The stream lasts as long as the job. A dead peer ends it by keepalive, the destructor by Cancel.
      while (!stream->WaitForEnd(std::chrono::steady_clock::now() + std::chrono::seconds(1))) {
      }
      const absl::Status result = stream->result();
      if (absl::IsFailedPrecondition(
              result)) {  // ps/0 has forgotten entries that we lack: waiting does not help
        shard_->Fail(
            absl::AbortedError(absl::StrCat("ps/", index_, " has lost its place: ", result.message())));
        return;
      }
      MutexLock lock(mutex_);
      stream_ = nullptr;
      const TimePoint now = std::chrono::steady_clock::now();
      if (now - last_said > std::chrono::seconds(10) && !stopping_) {
        last_said = now;
        LogWarning("waiting for ps/0 at ", address_, ": ", result.message());
      }
      if (now - opened > std::chrono::seconds(5)) backoff.Reset();  // it worked for a while
      const TimePoint next_try = now + backoff.Next();
      while (!stopping_ && changed_.WaitUntil(mutex_, next_try)) {
      }
      if (stopping_) return;
    }
  }

  const std::string address_;
  const int index_;
  const std::string run_id_;
  const std::shared_ptr<Shard> shard_;

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<LeaderStream> stream_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;
};

Refuse::Reason ReasonOf(v1::Outcome outcome) {
  switch (outcome) {
    case v1::OUTCOME_STALE:
      return Refuse::Reason::kStale;
    case v1::OUTCOME_FINISHED:
      return Refuse::Reason::kFinished;
    default:
      return Refuse::Reason::kNotAMember;
  }
}

}  // namespace

v1::Decision ToProto(const LogEntry& entry) {
  v1::Decision decision;
  decision.set_index(entry.index);
  if (const auto* apply = std::get_if<Apply>(&entry.what)) {
    decision.mutable_apply()->set_version(apply->version);
    for (const Gradient& gradient : apply->contributors) {
      *decision.mutable_apply()->add_contributors() = ToProto(gradient);
    }
  } else if (const auto* refuse = std::get_if<Refuse>(&entry.what)) {
    *decision.mutable_refuse()->mutable_key() = ToProto(refuse->key);
    decision.mutable_refuse()->set_outcome(OutcomeOf(refuse->reason));
    decision.mutable_refuse()->set_staleness(refuse->staleness);
  } else {
    decision.set_mark(std::get<Mark>(entry.what).token);
  }
  return decision;
}

absl::StatusOr<LogEntry> FromProto(const v1::Decision& decision) {
  LogEntry entry = {.index = decision.index(), .what = {}};
  switch (decision.kind_case()) {
    case v1::Decision::kApply: {
      Apply apply;
      apply.version = decision.apply().version();
      for (const auto& contributor : decision.apply().contributors()) {
        apply.contributors.push_back(FromProto(contributor));
      }
      if (apply.contributors.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("decision ", decision.index(), " applies no gradient"));
      }
      entry.what = std::move(apply);
      return entry;
    }
    case v1::Decision::kRefuse:
      entry.what = Refuse{.key = FromProto(decision.refuse().key()),
                          .reason = ReasonOf(decision.refuse().outcome()),
                          .staleness = decision.refuse().staleness()};
      return entry;
    case v1::Decision::kMark:
      entry.what = Mark{decision.mark()};
      return entry;
    default:
      return absl::InvalidArgumentError(absl::StrCat("decision ", decision.index(), " is of no known kind"));
  }
}

grpc::ServerBidiReactor<v1::FollowerMessage, v1::LeaderMessage>* ServeFollower(Server& server) {
  return FollowerStream::Start(server);
}

ActiveJob::LeaderConnector ConnectByGrpc(int index) {
  return [index](const v1::Job& job, std::shared_ptr<Shard> shard) {
    return std::make_unique<LeaderLink>(job.servers(0), index, job, std::move(shard));
  };
}

}  // namespace cairn::ps
