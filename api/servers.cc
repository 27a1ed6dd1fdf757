#include "api/servers.h"

#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "client/transport/data_channel_transport.h"
#include "client/transport/grpc_transport.h"
#include "common/core/status.h"
#include "common/net/security/access.h"

namespace cairn::api {

absl::StatusOr<std::unique_ptr<client::Connection>> ReachServers(const ReachArgs& args) {
  const ConnectOptions& options = args.options;
  if (options.servers.empty()) return absl::InvalidArgumentError("ConnectOptions::servers: there are none");
  net::Access access = {.tls = {.cert = options.tls_cert, .key = options.tls_key, .ca = options.tls_ca},
                        .token_file = options.job_token_file};
  CAIRN_RETURN_IF_ERROR(net::CheckAccess(access, std::getenv(net::kTokenVariable)));
  const auto stub_at = [credentials = net::CredentialsOf(access)](const std::string& address,
                                                                  std::optional<int> shard = {}) {
    return client::MakeDataChannelStub(client::MakeGrpcStub(address, credentials, shard), {.shard = shard});
  };
  std::vector<std::unique_ptr<client::ServerStub>> stubs;
  for (const std::string& address : options.servers) stubs.push_back(stub_at(address));
  client::ConnectionOptions::StubFactory stub_factory;
  if (args.backups) {
    stub_factory = [servers = options.servers, stub_at](int shard, int host_index) {
      return stub_at(servers[static_cast<size_t>(host_index)], shard);
    };
  }
  return client::Connection::Open(
      std::move(stubs), {.task = args.task,
                         .connect_timeout = std::chrono::duration_cast<Duration>(options.connect_timeout),
                         .say = options.log,
                         .stop = args.stop,
                         .stub_factory = std::move(stub_factory)});
}

}  // namespace cairn::api
