#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/commands/command.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "common/system/cores.h"
#include "kernels/cpu/device.h"
#include "worker/devices/device_choice.h"
#include "worker/options/device_flags.h"

namespace cairn::cli {
namespace {

using nlohmann::ordered_json;

// `cairn devices`: lists the devices that --device accepts on this machine, one per line, and says why no GPU
// can be used. With --json, prints the same facts as one JSON object.
class DevicesCommand final : public Command {
 public:
  void Declare(CLI::App& app) override {
    AddFlags(app, {{"--json", &json_,
                    "Print one JSON object: physical_devices, logical_devices, and why no GPU can be used"}});
    worker::AddCpuDevicesFlag(app, cpu_devices_);
    worker::AddVisibleDevicesFlag(app, visible_devices_);
  }

  int Run(const CLI::App&) override {
    worker::UseVisibleDevices(visible_devices_);
    const worker::DeviceMakers backends = worker::TheBackends();
    const worker::DeviceRequest request = {
        .cpu_devices = cpu_devices_, .threads = UsableCores(), .task = {"localhost", 0}};
    const auto gpus = backends.count_gpus();
    std::vector<std::string> lines;
    ordered_json logical = ordered_json::array();
    ordered_json physical = ordered_json::array({PhysicalCpu()});
    for (const worker::DeviceName& name : worker::AvailableDevices(request, backends)) {
      logical.push_back({{"name", worker::DeviceName{.type = name.type, .index = name.index}.ToString()},
                         {"device_type", *name.type}});
      if (name.type == worker::kCpu) {
        const auto cpu = worker::MakeDevice({.name = name, .why = ""}, request, backends);
        if (!cpu.ok()) return Failure(cpu.status());
        lines.push_back(cpu->device->Description());
        continue;
      }
      const auto info = backends.describe_gpu(*name.index);
      lines.push_back(absl::StrCat(name.ShortName(), ": ",
                                   info.ok() ? info->ToString() : std::string(info.status().message())));
      physical.push_back(PhysicalGpu(*name.index, info));
    }
    if (!gpus.ok()) lines.emplace_back(gpus.status().message());
    if (json_) {
      ordered_json document = {{"physical_devices", physical}, {"logical_devices", logical}};
      if (!gpus.ok()) document["no_gpu"] = std::string(gpus.status().message());
      lines = {document.dump(2)};
    }
    for (const std::string& line : lines) std::printf("%s\n", line.c_str());
    return 0;
  }

 private:
  static int Failure(const absl::Status& status) {
    std::fprintf(stderr, "cairn devices: %s\n", std::string(status.message()).c_str());
    return static_cast<int>(ExitCode::kFailure);
  }

  static ordered_json PhysicalCpu() {
    const kernels::CpuDeviceInfo info = kernels::DescribeCpu();
    return {
        {"name", "/physical_device:CPU:0"},        {"device_type", "CPU"},    {"processor", info.processor},
        {"instruction_set", info.instruction_set}, {"library", info.library}, {"cores", UsableCores()},
        {"memory_total_bytes", info.memory_bytes}};
  }

  static ordered_json PhysicalGpu(int index, const absl::StatusOr<kernels::CudaDeviceInfo>& info) {
    ordered_json gpu = {{"name", absl::StrCat("/physical_device:GPU:", index)}, {"device_type", "GPU"}};
    if (!info.ok()) {
      gpu["not_usable"] = std::string(info.status().message());
      return gpu;
    }
    gpu.update({{"device_name", info->name},
                {"major", info->major},
                {"minor", info->minor},
                {"memory_clock_khz", info->memory_clock_khz},
                {"pci_bus_id", info->pci_bus_id},
                {"memory_total_bytes", info->total_bytes},
                {"memory_free_bytes", info->free_bytes}});
    return gpu;
  }

  bool json_ = false;
  int cpu_devices_ = 1;
  std::string visible_devices_;
};

}  // namespace

std::unique_ptr<Command> MakeDevicesCommand() {
  return std::make_unique<DevicesCommand>();
}

}  // namespace cairn::cli
