#include "worker/peer_listener.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/net/grpc_util.h"
#include "common/net/listening.h"
#include "grpcpp/server_builder.h"
#include "worker/allreduce/grpc_link.h"
#include "worker/client/local_transport.h"

namespace cairn::worker {
namespace {

// For the others' streams to end.
constexpr auto kDrain = std::chrono::seconds(2);

}  // namespace

absl::StatusOr<std::unique_ptr<allreduce::RingPeer>> MakePeer(const std::string& address,
                                                              const net::TlsFiles& tls,
                                                              const std::string& transport) {
  CAIRN_ASSIGN_OR_RETURN(const client::Transport way, client::ParseTransport(transport));
  auto peer = allreduce::MakeGrpcPeer(address, net::ChannelCredentialsOf(tls));
  if (way == client::Transport::kTcp) return peer;
  return allreduce::MakeLocalPeer(std::move(peer), way, [address](const std::string& how) {
    LogInfo("gradients to ", address, ": by ", how);
  });
}

absl::StatusOr<std::unique_ptr<PeerListener>> PeerListener::Start(allreduce::RingHost& host,
                                                                  net::LocalListener local,
                                                                  const Args& args) {
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
  net::WarnOfTls(args.tls, address, own.host, args.stakes, "the worker that calls it");
  if (local.socket.valid()) {
    listener->local_ =
        std::make_unique<allreduce::LocalRingService>(host, std::move(local), args.incarnation);
  }
  return listener;
}

PeerListener::~PeerListener() {
  local_.reset();
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kDrain);
}

}  // namespace cairn::worker
