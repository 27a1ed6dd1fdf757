#include "worker/allreduce/local_link.h"

#include <poll.h>

#include <chrono>
#include <thread>
#include <utility>

#include "common/core/log.h"
#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/net/local/stream.h"
#include "worker/allreduce/chunks.h"

namespace cairn::allreduce {
namespace {

static_assert(kMostChunkFloats <= net::LocalStream::kPieceFloats);

// How often the listening thread looks after streams that have ended, and whether it is to stop.
constexpr auto kLookEvery = std::chrono::milliseconds(100);
// One neighbour has one, and another when it was started again.
constexpr size_t kMostSessions = 8;

absl::Status Closed() {
  return absl::UnavailableError("it has closed the stream");
}

absl::Status Parse(absl::Span<const char> bytes, v1::RingHeader* header) {
  if (header->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return absl::OkStatus();
  return absl::InvalidArgumentError("frame: malformed header");
}

// The calling end.
class LocalOutgoing final : public RingStream, net::LocalReceiver {
 public:
  static absl::StatusOr<std::unique_ptr<RingStream>> Open(const v1::GreetResponse& greeted, bool shared,
                                                          RingHandler& handler) {
    CAIRN_ASSIGN_OR_RETURN(FileDescriptor socket, net::ConnectLocally(greeted.local_socket()));
    std::unique_ptr<LocalOutgoing> opened(new LocalOutgoing(handler));
    CAIRN_ASSIGN_OR_RETURN(
        opened->stream_,
        net::LocalStream::Connect(std::move(socket), shared,
                                  {.incarnation = greeted.incarnation(), .lends = shared}, *opened));
    opened->stream_->Start();
    return std::unique_ptr<RingStream>(std::move(opened));
  }
  ~LocalOutgoing() override {
    if (stream_ != nullptr) stream_->Close();
  }

  void Send(const v1::RingHeader& header, net::FloatSpans payload,
            const std::shared_ptr<const void>& owner) override {
    stream_->Send(header.SerializeAsString(), payload, owner);
  }
  void End(const absl::Status& why) override {
    {
      MutexLock lock(mutex_);
      if (why_.ok()) why_ = why;
    }
    stream_->Abort();
  }

 private:
  explicit LocalOutgoing(RingHandler& handler) : handler_(handler) {}

  absl::Status OnMessage(absl::Span<const char> bytes, net::Payload payload) override {
    v1::RingHeader header;
    CAIRN_RETURN_IF_ERROR(Parse(bytes, &header));
    if (!header.has_broken()) return handler_.OnFrame(header, payload);
    // What the called end's End() was told.
    const auto code = static_cast<absl::StatusCode>(header.broken().code());
    return code == absl::StatusCode::kOk ? Closed() : absl::Status(code, header.broken().message());
  }
  void OnEnd(const absl::Status& status) override {
    absl::Status why = absl::IsCancelled(status) ? Closed() : status;
    {
      MutexLock lock(mutex_);
      if (!why_.ok()) why = why_;
    }
    handler_.OnClosed(why);
  }

  RingHandler& handler_;
  std::unique_ptr<net::LocalStream> stream_;
  Mutex mutex_;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);  // this end ended it
};

class LocalPeer final : public RingPeer {
 public:
  LocalPeer(std::unique_ptr<RingPeer> other, client::Transport transport,
            std::function<void(const std::string&)> say)
      : other_(std::move(other)), transport_(transport), say_(std::move(say)) {}

  absl::Status Greet(const v1::GreetRequest& request, v1::GreetResponse* response,
                     std::chrono::milliseconds timeout) override {
    return other_->Greet(request, response, timeout);
  }
  std::unique_ptr<RingStream> Open(const v1::GreetResponse& greeted, RingHandler& handler) override {
    if (!greeted.local_socket().empty()) {
      for (const client::Transport transport : {client::Transport::kShm, client::Transport::kUnix}) {
        if (transport == client::Transport::kShm && transport_ != transport) continue;
        const bool shared = transport == client::Transport::kShm;
        auto stream = LocalOutgoing::Open(greeted, shared, handler);
        if (stream.ok()) {
          Say(shared ? "shared memory" : "a Unix socket");
          return *std::move(stream);
        }
        if (absl::IsDeadlineExceeded(stream.status())) break;  // it stands still
      }
    }
    Say("gRPC");
    return other_->Open(greeted, handler);
  }

 private:
  void Say(const std::string& how) const {
    if (say_ != nullptr) say_(how);
  }

  const std::unique_ptr<RingPeer> other_;
  const client::Transport transport_;
  const std::function<void(const std::string&)> say_;
};

}  // namespace

// The called end. Owned by the service until it has ended, and by whoever sends back on it at the moment.
class LocalRingSession final : public net::LocalReceiver {
 public:
  static absl::StatusOr<std::shared_ptr<LocalRingSession>> Start(RingHost& host, FileDescriptor connection,
                                                                 uint64_t incarnation) {
    auto session = std::make_shared<LocalRingSession>();
    CAIRN_ASSIGN_OR_RETURN(session->stream_,
                           net::LocalStream::Accept(std::move(connection), /*shared=*/true,
                                                    {.incarnation = incarnation, .lends = true}, *session));
    session->handler_ = host.OnStream(std::make_shared<Back>(session));
    session->stream_->Start();
    return session;
  }

  absl::Status OnMessage(absl::Span<const char> bytes, net::Payload payload) override {
    v1::RingHeader header;
    CAIRN_RETURN_IF_ERROR(Parse(bytes, &header));
    return handler_->OnFrame(header, payload);
  }
  void OnEnd(const absl::Status& status) override {
    handler_->OnClosed(absl::IsCancelled(status) ? Closed() : status);
  }

  net::LocalStream& stream() { return *stream_; }

 private:
  struct Back final : RingStream {
    explicit Back(std::weak_ptr<LocalRingSession> session_in) : session(std::move(session_in)) {}
    void Send(const v1::RingHeader& header, net::FloatSpans payload,
              const std::shared_ptr<const void>& owner) override {
      if (const auto held = session.lock()) held->stream().Send(header.SerializeAsString(), payload, owner);
    }
    // The calling end closes the stream when it has come that far.
    void End(const absl::Status& why) override {
      v1::RingHeader header;
      header.mutable_broken()->set_code(static_cast<int>(why.code()));
      header.mutable_broken()->set_message(std::string(why.message()));
      Send(header, {}, nullptr);
    }
    const std::weak_ptr<LocalRingSession> session;
  };

  std::shared_ptr<RingHandler> handler_;
  std::unique_ptr<net::LocalStream> stream_;  // its thread calls the above: ends first
};

std::unique_ptr<RingPeer> MakeLocalPeer(std::unique_ptr<RingPeer> other, client::Transport transport,
                                        std::function<void(const std::string&)> say) {
  return std::make_unique<LocalPeer>(std::move(other), transport, std::move(say));
}

LocalRingService::LocalRingService(RingHost& host, net::LocalListener listener, uint64_t incarnation)
    : host_(host), incarnation_(incarnation), listener_(std::move(listener)) {
  thread_ = Thread("ring-listen", [this] { Listen(); });
}

LocalRingService::~LocalRingService() {
  stopping_ = true;
  thread_.Join();
  for (const auto& session : sessions_) session->stream().Close();
}

void LocalRingService::Listen() {
  while (!stopping_) {
    pollfd ready = {.fd = listener_.socket.get(), .events = POLLIN, .revents = 0};
    const bool waiting = poll(&ready, 1, static_cast<int>(kLookEvery.count())) > 0;
    std::erase_if(sessions_, [](const auto& session) { return session->stream().ended(); });
    if (!waiting) continue;
    FileDescriptor connection = net::AcceptLocally(listener_.socket);
    if (!connection.valid() || sessions_.size() >= kMostSessions) {
      std::this_thread::sleep_for(kLookEvery);  // others end
      continue;
    }
    auto session = LocalRingSession::Start(host_, std::move(connection), incarnation_);
    if (session.ok()) {
      sessions_.push_back(*std::move(session));
    } else {
      LogWarning("a stream of a worker of this host was not begun: ", session.status().message());
    }
  }
}

}  // namespace cairn::allreduce
