// The parts of a worker that only a model divided over workers needs: the stage leader of a group, or a stage
// worker. Created and run by WorkerTask.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/cluster/cluster_spec.h"
#include "common/net/security/access.h"
#include "common/system/fault_points.h"
#include "common/trace/trace.h"
#include "nn/model.h"
#include "nn/objective.h"
#include "worker/options/options.h"
#include "worker/peer/peer_listener.h"
#include "worker/placement/compute.h"
#include "worker/placement/model_partition.h"
#include "worker/split/stage_leader.h"
#include "worker/task/stop_on_signal.h"

namespace cairn::worker {

// Everything here must outlive the objects that are created from it.
struct SplitArgs {
  const TrainOptions& options;
  const net::ResolvedCluster& cluster;
  const Assignment& assignment;
  const nn::Model& model;
  const nn::Objective& objective;
  const Compute& compute;
  const net::Access& access;
  const StopOnSignal& stop;
  TraceRecorder* trace = nullptr;  // may be null
  // May be null. A stage worker passes "announced" for each of its gradients, and "computed" for each training
  // batch.
  FaultPoints* faults = nullptr;
};

// The replica of a stage leader, not yet connected to its stage workers.
absl::StatusOr<std::unique_ptr<split::StageLeader>> MakeLeader(const SplitArgs& args);

// Serves as a stage worker until the end of training: split::StageWorker::Serve(). INVALID_ARGUMENT if the
// port cannot be opened.
absl::Status ServeAsStageWorker(const SplitArgs& args, const ListenFlags& listen);

}  // namespace cairn::worker
