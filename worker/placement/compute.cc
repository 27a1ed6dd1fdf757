#include "worker/placement/compute.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/core/status.h"
#include "common/system/cores.h"
#include "nn/pipeline/pipeline_replica.h"
#include "nn/replica/mirrored_replica.h"
#include "worker/placement/layer_placement.h"

namespace cairn::worker {
namespace {

void Append(std::vector<std::string>& to, std::vector<std::string> more) {
  std::move(more.begin(), more.end(), std::back_inserter(to));
}

std::vector<nn::DeviceThread*> Pointers(const std::vector<std::unique_ptr<nn::DeviceThread>>& threads) {
  std::vector<nn::DeviceThread*> pointers;
  for (const auto& thread : threads) pointers.push_back(thread.get());
  return pointers;
}

class Maker {
 public:
  explicit Maker(const ComputeArgs& args)
      : options_(args.options),
        model_(args.model),
        objective_(args.objective),
        request_(args.request),
        cores_(args.cores),
        makers_(args.makers),
        trace_(args.trace),
        assignment_(args.assignment),
        workers_(args.workers) {}

  absl::StatusOr<Compute> Make() {
    if (request_.cpu_devices > request_.threads) {
      compute_.warnings.push_back(absl::StrCat("--cpu_devices: ", request_.cpu_devices,
                                               " devices with one thread each are more than this worker's ",
                                               request_.threads, " cores"));
    }
    if (assignment_ != nullptr) {
      CAIRN_RETURN_IF_ERROR(CheckOneLength());
      if (workers_ != nullptr) {
        CAIRN_RETURN_IF_ERROR(model_.CheckBatchMayBeDivided("groups of workers that share a model"));
      }
      CAIRN_RETURN_IF_ERROR(MakeOurs());
      return std::move(compute_);
    }
    CAIRN_RETURN_IF_ERROR(options_.devices.data_parallel() ? MakeMirrored() : MakePlaced());
    return std::move(compute_);
  }

 private:
  // INVALID_ARGUMENT if batches have several lengths, for which a pipeline has no networks.
  absl::Status CheckOneLength() const {
    if (model_.shorter().empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--bucket_boundaries: a model that is divided over devices or workers takes batches of one length");
  }

  absl::Status MakeMirrored() {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<FoundDevice> found,
                           options_.devices.mirrored ? AllOfOneType() : NamedDevices());
    CAIRN_RETURN_IF_ERROR(StartThreads(found));
    compute_.remarks.push_back(absl::StrCat("a replica on each of ", compute_.name));
    auto group = GroupOf(found);
    CAIRN_ASSIGN_OR_RETURN(
        compute_.replica,
        nn::MakeMirroredReplica(model_, objective_, Pointers(compute_.threads),
                                {.trace = trace_, .group = std::move(group), .workers = workers_}));
    for (const FoundDevice& device : found) {
      LayerPlacement placement = {.devices = {device}, .device_of = std::vector<int>(model_.nodes().size())};
      Append(compute_.placement, DescribeLayers(model_, placement));
    }
    return absl::OkStatus();
  }

  // The group in which the devices sum gradients among themselves. Null if the host must sum them, because
  // NCCL is not usable or because the devices are not two or more GPUs.
  std::unique_ptr<kernels::DeviceGroup> GroupOf(const std::vector<FoundDevice>& found) {
    std::vector<int> indices;
    for (const FoundDevice& device : found) {
      if (device.name.type == kGpu) indices.push_back(*device.name.index);
    }
    if (indices.size() < 2 || indices.size() < found.size()) return nullptr;
    absl::StatusOr<std::unique_ptr<kernels::DeviceGroup>> group;
    // On the thread of one of these devices.
    compute_.threads[0]->Run([&] { group = makers_.group_gpus(indices); });
    if (group.ok()) {
      compute_.remarks.push_back(absl::StrCat("gradients are added up between them by ", (*group)->name()));
      return *std::move(group);
    }
    // It is normal that NCCL is absent, but an NCCL that does not work should be repaired.
    auto& told = absl::IsNotFound(group.status()) ? compute_.remarks : compute_.warnings;
    told.push_back(absl::StrCat("gradients are added up in the host's memory: ", group.status().message()));
    return nullptr;
  }

  absl::StatusOr<std::vector<FoundDevice>> AllOfOneType() const {
    const std::vector<DeviceName> names = AvailableDevices(request_, makers_);
    std::vector<FoundDevice> found;
    for (const DeviceName& name : names) {
      if (name.type != names.back().type) continue;  // GPUs come last, if there are any
      CAIRN_ASSIGN_OR_RETURN(found.emplace_back(),
                             FindDevice(name.ToString(), "--mirrored", request_, makers_));
    }
    return found;
  }

  absl::StatusOr<std::vector<FoundDevice>> NamedDevices() const {
    std::vector<FoundDevice> found;
    for (const std::string& text : options_.devices.replicas) {
      CAIRN_ASSIGN_OR_RETURN(FoundDevice device, FindDevice(text, "--devices", request_, makers_));
      const bool twice = std::any_of(found.begin(), found.end(),
                                     [&](const FoundDevice& other) { return other.name == device.name; });
      // It is not an error if two missing devices fall back to the same device.
      if (twice && device.warnings.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("--devices: ", device.name.ShortName(), " is named twice"));
      }
      if (!twice) {
        found.push_back(std::move(device));
      } else {
        Append(found.front().warnings, std::move(device.warnings));
      }
    }
    return found;
  }

  absl::Status MakePlaced() {
    CAIRN_ASSIGN_OR_RETURN(LayerPlacement placement,
                           PlaceLayers(model_, options_.devices.place, request_, makers_));
    const size_t before = compute_.warnings.size();
    Append(compute_.remarks, placement.remarks);
    Append(compute_.warnings, placement.warnings);
    const auto lane_count = static_cast<int64_t>(placement.devices.size());
    if (lane_count == 1 && options_.devices.micro_batches <= 1)
      return MakeAlone(std::move(placement), before);
    CAIRN_RETURN_IF_ERROR(CheckOneLength());
    if (workers_ != nullptr) {
      CAIRN_RETURN_IF_ERROR(model_.CheckBatchMayBeDivided("workers that have several devices for one model"));
    }
    CAIRN_RETURN_IF_ERROR(StartThreads(placement.devices));
    const int64_t micro_batches = MicroBatchesOf(options_, model_, lane_count);
    compute_.remarks.push_back(absl::StrCat("layers on ", compute_.name, ", each batch in ", micro_batches,
                                            micro_batches == 1 ? " micro-batch" : " micro-batches"));
    CAIRN_ASSIGN_OR_RETURN(
        compute_.replica,
        nn::MakePipelineReplica({.model = model_,
                                 .objective = objective_,
                                 .threads = Pointers(compute_.threads),
                                 .locations = nn::PipelineLocations::OfDevices(placement.device_of),
                                 .micro_batches = micro_batches,
                                 .trace = trace_}));
    compute_.placement = DescribeLayers(model_, placement);
    return absl::OkStatus();
  }

  // Creates one device, on the caller's thread. If no layer requests a device, the device is chosen by
  // ChooseDevice(), which may fall back to the CPU. `before`: the number of warnings before the placement
  // added its own.
  absl::Status MakeAlone(LayerPlacement placement, size_t before) {
    const bool free = options_.devices.place.empty() &&
                      std::all_of(model_.nodes().begin(), model_.nodes().end(),
                                  [](const nn::Node& node) { return node.device.empty(); });
    auto chosen =
        free ? ChooseDevice(request_, makers_) : MakeDevice(placement.devices[0], request_, makers_);
    if (!chosen.ok()) return chosen.status();
    if (free) compute_.warnings.resize(before);  // ChooseDevice() has repeated them
    Append(compute_.remarks, std::move(chosen->remarks));
    Append(compute_.warnings, std::move(chosen->warnings));
    compute_.device = std::move(chosen->device);
    compute_.name = compute_.device->name();
    CAIRN_ASSIGN_OR_RETURN(const DeviceName made, ParseDeviceName(compute_.name));
    DeviceName& told = placement.devices[0].name;
    told.type = made.type;
    told.index = made.index;
    compute_.placement = DescribeLayers(model_, placement);
    CAIRN_ASSIGN_OR_RETURN(compute_.replica,
                           nn::Replica::Create(model_, objective_, *compute_.device,
                                               {.trace = {.recorder = trace_}, .sync = workers_}));
    if (made.type == kGpu && options_.all_reduce() && options_.allreduce == "auto") TakePeer(*made.index);
    return absl::OkStatus();
  }

  // Offers the GPU for sums with other workers' GPUs. All workers decide together whether it is used.
  void TakePeer(int index) {
    auto peer = makers_.peer_gpu(index);
    if (peer.ok()) {
      compute_.peer = *std::move(peer);
      return;
    }
    auto& told = absl::IsNotFound(peer.status()) ? compute_.remarks : compute_.warnings;
    told.push_back(absl::StrCat("gradients are summed around the ring: ", peer.status().message()));
  }

  // Creates this worker's devices for a model that is divided over workers.
  absl::Status MakeOurs() {
    const ModelPartition& partition = assignment_->partition;
    std::vector<bool> here;
    for (size_t i = 0; i < partition.location_of.size(); ++i)
      here.push_back(partition.task_of(i) == assignment_->task);
    CAIRN_ASSIGN_OR_RETURN(LayerPlacement placement,
                           PlaceLayers(model_, options_.devices.place, request_, makers_, &here));
    Append(compute_.remarks, placement.remarks);
    Append(compute_.warnings, placement.warnings);
    CAIRN_RETURN_IF_ERROR(StartThreads(placement.devices));
    compute_.locations = {.location_of = partition.location_of,
                          .device_of = std::vector<int>(partition.task_of_location.size(), -1),
                          .task_of = partition.task_of_location};
    for (size_t i = 0; i < here.size(); ++i) {
      if (here[i])
        compute_.locations.device_of[static_cast<size_t>(partition.location_of[i])] = placement.device_of[i];
      placement.elsewhere.push_back({.job = "worker", .task = assignment_->leader + partition.task_of(i)});
    }
    compute_.placement = DescribeLayers(model_, placement);
    return absl::OkStatus();
  }

  absl::Status StartThreads(const std::vector<FoundDevice>& found) {
    std::vector<std::string> names;
    for (const FoundDevice& device : found) {
      const std::string name = device.name.ShortName();
      auto thread =
          nn::DeviceThread::Start(name.substr(1), [&]() -> absl::StatusOr<std::unique_ptr<kernels::Device>> {
            if (cores_.count > 0) StayOnCores(cores_.first, cores_.count);
            CAIRN_ASSIGN_OR_RETURN(ChosenDevice chosen, MakeDevice(device, request_, makers_));
            Append(compute_.remarks, std::move(chosen.remarks));
            Append(compute_.warnings, std::move(chosen.warnings));
            return std::move(chosen.device);
          });
      if (!thread.ok()) return Annotate(thread.status(), name);
      compute_.threads.push_back(*std::move(thread));
      names.push_back(name);
    }
    compute_.name = absl::StrJoin(names, ",");
    return absl::OkStatus();
  }

  const TrainOptions& options_;
  const nn::Model& model_;
  const nn::Objective& objective_;
  const DeviceRequest& request_;
  const CoreRange cores_;
  const DeviceMakers& makers_;
  TraceRecorder* const trace_;
  const Assignment* const assignment_;
  nn::BatchSync* const workers_;
  Compute compute_;
};

}  // namespace

int64_t MicroBatchesOf(const TrainOptions& options, const nn::Model& model, int64_t devices) {
  if (options.devices.micro_batches > 0) return options.devices.micro_batches;
  // Trainable BatchNormalization normalizes by the batch, so splitting a batch would change the results.
  const bool normalizes = std::any_of(
      model.variables().begin(), model.variables().end(),
      [](const nn::ModelVariable& variable) { return variable.moving_average_momentum.value_or(1) != 1; });
  return normalizes || model.synchronizes_batch() ? 1 : 4 * devices;
}

absl::StatusOr<Compute> MakeCompute(const ComputeArgs& args) {
  return Maker(args).Make();
}

}  // namespace cairn::worker
