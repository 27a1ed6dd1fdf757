#include "client/transport/data_channel_transport.h"

#include <optional>
#include <utility>

#include "common/core/status.h"
#include "common/net/data_channel/data_endpoint.h"
#include "common/net/data_channel/stream/fragments.h"
#include "common/net/data_channel/stream/stream.h"
#include "common/net/data_channel/transport_choice.h"

namespace cairn::client {
namespace {

using net::TransportChoice;

class DataFrameStream final : public FrameStream, net::DataReceiver {
 public:
  // `server`: the server's address for gRPC.
  static absl::StatusOr<std::unique_ptr<FrameStream>> Open(const std::string& server,
                                                           const TransportChoice::Way& way,
                                                           std::optional<int> shard, FrameHandler& handler,
                                                           const StopCheck& stopped) {
    CAIRN_ASSIGN_OR_RETURN(FileDescriptor socket,
                           net::ConnectDataChannel(server, way.transport, way.endpoint));
    std::unique_ptr<DataFrameStream> opened(new DataFrameStream(handler));
    CAIRN_ASSIGN_OR_RETURN(
        opened->stream_,
        net::DataStream::Connect(std::move(socket), way.transport == net::Transport::kShm,
                                 {.incarnation = way.incarnation,
                                  .key = way.endpoint.key,
                                  .target = {.shard = shard.value_or(net::StreamTarget::kOwnShard)},
                                  .stopped = stopped,
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
      : server_(std::move(server)),
        other_(std::move(other)),
        shard_(options.shard),
        choice_({.best = options.transport, .try_again_after = options.try_again_after, .say = options.say}) {
  }

  void Learn(const v1::ConnectResponse& response) override {
    choice_.Learn(net::FromProto(response.data_endpoint()),
                  response.process() != 0 ? response.process() : response.incarnation());
  }
  std::unique_ptr<FrameStream> Open(FrameHandler& handler, const StopCheck& stopped) override {
    for (auto way = choice_.way(); way.transport != net::Transport::kGrpc; way = choice_.way()) {
      auto stream = DataFrameStream::Open(server_, way, shard_, handler, stopped);
      if (stream.ok()) {
        choice_.Say(way.transport);
        return *std::move(stream);
      }
      // The server does not respond at the moment, which is no reason to avoid this transport later.
      if (absl::IsDeadlineExceeded(stream.status()) || absl::IsCancelled(stream.status())) break;
      choice_.Fail(way);
    }
    choice_.Say(net::Transport::kGrpc);
    return other_->Open(handler, stopped);
  }

 private:
  const std::string server_;
  const std::unique_ptr<StreamFactory> other_;
  const std::optional<int> shard_;
  TransportChoice choice_;
};

}  // namespace

std::unique_ptr<ServerStub> MakeDataChannelStub(std::unique_ptr<ServerStub> other,
                                                const DataChannelOptions& options) {
  ServerStub::Parts parts = std::move(*other).Release();
  parts.streams = std::make_unique<DataChannelStreams>(parts.address, std::move(parts.streams), options);
  return std::make_unique<ServerStub>(std::move(parts));
}

}  // namespace cairn::client
