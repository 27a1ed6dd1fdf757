// The devices of a worker, and the replica that computes on them. The replica is a model on one device, a
// copy of the model on each of several devices (--devices, --mirrored), or one model whose layers are divided
// over several devices (--place, and the "device" fields of the model file).
//
// Created and used by cairn-worker's main thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nn/layer/batch_sync.h"
#include "nn/model.h"
#include "nn/objective.h"
#include "nn/pipeline/stage_instances.h"
#include "nn/replica/device_thread.h"
#include "nn/replica/replica.h"
#include "worker/devices/device_choice.h"
#include "worker/options/options.h"
#include "worker/placement/model_partition.h"

namespace cairn::worker {

struct Compute {
  // The only device, used by the caller's thread; null if there are several devices.
  std::unique_ptr<kernels::Device> device{};
  std::vector<std::unique_ptr<nn::DeviceThread>> threads{};  // one per device if there are several devices
  std::unique_ptr<nn::Replica> replica{};                    // destroyed before the devices
  // With --mode allreduce: the GPU `device`, if it can sum gradients with other workers' GPUs. Otherwise
  // null.
  std::unique_ptr<kernels::PeerDevice> peer{};
  std::string name{};                    // "/cpu:0", or "/gpu:0,/gpu:1"
  std::vector<std::string> placement{};  // the lines of --log_device_placement
  std::vector<std::string> remarks{}, warnings{};
  nn::PipelineLocations locations{};  // where the stages run, if the model is divided over workers
};

// The cores that StayOnCores() binds the compute threads to. `count` 0: the threads are not bound.
struct CoreRange {
  int first = 0, count = 0;
};

// The number of micro-batches per batch for a pipeline of `devices` devices, unless --micro_batches sets it.
int64_t MicroBatchesOf(const TrainOptions& options, const nn::Model& model, int64_t devices);

// The arguments of MakeCompute(). Model and trace must outlive the result.
struct ComputeArgs {
  const TrainOptions& options;
  const nn::Model& model;
  const nn::Objective& objective;
  // `device` is used unless other flags name devices; the other fields apply to every device.
  DeviceRequest request;
  CoreRange cores{};
  DeviceMakers makers;
  TraceRecorder* trace = nullptr;  // may be null
  // This worker's position in a model that is divided over workers; null if the model is not divided.
  const Assignment* assignment = nullptr;
  // The other workers of each batch, for a model that synchronizes batches; null: there are none. Must outlive the
  // result.
  nn::BatchSync* workers = nullptr;
};

// INVALID_ARGUMENT naming the flag or the layer that requests a missing device.
absl::StatusOr<Compute> MakeCompute(const ComputeArgs& args);

}  // namespace cairn::worker
