#include "common/net/grpc/grpc_util.h"

#include <malloc.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/log.h"
#include "common/net/grpc/grpc_log.h"
#include "common/net/wire/frame.h"
#include "grpc/support/log.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/support/channel_arguments.h"
#include "grpcpp/support/client_interceptor.h"

namespace cairn::net {
namespace {

// Keepalive: a peer may disappear while this end has nothing to send, so that TCP does not notice it. An
// example is a server that waits for the log of ps/0, while all others wait for that server. The failure is
// detected within the sum of both times.
constexpr int kKeepaliveMs = 5'000;
constexpr int kKeepaliveTimeoutMs = 10'000;
// The time limit for TLS and the first HTTP/2 frame: a client that connects and sends nothing is disconnected
// after this time.
constexpr int kHandshakeTimeoutMs = 10'000;
// The limit of concurrent calls and streams per connection. A client has a few for each shard.
constexpr int kMaxStreams = 1024;

// Adds the job token to a call's metadata. Call credentials would do so too, but gRPC refuses them without
// TLS.
class TokenInterceptor final : public grpc::experimental::Interceptor {
 public:
  explicit TokenInterceptor(const std::string& token) : token_(token) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    using Point = grpc::experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(Point::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->emplace(kTokenMetadata, token_);
    }
    methods->Proceed();
  }

 private:
  const std::string& token_;  // owned by the factory, which the channel owns
};

using Interceptors = grpc::experimental::ClientInterceptorFactoryInterface;
class TokenInterceptors final : public Interceptors {
 public:
  explicit TokenInterceptors(std::string token) : token_(std::move(token)) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(grpc::experimental::ClientRpcInfo*) override {
    return new TokenInterceptor(token_);  // owned by the call
  }

 private:
  const std::string token_;
};

// The largest message describes the variables of a job, in about 30 bytes each: a million variables fit.
constexpr int kMaxDescriptionBytes = 32 << 20;
static_assert(kMaxDescriptionBytes >= kMaxMessageBytes, "a frame is a message too");

}  // namespace

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, const Credentials& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxDescriptionBytes);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  // Traffic within a cluster never uses a proxy, whatever http_proxy and similar variables say.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // Cairn's clients decide which calls may be repeated
  if (credentials.token.empty()) return grpc::CreateCustomChannel(address, credentials.channel, arguments);
  std::vector<std::unique_ptr<Interceptors>> interceptors;
  interceptors.push_back(std::make_unique<TokenInterceptors>(credentials.token));
  return grpc::experimental::CreateCustomChannelWithInterceptors(address, credentials.channel, arguments,
                                                                 std::move(interceptors));
}

void ConfigureServer(grpc::ServerBuilder& builder, bool reuse_port) {
  builder.SetMaxReceiveMessageSize(kMaxDescriptionBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kKeepaliveMs / 2);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, reuse_port ? 1 : 0);
}

void SetDeadline(grpc::ClientContext& context, std::chrono::milliseconds timeout) {
  context.set_deadline(std::chrono::system_clock::now() + timeout);
}

void QuietGrpc() {
  gpr_set_log_function([](gpr_log_func_args* line) { LogGrpcLine(line->message); });
}

void TuneMalloc() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_TOP_PAD, 16 << 20);
}

}  // namespace cairn::net
