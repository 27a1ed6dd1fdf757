// The role of a worker whose model is divided over several workers: the stage leader of its group
// (split::Head), or a stage worker (split::Partner). Made and run by main.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/core/fault_points.h"
#include "common/core/trace.h"
#include "common/net/access.h"
#include "common/net/cluster_spec.h"
#include "worker/compute.h"
#include "worker/division.h"
#include "worker/nn/loss.h"
#include "worker/nn/model.h"
#include "worker/options.h"
#include "worker/peer_listener.h"
#include "worker/split/head.h"
#include "worker/stop_on_signal.h"

namespace cairn::worker {

// Everything referred to must outlive what is made from it.
struct SplitArgs {
  const TrainOptions& options;
  const net::ResolvedCluster& cluster;
  const Seat& seat;
  const nn::Model& model;
  const nn::LossSpec& loss;
  const Compute& compute;
  const net::Access& access;
  const StopOnSignal& stop;
  TraceRecorder* trace = nullptr;  // may be null
  // May be null. A stage worker passes "announced" with each of its gradients, and "computed".
  FaultPoints* faults = nullptr;
};

// Makes the stage leader's replica. It has not connected to its stage workers yet.
absl::StatusOr<std::unique_ptr<split::Head>> MakeHead(const SplitArgs& args);

// Runs a stage worker until training is over: split::Partner::Serve(). INVALID_ARGUMENT if it cannot listen
// at its address.
absl::Status ServeHead(const SplitArgs& args, const ListenFlags& listen);

}  // namespace cairn::worker
