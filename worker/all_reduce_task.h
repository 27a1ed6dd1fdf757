// What a worker of an all-reduce job is beside its trainer: its place in the ring, and the server by which
// its left-hand neighbour reaches it. Made and destroyed by main.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "common/core/crew.h"
#include "common/net/access.h"
#include "common/net/cluster_spec.h"
#include "worker/allreduce/ring_exchange.h"
#include "worker/nn/model.h"
#include "worker/options.h"
#include "worker/peer_listener.h"

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
    int worker;  // position among the trainers
    int threads;
    kernels::PeerDevice* device;  // this worker's, where it adds up with others'; else null
  };
  // INVALID_ARGUMENT when the address cannot be had, or the optimizer is none.
  static absl::StatusOr<std::unique_ptr<AllReduceTask>> Start(const Args& args);
  client::Exchange& exchange() { return *exchange_; }

 private:
  explicit AllReduceTask(int threads) : crew_(threads) {}

  Crew crew_;
  std::unique_ptr<allreduce::RingExchange> exchange_;
  std::unique_ptr<PeerListener> listener_;
};

}  // namespace cairn::worker
