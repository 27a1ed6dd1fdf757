#include "worker/device_choice.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/cpu/device.h"
#include "worker/device_name.h"

namespace cairn::worker {
namespace {

using kernels::Precision;

std::string GpuName(int index) {
  return absl::StrCat("/gpu:", index);
}

std::string Available(const absl::StatusOr<int>& gpus) {
  std::string names = "/cpu:0";
  for (int i = 0; i < gpus.value_or(0); ++i) absl::StrAppend(&names, ", ", GpuName(i));
  return names;
}

class Choice {
 public:
  Choice(const DeviceRequest& request, const DeviceMakers& makers) : request_(request), makers_(makers) {}

  absl::StatusOr<ChosenDevice> Any() {
    const absl::StatusOr<int> gpus = makers_.count_gpus();
    if (gpus.ok()) {
      const auto [index, why] = InTurn(*gpus);
      const absl::Status made = Gpu(index, why);
      if (made.ok()) return std::move(chosen_);
      chosen_.warnings.push_back(absl::StrCat(GpuName(index), ": ", made.message()));
      return Cpu(absl::StrCat(GpuName(index), " is not usable"));
    }
    const std::string why(gpus.status().message());
    // Nothing to use is as common as can be; what is there and does not work is to be repaired.
    if (!absl::IsNotFound(gpus.status())) chosen_.warnings.push_back(why);
    return Cpu(why);
  }

  absl::StatusOr<ChosenDevice> Named(const DeviceName& name) {
    const net::TaskId& self = request_.task;
    if ((!name.job.empty() && name.job != self.job) || (name.task.has_value() && *name.task != self.index)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--device: '", request_.device, "' is of another task, this is ", self.ToString()));
    }
    if (!name.gpu && name.index.value_or(0) == 0) return Cpu("--device says so");
    const absl::StatusOr<int> gpus = makers_.count_gpus();
    if (name.gpu && gpus.ok() && name.index.value_or(0) < *gpus) {
      const auto [index, why] =
          name.index.has_value() ? std::pair(*name.index, std::string("--device says so")) : InTurn(*gpus);
      CAIRN_RETURN_IF_ERROR(Gpu(index, why));
      return std::move(chosen_);
    }
    const std::string missing =
        absl::StrCat("there is no ", name.gpu ? "/gpu:" : "/cpu:", name.index.value_or(0),
                     name.gpu && !gpus.ok() ? absl::StrCat(" (", gpus.status().message(), ")") : "",
                     "; available: ", Available(gpus));
    if (!request_.allow_soft_placement) {
      return absl::InvalidArgumentError(absl::StrCat("--device: ", missing));
    }
    chosen_.warnings.push_back(missing);
    return Cpu("--allow_soft_placement says so");
  }

 private:
  // The GPU that is this worker's where all take turns, and why.
  std::pair<int, std::string> InTurn(int gpus) const {
    if (gpus == 1) return {0, "the only GPU"};
    return {request_.trainer_on_host % gpus, absl::StrCat("one of ", gpus, " GPUs, the turn of trainer ",
                                                          request_.trainer_on_host, " of this machine")};
  }

  absl::Status Gpu(int index, const std::string& why) {
    CAIRN_ASSIGN_OR_RETURN(const kernels::CudaDeviceInfo info, makers_.describe_gpu(index));
    kernels::CudaOptions options = request_.cuda;
    options.index = index;
    CAIRN_ASSIGN_OR_RETURN(chosen_.device, makers_.make_gpu(options));
    chosen_.remarks.push_back(absl::StrCat("Found device ", index, " with properties: ", info.ToString()));
    Remark(why);
    return absl::OkStatus();
  }

  absl::StatusOr<ChosenDevice> Cpu(const std::string& why) {
    if (!ComputesOnCpu(request_.cuda.precision)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--precision: ", kernels::NameOf(request_.cuda.precision),
                       " needs a GPU, and this is /cpu:0: ", why));
    }
    CAIRN_ASSIGN_OR_RETURN(chosen_.device, makers_.make_cpu(request_.threads));
    Remark(why);
    return std::move(chosen_);
  }

  void Remark(const std::string& why) {
    chosen_.remarks.push_back(absl::StrCat("computing on ", chosen_.device->Description(), " (", why, ")"));
  }

  const DeviceRequest& request_;
  const DeviceMakers& makers_;
  ChosenDevice chosen_;
};

}  // namespace

bool ComputesOnCpu(Precision precision) {
  return precision == Precision::kFloat32 || precision == Precision::kTensorFloat32;
}

DeviceMakers TheBackends() {
  return {.count_gpus = &kernels::CountCudaDevices,
          .describe_gpu = &kernels::DescribeCudaDevice,
          .make_gpu = &kernels::CreateCudaDevice,
          .make_cpu = [](int threads) { return kernels::CreateCpuDevice(0, threads); }};
}

absl::StatusOr<ChosenDevice> ChooseDevice(const DeviceRequest& request, const DeviceMakers& makers) {
  if (request.device == "auto") return Choice(request, makers).Any();
  CAIRN_ASSIGN_OR_RETURN(const DeviceName name, ParseDeviceName(request.device));
  return Choice(request, makers).Named(name);
}

}  // namespace cairn::worker
