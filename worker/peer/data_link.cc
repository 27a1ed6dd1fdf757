#include "worker/peer/data_link.h"

#include <chrono>
#include <thread>
#include <utility>

#include "common/core/log.h"
#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/net/data_channel/data_endpoint.h"
#include "common/net/data_channel/stream/stream.h"
#include "worker/peer/chunks.h"

namespace cairn::allreduce {
namespace {

static_assert(kMaxChunkFloats <= net::DataStream::kFragmentFloats);

// How often the listening thread removes streams that have ended, and checks whether to stop.
constexpr auto kLookEvery = std::chrono::milliseconds(100);
// The maximum number of open streams. A neighbour has one stream, or two for a moment after its restart.
constexpr size_t kMaxSessions = 8;

absl::Status Closed() {
  return absl::UnavailableError("it has closed the stream");
}

absl::Status Parse(absl::Span<const char> bytes, v1::RingHeader* header) {
  if (header->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return absl::OkStatus();
  return absl::InvalidArgumentError("frame: malformed header");
}

// The end that opened the stream.
class DataOutgoing final : public RingStream, net::DataReceiver {
 public:
  static absl::StatusOr<std::unique_ptr<RingStream>> Open(const std::string& address,
                                                          const v1::GreetResponse& greeted,
                                                          net::Transport transport, RingHandler& handler) {
    CAIRN_ASSIGN_OR_RETURN(
        FileDescriptor socket,
        net::ConnectDataChannel(address, transport, net::FromProto(greeted.data_endpoint())));
    const bool shared = transport == net::Transport::kShm;
    std::unique_ptr<DataOutgoing> opened(new DataOutgoing(handler));
    CAIRN_ASSIGN_OR_RETURN(opened->stream_, net::DataStream::Connect(std::move(socket), shared,
                                                                     {.incarnation = greeted.incarnation(),
                                                                      .key = greeted.data_endpoint().key(),
                                                                      .offers_memory = shared},
                                                                     *opened));
    CAIRN_RETURN_IF_ERROR(opened->stream_->Start());
    return std::unique_ptr<RingStream>(std::move(opened));
  }
  ~DataOutgoing() override {
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
  explicit DataOutgoing(RingHandler& handler) : handler_(handler) {}

  absl::StatusOr<absl::Span<char>> Begin(absl::Span<const char> header, size_t) override {
    CAIRN_RETURN_IF_ERROR(Parse(header, &header_));
    return absl::Span<char>();
  }
  absl::Status Complete(net::Payload payload) override {
    if (!header_.has_broken()) return handler_.OnFrame(header_, payload);
    // End() at the other end was called with this status.
    const auto code = static_cast<absl::StatusCode>(header_.broken().code());
    return code == absl::StatusCode::kOk ? Closed() : absl::Status(code, header_.broken().message());
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
  v1::RingHeader header_;  // of the message that is being received
  std::unique_ptr<net::DataStream> stream_;
  Mutex mutex_;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);  // the reason, if this end ended the stream
};

class DataPeer final : public RingPeer {
 public:
  DataPeer(std::unique_ptr<RingPeer> other, const std::string& address, net::Transport transport,
           std::function<void(const std::string&)> say)
      : other_(std::move(other)), address_(address), transport_(transport), say_(std::move(say)) {}

  absl::Status Greet(const v1::GreetRequest& request, v1::GreetResponse* response,
                     std::chrono::milliseconds timeout) override {
    return other_->Greet(request, response, timeout);
  }
  std::unique_ptr<RingStream> Open(const v1::GreetResponse& greeted, RingHandler& handler) override {
    for (auto way = transport_; way != net::Transport::kGrpc; way = net::NextBest(way)) {
      auto stream = DataOutgoing::Open(address_, greeted, way, handler);
      if (stream.ok()) {
        LogTransport(way);
        return *std::move(stream);
      }
      if (absl::IsDeadlineExceeded(stream.status())) break;  // the neighbour does not respond
    }
    LogTransport(net::Transport::kGrpc);
    return other_->Open(greeted, handler);
  }

 private:
  void LogTransport(net::Transport way) const {
    if (say_ != nullptr) say_(net::InWords(way));
  }

  const std::unique_ptr<RingPeer> other_;
  const std::string address_;
  const net::Transport transport_;
  const std::function<void(const std::string&)> say_;
};

}  // namespace

// The end that accepted the stream. Owned by the service until the stream has ended, and by every thread that
// is sending on it.
class DataRingSession final : public net::DataReceiver {
 public:
  static absl::StatusOr<std::shared_ptr<DataRingSession>> Start(RingHost& host,
                                                                net::DataListeners::Connection connection,
                                                                uint64_t incarnation) {
    auto session = std::make_shared<DataRingSession>();
    CAIRN_ASSIGN_OR_RETURN(
        session->stream_,
        net::DataStream::Accept(std::move(connection.socket), /*shared=*/connection.local,
                                {.incarnation = incarnation, .key = connection.key, .offers_memory = true},
                                *session));
    session->handler_ = host.OnStream(std::make_shared<Back>(session));
    if (absl::Status started = session->stream_->Start(); !started.ok()) {
      session->handler_->OnClosed(started);
      return started;
    }
    return session;
  }

  absl::StatusOr<absl::Span<char>> Begin(absl::Span<const char> header, size_t) override {
    CAIRN_RETURN_IF_ERROR(Parse(header, &header_));
    return absl::Span<char>();
  }
  absl::Status Complete(net::Payload payload) override { return handler_->OnFrame(header_, payload); }
  void OnEnd(const absl::Status& status) override {
    handler_->OnClosed(absl::IsCancelled(status) ? Closed() : status);
  }

  net::DataStream& stream() { return *stream_; }

 private:
  struct Back final : RingStream {
    explicit Back(std::weak_ptr<DataRingSession> session_in) : session(std::move(session_in)) {}
    void Send(const v1::RingHeader& header, net::FloatSpans payload,
              const std::shared_ptr<const void>& owner) override {
      if (const auto held = session.lock()) held->stream().Send(header.SerializeAsString(), payload, owner);
    }
    // The other end closes the stream when it has received this.
    void End(const absl::Status& why) override {
      v1::RingHeader header;
      header.mutable_broken()->set_code(static_cast<int>(why.code()));
      header.mutable_broken()->set_message(std::string(why.message()));
      Send(header, {}, nullptr);
    }
    const std::weak_ptr<DataRingSession> session;
  };

  std::shared_ptr<RingHandler> handler_;
  v1::RingHeader header_;                    // of the message that is being received
  std::unique_ptr<net::DataStream> stream_;  // its thread calls the methods above: destroyed first
};

std::unique_ptr<RingPeer> MakeDataPeer(std::unique_ptr<RingPeer> other, const std::string& address,
                                       net::Transport transport,
                                       std::function<void(const std::string&)> say) {
  return std::make_unique<DataPeer>(std::move(other), address, transport, std::move(say));
}

DataRingService::DataRingService(RingHost& host, net::DataListeners listeners, uint64_t incarnation)
    : host_(host), incarnation_(incarnation), listeners_(std::move(listeners)) {
  thread_ = Thread("ring-listen", [this] { Listen(); });
}

DataRingService::~DataRingService() {
  stopping_ = true;
  thread_.Join();
  for (const auto& session : sessions_) session->stream().Close();
}

void DataRingService::Listen() {
  while (!stopping_) {
    auto connection = listeners_.Accept(kLookEvery);
    std::erase_if(sessions_, [](const auto& session) { return session->stream().ended(); });
    if (!connection.has_value()) continue;
    if (sessions_.size() >= kMaxSessions) {
      std::this_thread::sleep_for(kLookEvery);  // the neighbour may end streams meanwhile
      continue;
    }
    auto session = DataRingSession::Start(host_, *std::move(connection), incarnation_);
    if (session.ok()) {
      sessions_.push_back(*std::move(session));
    } else {
      LogWarning("a stream of another worker could not be accepted: ", session.status().message());
    }
  }
}

}  // namespace cairn::allreduce
