#include "worker/peer_listener.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/net/grpc_util.h"
#include "grpcpp/server_builder.h"
#include "worker/allreduce/grpc_link.h"
#include "worker/client/local_transport.h"

namespace cairn::worker {
namespace {

// For the others' streams to end.
constexpr auto kDrain = std::chrono::seconds(2);

}  // namespace

// The time of the start, in microseconds, above the process id.
uint64_t DrawIncarnation() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  return (static_cast<uint64_t>(micros) << 12) | (static_cast<uint64_t>(getpid()) & 0xFFF);
}

net::LocalListener ListenForThisHost(const net::TlsFiles& tls) {
  if (tls.any()) return {};
  auto listener = net::ListenLocally();
  if (listener.ok()) return *std::move(listener);
  LogInfo("workers of this host come by TCP: ", listener.status().message());
  return {};
}

absl::StatusOr<std::unique_ptr<allreduce::RingPeer>> MakePeer(const std::string& address, const net::TlsFiles& tls,
                                                              const std::string& transport) {
  CAIRN_ASSIGN_OR_RETURN(const client::Transport way, client::ParseTransport(transport));
  auto peer = allreduce::MakeGrpcPeer(address, net::ChannelCredentialsOf(tls));
  if (way == client::Transport::kTcp) return peer;
  return allreduce::MakeLocalPeer(std::move(peer), way, [address](const std::string& how) {
    LogInfo("gradients to ", address, ": by ", how);
  });
}

absl::StatusOr<std::unique_ptr<PeerListener>> PeerListener::Start(allreduce::RingHost& host,
                                                                  net::LocalListener local, const Args& args) {
  const net::TaskId& self = args.cluster.self;
  const net::HostPort& own = args.cluster.spec.tasks(self.job).at(self.index);
  const std::string address =
      args.listen.address.empty() ? absl::StrCat("0.0.0.0:", own.port) : args.listen.address;
  std::unique_ptr<PeerListener> listener(new PeerListener);
  listener->service_ = allreduce::MakeRingService(host);
  grpc::ServerBuilder builder;
  net::ConfigureServer(builder, args.listen.reuse_port);
  int port = 0;
  builder.AddListeningPort(address, net::ServerCredentialsOf(args.tls), &port);
  builder.RegisterService(listener->service_.get());
  listener->server_ = builder.BuildAndStart();
  if (listener->server_ == nullptr || port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on ", address, ": is another process using the port?"));
  }
  LogInfo("Started server with target: grpc://", own.host, ":", port);
  if (!args.tls.any() && net::ReachableFromOutside(address)) {
    LogWarning("NOT ENCRYPTED: whoever reaches ", address, " can read and change ", args.stakes,
               "; --tls_cert, --tls_key and --tls_ca prevent it");
  }
  if (const absl::Status status = net::CheckTlsNames(args.tls, own.host); !status.ok()) {
    LogWarning(status.message(), ": the worker that calls it will refuse this one");
  }
  if (local.socket.valid()) {
    listener->local_ = std::make_unique<allreduce::LocalRingService>(host, std::move(local), args.incarnation);
  }
  return listener;
}

PeerListener::~PeerListener() {
  local_.reset();
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kDrain);
}

}  // namespace cairn::worker
