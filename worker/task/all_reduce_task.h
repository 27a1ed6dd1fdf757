// The parts of a worker that only an all-reduce job has: its exchange over the ring, and the server through
// which other workers reach it. Created and destroyed by WorkerTask.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "common/net/cluster/cluster_spec.h"
#include "common/net/security/access.h"
#include "common/system/thread_pool.h"
#include "nn/model.h"
#include "worker/allreduce/ring_exchange.h"
#include "worker/options/options.h"
#include "worker/peer/peer_listener.h"

namespace cairn::worker {

class AllReduceTask {
 public:
  struct Args {
    const TrainOptions& options;
    const nn::Model& model;
    const v1::Job& job;
    const net::ResolvedCluster& cluster;
    const net::Access& access;
    const ListenFlags& listen;
    int worker;  // index among the trainers
    int threads;
    // This worker's GPU if it sums gradients with other workers' GPUs, else null.
    kernels::PeerDevice* device;
  };
  // INVALID_ARGUMENT if the worker cannot listen on its address, or if the optimizer is unknown.
  static absl::StatusOr<std::unique_ptr<AllReduceTask>> Start(const Args& args);
  client::Exchange exchange() { return exchange_->exchange(); }

 private:
  explicit AllReduceTask(int threads) : thread_pool_(threads) {}

  ThreadPool thread_pool_;
  std::unique_ptr<allreduce::RingExchange> exchange_;
  std::unique_ptr<PeerListener> listener_;
};

}  // namespace cairn::worker
