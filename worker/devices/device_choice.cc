#include "worker/devices/device_choice.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "kernels/cpu/device.h"

namespace cairn::worker {
namespace {

using kernels::Precision;

DeviceName NameOf(const net::TaskId& task, const char* type, int index) {
  return {.job = task.job, .replica = 0, .task = task.index, .type = type, .index = index};
}

std::string Available(const DeviceRequest& request, const absl::StatusOr<int>& gpus) {
  std::vector<std::string> names;
  for (int i = 0; i < request.cpu_devices; ++i) names.push_back(absl::StrCat("/cpu:", i));
  for (int i = 0; i < gpus.value_or(0); ++i) names.push_back(absl::StrCat("/gpu:", i));
  return absl::StrJoin(names, ", ");
}

// A search for one device.
class Search {
 public:
  Search(absl::string_view source, const DeviceRequest& request, const DeviceMakers& makers)
      : source_(source), request_(request), gpus_(makers.count_gpus()) {}

  absl::StatusOr<FoundDevice> Any() {
    if (gpus_.ok()) return Gpu(std::nullopt);
    // A machine without a GPU is normal; a GPU that does not work should be repaired.
    const std::string why(gpus_.status().message());
    if (!absl::IsNotFound(gpus_.status())) warnings_.push_back(why);
    return Cpu(0, why);
  }

  absl::StatusOr<FoundDevice> Named(const DeviceName& name) {
    if (!Matches({.job = name.job, .replica = name.replica, .task = name.task},
                 NameOf(request_.task, kCpu, 0))) {
      return absl::InvalidArgumentError(absl::StrCat(
          source_, ": '", name.ToString(), "' belongs to another task, this is ", request_.task.ToString()));
    }
    if (!name.type.has_value() && !name.index.has_value()) return Any();
    const int index = name.index.value_or(0);
    const bool gpu_will_do = name.type.value_or(kGpu) == kGpu, cpu_will_do = name.type.value_or(kCpu) == kCpu;
    const std::string why = absl::StrCat(source_, " requests it");
    if (gpu_will_do && gpus_.ok() && index < *gpus_) return Gpu(name.index);
    if (cpu_will_do && index < request_.cpu_devices) return Cpu(index, why);
    DeviceName missing = name;
    missing.index = index;
    const std::string text = absl::StrCat(
        "there is no ", missing.ShortName(),
        name.type == kGpu && !gpus_.ok() ? absl::StrCat(" (", gpus_.status().message(), ")") : "",
        "; available: ", Available(request_, gpus_));
    if (!request_.allow_soft_placement) return absl::InvalidArgumentError(absl::StrCat(source_, ": ", text));
    warnings_.push_back(text);
    return Cpu(0, "--allow_soft_placement permits it");
  }

  absl::StatusOr<FoundDevice> Cpu(int index, const std::string& why) {
    if (const auto operands = CpuOperands(request_.cuda.precision); !operands.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--precision: ", operands.status().message(),
                                                     ", and this is /cpu:", index, ": ", why));
    }
    return FoundDevice{NameOf(request_.task, kCpu, index), why, std::move(warnings_)};
  }

 private:
  FoundDevice Gpu(std::optional<int> index) {
    const int gpus = *gpus_;
    std::string why = absl::StrCat(source_, " requests it");
    if (!index.has_value()) {
      index = request_.trainer_on_host % gpus;
      why = gpus == 1 ? "the only GPU"
                      : absl::StrCat("one of ", gpus, " GPUs, the one for trainer ", request_.trainer_on_host,
                                     " on this host");
    }
    return {NameOf(request_.task, kGpu, *index), std::move(why), std::move(warnings_)};
  }

  const absl::string_view source_;
  const DeviceRequest& request_;
  const absl::StatusOr<int> gpus_;
  std::vector<std::string> warnings_;
};

}  // namespace

absl::StatusOr<kernels::ElementType> CpuOperands(Precision precision) {
  using kernels::ElementType;
  switch (precision) {
    case Precision::kFloat32:
    case Precision::kTensorFloat32:
      return ElementType::kFloat32;
    case Precision::kBFloat16:
      if (kernels::DescribeCpu().bfloat16) return ElementType::kBFloat16;
      return absl::InvalidArgumentError("bf16 needs a GPU, or a processor with AVX-512 BF16 or AMX");
    case Precision::kFloat16:
      break;
  }
  return absl::InvalidArgumentError("fp16 needs a GPU");
}

DeviceMakers TheBackends() {
  return {.count_gpus = &kernels::CountCudaDevices,
          .describe_gpu = &kernels::DescribeCudaDevice,
          .make_gpu = &kernels::CreateCudaDevice,
          .make_cpu = &kernels::CreateCpuDevice,
          .group_gpus = &kernels::CreateCudaGroup,
          .peer_gpu = &kernels::CreateCudaPeer};
}

std::vector<DeviceName> AvailableDevices(const DeviceRequest& request, const DeviceMakers& makers) {
  std::vector<DeviceName> names;
  for (int i = 0; i < request.cpu_devices; ++i) names.push_back(NameOf(request.task, kCpu, i));
  const int gpus = makers.count_gpus().value_or(0);
  for (int i = 0; i < gpus; ++i) names.push_back(NameOf(request.task, kGpu, i));
  return names;
}

absl::StatusOr<FoundDevice> FindDevice(absl::string_view text, absl::string_view source,
                                       const DeviceRequest& request, const DeviceMakers& makers) {
  if (text == "auto") return Search(source, request, makers).Any();
  CAIRN_ASSIGN_OR_RETURN(const DeviceName name, ParseDeviceName(text));
  return Search(source, request, makers).Named(name);
}

absl::StatusOr<ChosenDevice> MakeDevice(const FoundDevice& found, const DeviceRequest& request,
                                        const DeviceMakers& makers) {
  ChosenDevice chosen = {.device = nullptr, .warnings = found.warnings};
  const int index = *found.name.index;
  if (found.name.type == kGpu) {
    CAIRN_ASSIGN_OR_RETURN(const kernels::CudaDeviceInfo info, makers.describe_gpu(index));
    kernels::CudaOptions options = request.cuda;
    options.index = index;
    CAIRN_ASSIGN_OR_RETURN(chosen.device, makers.make_gpu(options));
    chosen.remarks.push_back(absl::StrCat("Found device ", index, " with properties: ", info.ToString()));
  } else {
    const int share = request.threads / request.cpu_devices + (index < request.threads % request.cpu_devices);
    const int64_t memory =
        request.cpu_devices == 1 ? 0 : kernels::DescribeCpu().memory_bytes / request.cpu_devices;
    CAIRN_ASSIGN_OR_RETURN(const kernels::ElementType operands, CpuOperands(request.cuda.precision));
    CAIRN_ASSIGN_OR_RETURN(chosen.device, makers.make_cpu(index, std::max(1, share), memory, operands));
  }
  chosen.remarks.push_back(absl::StrCat("computing on ", chosen.device->Description(), " (", found.why, ")"));
  return chosen;
}

absl::StatusOr<ChosenDevice> ChooseDevice(const DeviceRequest& request, const DeviceMakers& makers) {
  constexpr char kFlag[] = "--device";
  CAIRN_ASSIGN_OR_RETURN(FoundDevice found, FindDevice(request.device, kFlag, request, makers));
  auto chosen = MakeDevice(found, request, makers);
  if (chosen.ok() || request.device != "auto" || found.name.type != kGpu) return chosen;
  const std::string gpu = found.name.ShortName();
  CAIRN_ASSIGN_OR_RETURN(FoundDevice cpu,
                         Search(kFlag, request, makers).Cpu(0, absl::StrCat(gpu, " is not usable")));
  cpu.warnings = std::move(found.warnings);
  cpu.warnings.push_back(absl::StrCat(gpu, ": ", chosen.status().message()));
  return MakeDevice(cpu, request, makers);
}

}  // namespace cairn::worker
