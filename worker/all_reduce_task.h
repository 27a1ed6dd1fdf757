// What a worker of an all-reduce job is beside its trainer: its place in the ring, and the server by which its
// left-hand neighbour reaches it. Made and destroyed by main.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "common/core/crew.h"
#include "common/net/cluster_spec.h"
#include "common/net/tls.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/server.h"
#include "worker/allreduce/local_link.h"
#include "worker/allreduce/ring_exchange.h"
#include "worker/nn/model.h"
#include "worker/options.h"

namespace cairn::worker {

// Where a worker of such a job listens.
struct ListenFlags {
  std::string address;  // --listen HOST:PORT; empty: 0.0.0.0 and the task's port
  bool reuse_port = false;
};

class AllReduceTask {
 public:
  struct Args {
    const TrainOptions& options;
    const nn::Model& model;
    const v1::Job& job;
    const net::ResolvedCluster& cluster;
    const net::TlsFiles& tls;
    const ListenFlags& listen;
    int worker;  // position among the trainers
    int threads;
  };
  // INVALID_ARGUMENT when the address cannot be had, or the optimizer is none.
  static absl::StatusOr<std::unique_ptr<AllReduceTask>> Start(const Args& args);
  ~AllReduceTask();

  client::Exchange& exchange() { return *exchange_; }

 private:
  explicit AllReduceTask(int threads) : crew_(threads) {}
  absl::Status Listen(const Args& args);

  Crew crew_;
  std::unique_ptr<allreduce::RingExchange> exchange_;
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<allreduce::LocalRingService> local_;
};

}  // namespace cairn::worker
