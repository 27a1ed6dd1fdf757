// What a worker of a model that is divided over workers is beside its devices: the head of its group, or a
// partner. Made and run by main.
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

// Everything here outlives what is made of it.
struct SplitArgs {
  const TrainOptions& options;
  const net::ResolvedCluster& cluster;
  const Seat& seat;
  const nn::Model& model;
  const nn::LossSpec& loss;
  const Compute& compute;
  const net::Access& access;
  const StopOnSignal& stop;
  TraceRecorder* trace = nullptr;  // may be
  FaultPoints* faults =
      nullptr;  // may be; a partner passes "announced" with each of its gradients, "computed"
};

// The head's replica. It has not reached its partners yet.
absl::StatusOr<std::unique_ptr<split::Head>> MakeHead(const SplitArgs& args);

// A partner's work, to the end of training: split::Partner::Serve(). INVALID_ARGUMENT when the address cannot
// be had.
absl::Status ServeHead(const SplitArgs& args, const ListenFlags& listen);

}  // namespace cairn::worker
