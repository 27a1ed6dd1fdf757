#include "ps/rpc/data_channel_service.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/net/data_channel/stream/fragments.h"
#include "common/net/data_channel/stream/stream.h"
#include "common/net/wire/outbox.h"
#include "ps/rpc/backup_receiver.h"
#include "ps/rpc/session.h"

namespace cairn::ps {
namespace {

// How often the listening thread checks for ended sessions and for the end of the service.
constexpr auto kLookEvery = std::chrono::milliseconds(100);
constexpr size_t kFragmentsOfFrame = net::kMaxPayloadFloats / net::DataStream::kFragmentFloats;
// Limit on the time for which a client reads nothing, because values cannot be freed while it does not read
// them. gRPC also detects such a client after 15 s.
constexpr auto kStallLimit = std::chrono::seconds(15);
// Limits on idle sessions, because a session has a thread and descriptors. A client's first request follows
// its handshake at once. A client whose idle session was closed opens another one for its next request.
constexpr auto kFirstLimit = std::chrono::seconds(20);
constexpr auto kIdleLimit = std::chrono::minutes(15);

// Sends a session's answers on a stream.
class StreamSink final : public SessionSink {
 public:
  explicit StreamSink(std::shared_ptr<net::DataStream> stream) : stream_(std::move(stream)) {}

  void Send(const v1::ServerHeader& header, net::FloatSpans payload,
            const std::shared_ptr<const void>& owner) override {
    net::SendInFragments(*stream_, header, payload, owner, /*ranked=*/false);
  }
  void SendValues(const v1::ServerHeader& header, net::FloatSpans payload,
                  const std::shared_ptr<const void>& owner) override {
    net::SendInFragments(*stream_, header, payload, owner, /*ranked=*/true);
  }
  void Allow(uint64_t bytes) override { stream_->Allow(bytes); }

 private:
  const std::shared_ptr<net::DataStream> stream_;
};

// The frames of a client that pushes and reads.
class SessionReceiver final : public net::DataReceiver {
 public:
  SessionReceiver(Server& server, std::shared_ptr<net::DataStream> stream)
      : session_(server, std::make_shared<StreamSink>(std::move(stream))) {}

  absl::StatusOr<absl::Span<char>> Begin(absl::Span<const char> header, size_t bytes) override {
    if (!header_.ParseFromArray(header.data(), static_cast<int>(header.size()))) {
      return absl::InvalidArgumentError("frame: malformed header");
    }
    return session_.BeginFrame(header_, bytes);
  }
  absl::Status Complete(net::Payload payload) override { return session_.CompleteFrame(payload); }
  bool OwesAnswer() override { return session_.owes_answer(); }
  void OnEnd(const absl::Status&) override {}

 private:
  Session session_;
  v1::ClientHeader header_;  // of the message that is being received
};

}  // namespace

// One client's stream. Owned by the service until it has ended, and by the answers that still refer to it.
class DataChannelSession final : public net::DataReceiver {
 public:
  static absl::StatusOr<std::shared_ptr<DataChannelSession>> Start(
      HostedShards& shards, net::DataListeners::Connection connection,
      const DataChannelService::Options& options) {
    auto session = std::make_shared<DataChannelSession>(shards);
    CAIRN_ASSIGN_OR_RETURN(
        session->stream_,
        net::DataStream::Accept(std::move(connection.socket), connection.local && options.shared_memory,
                                {.incarnation = options.incarnation,
                                 .key = connection.key,
                                 .rest_above = net::Outbox<int>::kMaxBeforeBackpressure * kFragmentsOfFrame,
                                 .stall_limit = kStallLimit,
                                 .idle_limit = kIdleLimit,
                                 .first_limit = kFirstLimit,
                                 .offers_memory = true},
                                *session));
    session->self_ = session;
    CAIRN_RETURN_IF_ERROR(session->stream_->Start());
    return session;
  }
  explicit DataChannelSession(HostedShards& shards) : shards_(shards) {}

  absl::Status OnHandshake(const net::StreamTarget& target) override {
    const int shard = target.shard == static_cast<int>(target.shard) ? static_cast<int>(target.shard) : -1;
    // Answers keep the stream by keeping this session.
    const auto stream = [this] { return std::shared_ptr<net::DataStream>(self_.lock(), stream_.get()); };
    if (target.replicates) {
      CAIRN_ASSIGN_OR_RETURN(Server* const backup, shards_.ForBackup(shard));
      receiver_ = ReceiveForBackup(backup->hosted_job(), stream());
      return absl::OkStatus();
    }
    Server* server = &shards_.own();
    if (target.shard != net::StreamTarget::kOwnShard) {
      CAIRN_ASSIGN_OR_RETURN(server, shards_.Serving(shard));
    }
    receiver_ = std::make_unique<SessionReceiver>(*server, stream());
    return absl::OkStatus();
  }
  absl::StatusOr<absl::Span<char>> Begin(absl::Span<const char> header, size_t bytes) override {
    return receiver_->Begin(header, bytes);
  }
  absl::Status Complete(net::Payload payload) override { return receiver_->Complete(payload); }
  bool OwesAnswer() override { return receiver_ != nullptr && receiver_->OwesAnswer(); }
  void OnEnd(const absl::Status&) override { receiver_.reset(); }

  net::DataStream& stream() { return *stream_; }

 private:
  HostedShards& shards_;
  std::weak_ptr<DataChannelSession> self_;
  // Used by the stream's thread, from the handshake to the end. The receiver's sink refers to this session until
  // then.
  std::unique_ptr<net::DataReceiver> receiver_;
  std::unique_ptr<net::DataStream> stream_;
};

DataChannelService::DataChannelService(HostedShards& shards, net::DataListeners listeners,
                                       const Options& options)
    : shards_(shards), options_(options), listeners_(std::move(listeners)) {
  thread_ = Thread("data-listen", [this] { Listen(); });
}

DataChannelService::~DataChannelService() {
  Stop(std::chrono::milliseconds(0));
}

void DataChannelService::Listen() {
  while (!stopping_) {
    if (auto connection = listeners_.Accept(kLookEvery)) Admit(*std::move(connection));
    Reap();
  }
}

void DataChannelService::Admit(net::DataListeners::Connection connection) {
  Reap();
  MutexLock lock(mutex_);
  if (sessions_.size() >= options_.most_sessions) return;
  auto session = DataChannelSession::Start(shards_, std::move(connection), options_);
  if (session.ok()) {
    sessions_.push_back(*std::move(session));
  } else {
    LogWarning("cannot start a session: ", session.status().message());
  }
}

void DataChannelService::Reap() {
  std::vector<std::shared_ptr<DataChannelSession>> ended;  // joined outside the lock
  {
    MutexLock lock(mutex_);
    const auto first = std::partition(sessions_.begin(), sessions_.end(),
                                      [](const auto& session) { return !session->stream().ended(); });
    ended.assign(std::make_move_iterator(first), std::make_move_iterator(sessions_.end()));
    sessions_.erase(first, sessions_.end());
  }
  for (const auto& session : ended) session->stream().Close();
}

void DataChannelService::Stop(std::chrono::milliseconds grace) {
  stopping_ = true;
  thread_.Join();
  listeners_.Close();
  const auto deadline = std::chrono::steady_clock::now() + grace;
  for (;;) {
    Reap();
    {
      MutexLock lock(mutex_);
      if (sessions_.empty()) return;
      if (std::chrono::steady_clock::now() >= deadline) break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::vector<std::shared_ptr<DataChannelSession>> left;
  {
    MutexLock lock(mutex_);
    left.swap(sessions_);
  }
  for (const auto& session : left)
    session->stream().Abort();  // Close() takes some time if the peer reads nothing
  for (const auto& session : left) session->stream().Close();
}

}  // namespace cairn::ps
