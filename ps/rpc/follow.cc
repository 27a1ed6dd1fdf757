#include "ps/rpc/follow.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/log.h"
#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/net/grpc/backoff.h"
#include "common/net/grpc/grpc_streams.h"
#include "common/net/grpc/grpc_util.h"
#include "common/net/grpc/unreachable.h"
#include "common/system/thread.h"
#include "ps/log/follow_proto.h"
#include "ps/rpc/received_decision.h"

namespace cairn::ps {
namespace {

constexpr auto kLogEvery = std::chrono::seconds(10);
// A stream that lasted at least this long resets the backoff.
constexpr auto kWorked = std::chrono::seconds(5);
// A follower reports executed entries at this interval. ps/0 only forgets them then, and a message for each
// would cost as much as a push.
constexpr int64_t kReportEvery = 64;

// The side of ps/0: one follower's stream. The sequencer appends the log to it.
class FollowerStream final : public grpc::ServerBidiReactor<v1::FollowerMessage, v1::LeaderMessage>,
                             public LogSink {
 public:
  static FollowerStream* Start(Server& server, Permissions permissions) {
    auto stream = std::make_shared<FollowerStream>(server, std::move(permissions));
    stream->self_ = stream;
    stream->StartRead(&stream->incoming_);
    return stream.get();
  }
  FollowerStream(Server& server, Permissions permissions)
      : server_(server), permissions_(std::move(permissions)) {}

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
  void End(const absl::Status& reason) override { End(net::ToGrpc(reason)); }
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
    self_.reset();  // may delete this
  }

 private:
  absl::Status Handle(const v1::FollowerMessage& message) {
    if (message.has_subscribe()) {
      if (job_ != nullptr) return absl::InvalidArgumentError("a stream may subscribe only once");
      CAIRN_RETURN_IF_ERROR(permissions_.CheckFollow(message.subscribe().server()));
      auto job = server_.JobToFollow(message.subscribe().run_id(), message.subscribe().generation());
      if (!job.ok()) return job.status();
      if (message.subscribe().server() < 1 || message.subscribe().server() >= (*job)->job().servers_size()) {
        return absl::InvalidArgumentError(absl::StrCat("ps/", message.subscribe().server(),
                                                       " cannot subscribe to a job on ",
                                                       (*job)->job().servers_size(), " servers"));
      }
      follower_ = message.subscribe().server();
      job_ = *std::move(job);
      return job_->sequencer()->Subscribe(follower_, message.subscribe().next_index(), self_,
                                          message.subscribe().epoch());
    }
    if (job_ == nullptr) return absl::InvalidArgumentError("the first message must subscribe");
    if (message.has_staged()) {
      CAIRN_ASSIGN_OR_RETURN(const Gradient gradient, FromProto(message.staged()));
      if (gradient.key.worker >= job_->most_workers()) {
        return absl::InvalidArgumentError(absl::StrCat("ps/", follower_, " reports a push of worker ",
                                                       gradient.key.worker, ", but the number of workers is ",
                                                       job_->most_workers()));
      }
      job_->sequencer()->OnStaged(follower_, gradient);
    } else if (message.has_sums()) {
      CAIRN_ASSIGN_OR_RETURN(Sums sums, FromProto(message.sums()));
      job_->sequencer()->OnSums(follower_, std::move(sums));
    } else if (message.has_waiting()) {
      job_->sequencer()->OnWaiting(follower_, message.waiting());
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
  // Starts the next write, or finishes the stream if it is ending.
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
  const Permissions permissions_;
  std::shared_ptr<FollowerStream> self_;  // until OnDone
  std::shared_ptr<ActiveJob> job_;        // set by the subscription
  int follower_ = 0;
  v1::FollowerMessage incoming_;

  Mutex mutex_;
  // Entries that the follower has not executed. The sequencer's log contains them too and bounds
  // their number.
  std::deque<v1::LeaderMessage> outgoing_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;  // outgoing_.front() is being written
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

// The follower's side: one attempt, from the opening of a stream to its end. While ps/0 makes no progress,
// nothing is decided. Therefore the outgoing queue is bounded: it holds reports of the pushes that this shard
// may stage (PushTable::kMaxStaged) and of the entries received before.
class LeaderStream final : public net::ClientStream<v1::FollowerMessage, v1::LeaderMessage> {
 public:
  LeaderStream(v1::ParameterServer::Stub& stub, Shard& shard) : shard_(shard) {
    context().AddMetadata(net::kShardMetadata, "0");
    stub.async()->Follow(&context(), reactor());
    Open();
  }
  ~LeaderStream() {
    Cancel();
    AwaitEnd();
  }

  void Send(v1::FollowerMessage message) { Write(std::move(message)); }
  // Valid after AwaitEnd().
  const absl::Status& result() const { return result_; }

 private:
  absl::Status OnMessage(const v1::LeaderMessage& message) override {
    CAIRN_RETURN_IF_ERROR(Follow(message.decision(), shard_));
    shard_.Flush();
    return absl::OkStatus();
  }
  void OnEnd(const absl::Status& status) override { result_ = status; }

  Shard& shard_;
  absl::Status result_;
};

// Keeps a stream to the sequencer open, in its own thread. With replication, the sequencer may run on the
// promoted backup.
class LeaderLink final : public SequencerPort {
 public:
  LeaderLink(int index, net::Credentials credentials, const v1::Job& job, std::shared_ptr<Shard> shard,
             int64_t epoch)
      : addresses_(AddressesOf(job)),
        credentials_(std::move(credentials)),
        index_(index),
        epoch_(epoch),
        run_id_(job.run_id()),
        generation_(job.generation()),
        shard_(std::move(shard)) {
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
  void ReportSums(Sums sums) override {
    v1::FollowerMessage message;
    *message.mutable_sums() = ToProto(sums);
    Send(std::move(message));
  }
  void ReportExecuted(int64_t index) override {
    MutexLock lock(mutex_);
    if (stream_ == nullptr || index - reported_ < kReportEvery) return;
    reported_ = index;
    v1::FollowerMessage message;
    message.set_executed(index);
    stream_->Send(std::move(message));
  }
  void ReportWaiting(int64_t index) override {
    v1::FollowerMessage message;
    message.set_waiting(index);
    Send(std::move(message));
  }

 private:
  static std::vector<std::string> AddressesOf(const v1::Job& job) {
    std::vector<std::string> addresses = {job.servers(0)};
    if (job.ps_replication() > 0) addresses.push_back(job.servers(1));
    return addresses;
  }

  void Send(v1::FollowerMessage message) {
    MutexLock lock(mutex_);
    // Without a stream, the report is sent after the next subscription.
    if (stream_ != nullptr) stream_->Send(std::move(message));
  }

  void Run() {
    std::vector<std::unique_ptr<v1::ParameterServer::Stub>> stubs;  // [index in addresses_]
    for (const std::string& address : addresses_) {
      stubs.push_back(v1::ParameterServer::NewStub(net::MakeChannel(address, credentials_)));
    }
    net::Backoff backoff(static_cast<uint64_t>(index_));
    TimePoint waiting_since = std::chrono::steady_clock::now();
    TimePoint next_log = waiting_since + kLogEvery;
    for (size_t attempt = 0;; ++attempt) {
      const size_t here = attempt % stubs.size();
      const TimePoint opened = std::chrono::steady_clock::now();
      const std::shared_ptr<LeaderStream> stream = Subscribe(*stubs[here]);
      // The stream lasts as long as the job. It ends by keepalive if the peer is dead, by Cancel() below if
      // the peer's backup has been promoted, and by Cancel() in the destructor.
      while (!stream->AwaitEnd(std::chrono::steady_clock::now() + std::chrono::seconds(1))) {
        const size_t other = (here + 1) % stubs.size();
        if (other != here && Leads(*stubs[other])) stream->Cancel();
      }
      const absl::Status result = stream->result();
      if (const absl::Status failure = CheckMayRetry(result, addresses_[here]); !failure.ok()) {
        shard_->Fail(failure);
        return;
      }
      MutexLock lock(mutex_);
      stream_ = nullptr;
      const TimePoint now = std::chrono::steady_clock::now();
      if (now - opened > kWorked) {
        backoff.Reset();
        waiting_since = now;
        next_log = now + kLogEvery;
      }
      // Not logged at once, because at the end of a job ps/0 is often the first to stop.
      if (now >= next_log && !stopping_) {
        next_log = now + kLogEvery;
        LogWarning("waiting for ps/0 at ", addresses_[here], " for ",
                   std::chrono::duration_cast<std::chrono::seconds>(now - waiting_since).count(),
                   " s: ", net::WhyUnreachable(result));
      }
      // Try the other address at once, then the first one again, a little later.
      const bool other_next = here + 1 < stubs.size();
      const TimePoint next_try = now + (other_next ? std::chrono::milliseconds(0) : backoff.Next());
      while (!stopping_ && changed_.WaitUntil(mutex_, next_try)) {
      }
      if (stopping_) return;
    }
  }

  // Opens a stream, subscribes to the log from the next entry on, and reports what has no answer yet.
  std::shared_ptr<LeaderStream> Subscribe(v1::ParameterServer::Stub& stub) {
    auto stream = std::make_shared<LeaderStream>(stub, *shard_);
    v1::FollowerMessage subscribe;
    subscribe.mutable_subscribe()->set_server(index_);
    subscribe.mutable_subscribe()->set_run_id(run_id_);
    subscribe.mutable_subscribe()->set_generation(generation_);
    subscribe.mutable_subscribe()->set_next_index(shard_->next_index());
    subscribe.mutable_subscribe()->set_epoch(epoch_);
    stream->Send(std::move(subscribe));
    {
      MutexLock lock(mutex_);
      if (stopping_) stream->Cancel();
      stream_ = stream;
      reported_ = 0;
    }
    for (const Gradient& gradient : shard_->StagedGradients()) ReportStaged(gradient);
    if (auto sums = shard_->UnansweredSums()) ReportSums(*std::move(sums));
    return stream;
  }

  // OK if another stream may succeed after one to `address` ended with `result`; otherwise the job's failure.
  absl::Status CheckMayRetry(const absl::Status& result, const std::string& address) const {
    // If ps/0 has forgotten entries that this server lacks, waiting does not help.
    if (absl::IsFailedPrecondition(result)) {
      return absl::AbortedError(
          absl::StrCat("ps/", index_, " has lost its position in the log: ", result.message()));
    }
    if (absl::IsUnauthenticated(result) || absl::IsPermissionDenied(result)) {
      return Annotate(result, absl::StrCat("ps/", index_, " was refused by ps/0 at ", address));
    }
    return absl::OkStatus();
  }

  // Whether the server at `stub` serves ps/0's shard of this job, and so runs the sequencer.
  bool Leads(v1::ParameterServer::Stub& stub) const {
    grpc::ClientContext context;
    net::SetDeadline(context, std::chrono::milliseconds(500));
    context.AddMetadata(net::kShardMetadata, "0");
    v1::ConnectRequest request;
    request.set_protocol(net::kProtocolVersion);
    request.set_client(absl::StrCat("ps/", index_));
    v1::ConnectResponse response;
    return stub.Connect(&context, request, &response).ok() && response.state() == v1::STATE_READY &&
           response.job().run_id() == run_id_ && response.job().generation() == generation_;
  }

  // The addresses of the servers that may run the sequencer: ps/0's and, with replication, its backup's.
  const std::vector<std::string> addresses_;
  const net::Credentials credentials_;
  const int index_;
  const int64_t epoch_;
  const std::string run_id_;
  const int64_t generation_;
  const std::shared_ptr<Shard> shard_;

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<LeaderStream> stream_ ABSL_GUARDED_BY(mutex_);
  int64_t reported_ ABSL_GUARDED_BY(mutex_) =
      0;  // index of the last entry reported as executed on this stream
  Thread thread_;
};

}  // namespace

grpc::ServerBidiReactor<v1::FollowerMessage, v1::LeaderMessage>* ServeFollower(Server& server,
                                                                               Permissions permissions) {
  return FollowerStream::Start(server, std::move(permissions));
}

ActiveJob::LeaderConnector ConnectByGrpc(int index, net::Credentials credentials) {
  return [index, credentials = std::move(credentials)](const v1::Job& job, std::shared_ptr<Shard> shard,
                                                       int64_t epoch) {
    return std::make_unique<LeaderLink>(index, credentials, job, std::move(shard), epoch);
  };
}

}  // namespace cairn::ps
