#include "worker/client/local_transport.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/net/local/pieces.h"
#include "common/net/local/socket.h"
#include "common/net/local/stream.h"

namespace cairn::client {
namespace {

// To a server.
struct Way {
  Transport transport = Transport::kTcp;
  std::string socket;
  uint64_t incarnation = 0;  // of the process
};

// Where a server is, and what ways there have been seen to work.
class Place {
 public:
  explicit Place(LocalTransportOptions options) : options_(std::move(options)) {}

  Way way() const {
    MutexLock lock(mutex_);
    return way_;
  }
  // What the server said of itself now.
  void Learn(const v1::ConnectResponse& response) {
    MutexLock lock(mutex_);
    const uint64_t process = response.process() != 0 ? response.process() : response.incarnation();
    if (response.local_socket() == way_.socket && process == way_.incarnation) return;
    way_ = {.transport = response.local_socket().empty() ? Transport::kTcp : options_.transport,
            .socket = response.local_socket(),
            .incarnation = process};
  }
  // No stream can be had this way: the next ones take the next best.
  void Fail(const Way& way) {
    MutexLock lock(mutex_);
    if (way_.socket != way.socket || way_.transport != way.transport) return;
    way_.transport = way.transport == Transport::kShm ? Transport::kUnix : Transport::kTcp;
  }
  void Say(Transport used) {
    {
      MutexLock lock(mutex_);
      if (std::exchange(said_, used) == used) return;
    }
    if (options_.say == nullptr) return;
    options_.say(used == Transport::kShm    ? "shared memory"
                 : used == Transport::kUnix ? "a Unix socket"
                                            : "gRPC");
  }

 private:
  const LocalTransportOptions options_;
  mutable Mutex mutex_;
  Way way_ ABSL_GUARDED_BY(mutex_);
  std::optional<Transport> said_ ABSL_GUARDED_BY(mutex_);
};

class LocalFrameStream final : public FrameStream, net::LocalReceiver {
 public:
  static absl::StatusOr<std::unique_ptr<FrameStream>> Open(const Way& way, std::optional<int> part,
                                                           FrameHandler& handler) {
    CAIRN_ASSIGN_OR_RETURN(FileDescriptor socket, net::ConnectLocally(way.socket));
    std::unique_ptr<LocalFrameStream> opened(new LocalFrameStream(handler));
    CAIRN_ASSIGN_OR_RETURN(opened->stream_,
                           net::LocalStream::Connect(std::move(socket), way.transport == Transport::kShm,
                                                     {.incarnation = way.incarnation,
                                                      .part = part.value_or(net::LocalStream::kOwnPart),
                                                      .lends = true},
                                                     *opened));
    opened->stream_->Start();
    return std::unique_ptr<FrameStream>(std::move(opened));
  }
  ~LocalFrameStream() override {
    if (stream_ != nullptr) stream_->Close();
  }

  void Send(const v1::ClientHeader& header, net::FloatSpans payload) override {
    net::SendInPieces(*stream_, header, payload, nullptr);
  }

 private:
  explicit LocalFrameStream(FrameHandler& handler) : handler_(handler) {}

  absl::Status OnMessage(absl::Span<const char> header, net::Payload payload) override {
    v1::ServerHeader parsed;
    if (!parsed.ParseFromArray(header.data(), static_cast<int>(header.size()))) {
      return absl::InvalidArgumentError("frame: malformed header");
    }
    handler_.OnFrame(parsed, payload);
    return absl::OkStatus();
  }
  void OnEnd(const absl::Status& status) override {
    handler_.OnClosed(absl::IsCancelled(status) ? absl::OkStatus() : status);
  }

  FrameHandler& handler_;
  std::unique_ptr<net::LocalStream> stream_;
};

class LocalStub final : public ServerStub {
 public:
  LocalStub(std::unique_ptr<ServerStub> other, const LocalTransportOptions& options)
      : other_(std::move(other)), part_(options.part), place_(options) {}

  absl::Status Connect(const v1::ConnectRequest& request, v1::ConnectResponse* response,
                       Timeout timeout) override {
    absl::Status status = other_->Connect(request, response, timeout);
    if (status.ok()) place_.Learn(*response);
    return status;
  }
  absl::Status Create(const v1::CreateRequest& request, v1::CreateResponse* response,
                      Timeout timeout) override {
    return other_->Create(request, response, timeout);
  }
  absl::Status Wait(const v1::WaitRequest& request, v1::WaitResponse* response, Timeout timeout) override {
    return other_->Wait(request, response, timeout);
  }
  absl::Status Join(const v1::JoinRequest& request, v1::JoinResponse* response, Timeout timeout) override {
    return other_->Join(request, response, timeout);
  }
  absl::Status Heartbeat(const v1::HeartbeatRequest& request, v1::HeartbeatResponse* response,
                         Timeout timeout) override {
    return other_->Heartbeat(request, response, timeout);
  }
  absl::Status Leave(const v1::LeaveRequest& request, v1::LeaveResponse* response, Timeout timeout) override {
    return other_->Leave(request, response, timeout);
  }
  absl::Status Mark(const v1::MarkRequest& request, v1::MarkResponse* response, Timeout timeout) override {
    return other_->Mark(request, response, timeout);
  }
  absl::Status Amend(const v1::AmendRequest& request, v1::AmendResponse* response, Timeout timeout) override {
    return other_->Amend(request, response, timeout);
  }
  absl::Status Finish(const v1::FinishRequest& request, v1::FinishResponse* response,
                      Timeout timeout) override {
    return other_->Finish(request, response, timeout);
  }
  absl::Status Promote(const v1::PromoteRequest& request, v1::PromoteResponse* response,
                       Timeout timeout) override {
    return other_->Promote(request, response, timeout);
  }
  std::string address() const override { return other_->address(); }

  std::unique_ptr<FrameStream> OpenStream(FrameHandler& handler) override {
    for (Way way = place_.way(); way.transport != Transport::kTcp; way = place_.way()) {
      auto stream = LocalFrameStream::Open(way, part_, handler);
      if (stream.ok()) {
        place_.Say(way.transport);
        return *std::move(stream);
      }
      if (absl::IsDeadlineExceeded(stream.status())) break;  // it stands still: no reason to do without later
      place_.Fail(way);
    }
    place_.Say(Transport::kTcp);
    return other_->OpenStream(handler);
  }

 private:
  const std::unique_ptr<ServerStub> other_;
  const std::optional<int> part_;
  Place place_;
};

}  // namespace

absl::StatusOr<Transport> ParseTransport(absl::string_view word) {
  if (word == "auto" || word == "shm") return Transport::kShm;
  if (word == "unix") return Transport::kUnix;
  if (word == "tcp") return Transport::kTcp;
  return absl::InvalidArgumentError(absl::StrCat("'", word, "' is none of auto, shm, unix, tcp"));
}

std::unique_ptr<ServerStub> MakeLocalStub(std::unique_ptr<ServerStub> other,
                                          const LocalTransportOptions& options) {
  return std::make_unique<LocalStub>(std::move(other), options);
}

}  // namespace cairn::client
