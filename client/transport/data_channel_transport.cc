#include "client/transport/data_channel_transport.h"

#include <optional>
#include <utility>

#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/net/data_channel/data_endpoint.h"
#include "common/net/data_channel/stream/fragments.h"
#include "common/net/data_channel/stream/stream.h"

namespace cairn::client {
namespace {

// How to reach a server.
struct Way {
  net::Transport transport = net::Transport::kGrpc;
  net::DataEndpoint address;
  uint64_t incarnation = 0;  // the incarnation of the server's process
};

// Where a server is, and which transports to it have failed.
class Endpoint {
 public:
  explicit Endpoint(DataChannelOptions options) : options_(std::move(options)) {}

  Way way() const {
    MutexLock lock(mutex_);
    return way_;
  }
  // Takes the address from the server's answer to Connect().
  void Learn(const v1::ConnectResponse& response) {
    const net::DataEndpoint address = net::FromProto(response.data_endpoint());
    const uint64_t process = response.process() != 0 ? response.process() : response.incarnation();
    MutexLock lock(mutex_);
    const bool given_up = way_.transport != options_.transport && Now() - failed_ >= options_.try_again_after;
    if (address == way_.address && process == way_.incarnation && !given_up) return;
    way_ = {.transport = options_.transport, .address = address, .incarnation = process};
  }
  // Notes that no stream could be opened with this transport: later streams use the next best transport.
  void Fail(const Way& way) {
    MutexLock lock(mutex_);
    if (way_.address == way.address && way_.transport == way.transport) {
      way_.transport = net::NextBest(way.transport);
      failed_ = Now();
    }
  }
  void LogTransport(net::Transport used) {
    {
      MutexLock lock(mutex_);
      if (std::exchange(said_, used) == used) return;
    }
    if (options_.say != nullptr) options_.say(net::InWords(used));
  }

 private:
  static TimePoint Now() { return std::chrono::steady_clock::now(); }

  const DataChannelOptions options_;
  mutable Mutex mutex_;
  Way way_ ABSL_GUARDED_BY(mutex_);
  TimePoint failed_ ABSL_GUARDED_BY(mutex_);
  std::optional<net::Transport> said_ ABSL_GUARDED_BY(mutex_);
};

class DataFrameStream final : public FrameStream, net::DataReceiver {
 public:
  // `server`: the server's address for gRPC.
  static absl::StatusOr<std::unique_ptr<FrameStream>> Open(const std::string& server, const Way& way,
                                                           std::optional<int> shard, FrameHandler& handler) {
    CAIRN_ASSIGN_OR_RETURN(FileDescriptor socket,
                           net::ConnectDataChannel(server, way.transport, way.address));
    std::unique_ptr<DataFrameStream> opened(new DataFrameStream(handler));
    CAIRN_ASSIGN_OR_RETURN(opened->stream_,
                           net::DataStream::Connect(std::move(socket), way.transport == net::Transport::kShm,
                                                    {.incarnation = way.incarnation,
                                                     .key = way.address.key,
                                                     .shard = shard.value_or(net::DataStream::kOwnShard),
                                                     .offers_memory = true},
                                                    *opened));
    CAIRN_RETURN_IF_ERROR(opened->stream_->Start());
    return std::unique_ptr<FrameStream>(std::move(opened));
  }
  ~DataFrameStream() override {
    if (stream_ != nullptr) stream_->Close();
  }

  void Send(const v1::ClientHeader& header, net::FloatSpans payload) override {
    net::SendInFragments(*stream_, header, payload, nullptr, /*ranked=*/true);
  }
  bool ReceiveUntil(absl::FunctionRef<bool()> enough, TimePoint deadline) override {
    return stream_->ReceiveUntil(enough, deadline);
  }
  void Nudge() override { stream_->Nudge(); }

 private:
  explicit DataFrameStream(FrameHandler& handler) : handler_(handler) {}

  absl::StatusOr<absl::Span<char>> Begin(absl::Span<const char> header, size_t bytes) override {
    if (!header_.ParseFromArray(header.data(), static_cast<int>(header.size()))) {
      return absl::InvalidArgumentError("frame: malformed header");
    }
    return handler_.BeginFrame(header_, bytes);
  }
  absl::Status Complete(net::Payload payload) override {
    handler_.CompleteFrame(payload);
    return absl::OkStatus();
  }
  void OnEnd(const absl::Status& status) override {
    handler_.OnClosed(absl::IsCancelled(status) ? absl::OkStatus() : status);
  }

  FrameHandler& handler_;
  v1::ServerHeader header_;  // of the message that is being received
  std::unique_ptr<net::DataStream> stream_;
};

class DataChannelStreams final : public StreamFactory {
 public:
  // `server`: the server's address for gRPC.
  DataChannelStreams(std::string server, std::unique_ptr<StreamFactory> other,
                     const DataChannelOptions& options)
      : server_(std::move(server)), other_(std::move(other)), shard_(options.shard), endpoint_(options) {}

  void Learn(const v1::ConnectResponse& response) override { endpoint_.Learn(response); }
  std::unique_ptr<FrameStream> Open(FrameHandler& handler) override {
    for (Way way = endpoint_.way(); way.transport != net::Transport::kGrpc; way = endpoint_.way()) {
      auto stream = DataFrameStream::Open(server_, way, shard_, handler);
      if (stream.ok()) {
        endpoint_.LogTransport(way.transport);
        return *std::move(stream);
      }
      // The server does not respond at the moment, which is no reason to avoid this transport later.
      if (absl::IsDeadlineExceeded(stream.status())) break;
      endpoint_.Fail(way);
    }
    endpoint_.LogTransport(net::Transport::kGrpc);
    return other_->Open(handler);
  }

 private:
  const std::string server_;
  const std::unique_ptr<StreamFactory> other_;
  const std::optional<int> shard_;
  Endpoint endpoint_;
};

}  // namespace

std::unique_ptr<ServerStub> MakeDataChannelStub(std::unique_ptr<ServerStub> other,
                                                const DataChannelOptions& options) {
  ServerStub::Parts parts = std::move(*other).Release();
  parts.streams = std::make_unique<DataChannelStreams>(parts.address, std::move(parts.streams), options);
  return std::make_unique<ServerStub>(std::move(parts));
}

}  // namespace cairn::client
