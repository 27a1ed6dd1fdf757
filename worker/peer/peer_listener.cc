#include "worker/peer/peer_listener.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/net/data_channel/transport.h"
#include "common/net/grpc/grpc_util.h"
#include "common/net/server/listening.h"
#include "grpcpp/server_builder.h"
#include "worker/peer/grpc_link.h"

namespace cairn::worker {
namespace {

// The time that open streams have to end.
constexpr auto kDrain = std::chrono::seconds(2);

std::string ListensAt(const net::ResolvedCluster& cluster, const ListenFlags& listen) {
  const net::HostPort& own = cluster.spec.tasks(cluster.self.job).at(cluster.self.index);
  return listen.address.empty() ? absl::StrCat("0.0.0.0:", own.port) : listen.address;
}

}  // namespace

net::TaskPort PeerPort(const net::ResolvedCluster& cluster, const ListenFlags& listen) {
  return {.address = ListensAt(cluster, listen), .reuse_port = listen.reuse_port};
}

absl::StatusOr<std::unique_ptr<allreduce::RingPeer>> MakePeer(const std::string& address,
                                                              const net::Access& access,
                                                              const std::string& transport) {
  CAIRN_ASSIGN_OR_RETURN(const net::Transport way, net::ParseTransport(transport));
  auto peer = allreduce::MakeGrpcPeer(address, net::CredentialsOf(access));
  return allreduce::MakeDataPeer(std::move(peer), address, way, [address](const std::string& how) {
    LogInfo("gradients to ", address, ": by ", how);
  });
}

net::DataListeners ListenForData(const net::ResolvedCluster& cluster, const net::Access& access,
                                 const ListenFlags& listen, const std::string& transport) {
  return net::ListenForData(access.tls, net::ParseTransport(transport).value(), ListensAt(cluster, listen),
                            listen.data_port, "workers");
}

absl::StatusOr<std::unique_ptr<PeerListener>> PeerListener::Start(allreduce::RingHost& host,
                                                                  net::DataListeners data_listeners,
                                                                  const Args& args) {
  const net::TaskId& self = args.cluster.self;
  const net::HostPort& own = args.cluster.spec.tasks(self.job).at(self.index);
  const std::string address = ListensAt(args.cluster, args.listen);
  std::unique_ptr<PeerListener> listener(new PeerListener);
  listener->gate_ = std::make_unique<net::Gate>(self.ToString(), args.access);
  listener->service_ =
      allreduce::MakeRingService(host, {.gate = listener->gate_.get(), .task_of = args.task_of});
  grpc::ServerBuilder builder;
  net::ConfigureServer(builder, args.listen.reuse_port);
  int port = 0;
  listener->port_ = std::make_unique<net::GrpcPort>(
      builder, address, net::ServerCredentialsOf(args.access.tls), args.listen.reuse_port, &port);
  builder.RegisterService(listener->service_.get());
  listener->server_ = builder.BuildAndStart();
  if (listener->server_ == nullptr || port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on ", address, ": is another process using the port?"));
  }
  listener->port_->Open();
  LogInfo("Started server with target: grpc://", own.host, ":", port);
  net::WarnOfAccess(args.access, address, own.host, args.stakes, "the worker that calls it");
  if (data_listeners.any()) {
    listener->data_service_ =
        std::make_unique<allreduce::DataRingService>(host, std::move(data_listeners), args.incarnation);
  }
  return listener;
}

PeerListener::~PeerListener() {
  data_service_.reset();
  if (port_ != nullptr) port_->Close();
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kDrain);
}

}  // namespace cairn::worker
