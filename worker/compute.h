// What a worker computes with: its devices, and the one replica over them that the trainer calls. One device;
// one replica on each of several (--devices, --mirrored); or one model whose layers are on several (--place,
// and what the model file says).
//
// Made by cairn-worker's main thread, which uses it too.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/device_choice.h"
#include "worker/division.h"
#include "worker/nn/device_thread.h"
#include "worker/nn/loss.h"
#include "worker/nn/model.h"
#include "worker/nn/pipeline_cells.h"
#include "worker/nn/replica.h"
#include "worker/options.h"

namespace cairn::worker {

struct Compute {
  std::unique_ptr<kernels::Device> device{};  // where there is one alone: the caller's thread's
  std::vector<std::unique_ptr<nn::DeviceThread>> threads{};  // of several devices
  std::unique_ptr<nn::Replica> replica{};                    // goes first
  // Of --mode allreduce, where `device` adds up gradients with other workers'; else null.
  std::unique_ptr<kernels::PeerDevice> peer{};
  std::string name{};                    // "/cpu:0", or "/gpu:0,/gpu:1"
  std::vector<std::string> placement{};  // --log_device_placement: layer by layer
  std::vector<std::string> remarks{}, warnings{};
  nn::PipelinePlaces places{};  // of a model that is divided over workers
};

// Cores that threads which compute keep to, as StayOnCores() has them; of 0 they keep to none.
struct CoreRange {
  int first = 0, count = 0;
};

// In how many micro-batches a batch passes `places` of them, unless the flags say so.
int64_t MicroBatchesOf(const TrainOptions& options, const nn::Model& model, int64_t places);

// `seat`: in a model that is divided over workers; null where it is not.
// `model` and `trace`, which may be null, must outlive it. `request` says what all ways share; its `device`
// is where one device is asked for. INVALID_ARGUMENT names the flag or the layer that asks for what there is
// not.
absl::StatusOr<Compute> MakeCompute(const TrainOptions& options, const nn::Model& model,
                                    const nn::LossSpec& loss, const DeviceRequest& request, CoreRange cores,
                                    const DeviceMakers& makers, TraceRecorder* trace = nullptr,
                                    const Seat* seat = nullptr);

}  // namespace cairn::worker
