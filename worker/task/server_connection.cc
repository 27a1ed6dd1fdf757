#include "worker/task/server_connection.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/transport/data_channel_transport.h"
#include "client/transport/grpc_transport.h"
#include "common/core/clock.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/net/data_channel/transport.h"
#include "worker/options/job.h"
#include "worker/tables/table_partitioner.h"

namespace cairn::worker {

absl::StatusOr<std::unique_ptr<client::TrainingClient>> ConnectToServers(const ServerConnectionArgs& args) {
  std::vector<std::unique_ptr<client::ServerStub>> stubs;
  const auto stub_at = [credentials = net::CredentialsOf(args.access),
                        transport = net::ParseTransport(args.options.transport).value()](
                           const std::string& address, std::optional<int> shard = {}) {
    return client::MakeDataChannelStub(
        client::MakeGrpcStub(address, credentials, shard),
        {.transport = transport, .shard = shard, .say = [address](const std::string& how) {
           LogInfo("gradients and values to and from ", address, ": by ", how);
         }});
  };
  for (const std::string& address : args.job.servers()) stubs.push_back(stub_at(address));
  client::ConnectionOptions::StubFactory stub_factory;
  if (args.job.ps_replication() > 0) {
    stub_factory = [&job = args.job, stub_at](int shard, int host_index) {
      return stub_at(job.servers(host_index), shard);
    };
  }
  client::ConnectionOptions reaching = {.task = args.cluster.self.ToString(),
                                        .cluster_hash = args.cluster.spec.Hash(),
                                        .connect_timeout = FromSeconds(args.options.connect_timeout_seconds),
                                        .say = [](const std::string& text) { LogWarning(text); },
                                        .stop = [&stop = args.stop] { return stop.received() != 0; },
                                        .stub_factory = std::move(stub_factory),
                                        .trace = args.trace};
  CAIRN_ASSIGN_OR_RETURN(auto connection, client::Connection::Open(std::move(stubs), std::move(reaching)));
  return std::make_unique<client::TrainingClient>(
      std::move(connection), VariablesOf(args.model),
      client::TrainingOptions{.worker = args.worker,
                              .task = args.cluster.self.ToString(),
                              .step_timeout = FromSeconds(args.options.step_timeout_seconds),
                              .report = [&metrics = args.metrics] { return metrics.Report(); },
                              .trace = args.trace,
                              .wire = &args.metrics.wire,
                              .make_partitioner = &TablePartitioner::Create});
}

}  // namespace cairn::worker
