#include "common/net/grpc_util.h"

#include <malloc.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/log.h"
#include "common/net/frame.h"
#include "common/net/grpc_log.h"
#include "grpc/support/log.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/support/channel_arguments.h"
#include "grpcpp/support/client_interceptor.h"

namespace cairn::net {
namespace {

// A peer may be gone while we have nothing to send, and so without TCP's notice: a server that waits for the
// log of ps/0 is one, and everybody waits for it. It is noticed within the sum.
constexpr int kKeepaliveMs = 5'000;
constexpr int kKeepaliveTimeoutMs = 10'000;
// For TLS and the first HTTP/2 frame: who connects and says nothing is closed then.
constexpr int kHandshakeTimeoutMs = 10'000;
// Calls and streams of one connection at the same time: a client of ours has a few for each server's part.
constexpr int kMaxStreams = 1024;

// Adds the job token to a call's metadata. Call credentials would, but gRPC takes none without TLS.
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
  const std::string& token_;  // the factory's, which the channel owns
};

using Interceptors = grpc::experimental::ClientInterceptorFactoryInterface;
class TokenInterceptors final : public Interceptors {
 public:
  explicit TokenInterceptors(std::string token) : token_(std::move(token)) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(grpc::experimental::ClientRpcInfo*) override {
    return new TokenInterceptor(token_);  // the call's
  }

 private:
  const std::string token_;
};

// The largest message describes a job's variables, in some 30 bytes each: those of a million fit.
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
  // A cluster's own traffic goes from task to task, whatever http_proxy and the like say of the way out.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // ours know what may be repeated
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
