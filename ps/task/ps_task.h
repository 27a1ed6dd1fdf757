// One task of cairn-ps: listens, serves the shards of this process, and ends with the job or at a signal.
//
//   Prepare ─► Listen ─► Serve ─► Stop
//
// Created and run once by cairn-ps' main thread, after logging has started. A failure is reported here, so
// main() only exits.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/core/clock.h"
#include "common/core/status.h"
#include "common/monitor/http_server.h"
#include "common/net/cluster/cluster_spec.h"
#include "common/net/data_channel/data_endpoint.h"
#include "common/net/data_channel/listeners.h"
#include "common/net/data_channel/transport.h"
#include "common/net/security/access.h"
#include "common/net/security/gate.h"
#include "common/net/server/grpc_port.h"
#include "common/system/fault_points.h"
#include "common/system/signals.h"
#include "common/system/thread_pool.h"
#include "common/trace/trace_session.h"
#include "grpcpp/server.h"
#include "ps/job/hosted_shards.h"
#include "ps/job/server.h"
#include "ps/monitor/monitor.h"
#include "ps/rpc/data_channel_service.h"
#include "ps/table/embedding/embedding_tables.h"

namespace cairn::ps {

inline constexpr char kProgram[] = "cairn-ps";

// The flags of a task, checked when they were parsed.
struct PsOptions {
  net::Access access{};
  monitor::MetricsFlags metrics{};
  TraceFlags trace{};
  std::string listen{};  // --listen; empty: 0.0.0.0 and the task's port
  bool reuse_port = false;
  std::string memory_limit{};  // --memory_limit; empty: the memory of the machine or of its control group
  std::string transport = "auto";
  int data_port = 0;
  int threads = 0;  // --threads; 0: one per core, at most kDefaultMaxThreads
  FaultPoints::Fault fault{};
};

class PsTask {
 public:
  // All arguments must outlive the task.
  PsTask(const PsOptions& options, const net::ResolvedCluster& cluster, SignalQueue& signals);

  // Serves until the end. Returns the exit code, after printing or logging the reason for a failure.
  ExitCode Run();

 private:
  // Makes the shards and the services, and listens for data channels.
  void Prepare();
  std::unique_ptr<Server> MakeServer(int shard);
  // Opens the ports of --metrics_port and of gRPC. Returns the exit code if that fails.
  std::optional<ExitCode> Listen();
  void LogStart() const;
  // Returns when training is over, another process serves as this task, or a signal arrives.
  ExitCode Serve();
  // Lets calls and streams end.
  void Stop(ExitCode end);
  // Waits for calls and streams, for at most kDrain. After that, gRPC still processes everything that it has
  // received. After another kDrain, or at a second signal, the process exits at once.
  void Drain(ExitCode end);
  // Sets has_twin_ if another process serves as this task.
  void CheckTwin();

  const PsOptions& options_;
  const net::ResolvedCluster& cluster_;
  SignalQueue& signals_;
  const net::HostPort self_;    // the task's address in the cluster
  const std::string address_;   // where it listens
  const int64_t memory_limit_;  // bytes
  const net::Transport transport_;
  const SteadyClock clock_;
  FaultPoints faults_;
  std::atomic<bool> has_twin_{false};

  // In the order in which they are created. Set by Prepare():
  std::optional<TraceSession> trace_;
  std::optional<ThreadPool> thread_pool_;
  std::optional<EmbeddingTables> tables_;
  uint64_t incarnation_ = 0;
  net::DataListeners data_listeners_;  // moved to data_channel_service_ by Listen()
  net::DataEndpoint data_endpoint_;    // their address
  std::optional<HostedShards> shards_;
  std::optional<net::Gate> gate_;
  std::unique_ptr<grpc::Service> service_;
  std::optional<Monitor> monitor_;
  std::unique_ptr<grpc::Service> inspector_;
  // By Listen():
  int port_ = 0;
  std::optional<net::GrpcPort> grpc_port_;
  std::unique_ptr<monitor::HttpServer> http_;  // null without --metrics_port
  std::unique_ptr<grpc::Server> grpc_server_;
  std::optional<DataChannelService> data_channel_service_;  // nullopt if no data channel is open
};

}  // namespace cairn::ps
