#include "worker/options/device_flags.h"

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/flags/flag_table.h"
#include "worker/devices/device_choice.h"
#include "worker/devices/device_name.h"
#include "worker/devices/placement_rule.h"

namespace cairn::worker {
namespace {

constexpr char kGroup[] = "Devices";

std::string CheckVisibleDevices(const std::string& text) {
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int index = 0;
    if (absl::SimpleAtoi(part, &index) ? index >= 0
                                       : absl::StartsWith(part, "GPU-") || absl::StartsWith(part, "MIG-")) {
      continue;
    }
    return absl::StrCat("'", part, "' is not a GPU: expected a number, or a name such as GPU-8932f937");
  }
  return "";
}

std::string CheckDevice(const std::string& text) {
  return text == "auto" ? "" : ParsedBy(&ParseDeviceName).fault(text);
}

// Whether `device` names a CPU explicitly.
bool NamesCpu(absl::string_view device) {
  const auto name = ParseDeviceName(device);
  return name.ok() && name->type == kCpu;
}

}  // namespace

void AddCpuDevicesFlag(CLI::App& app, int& cpu_devices) {
  AddFlags(app, kGroup,
           {{"--cpu_devices N", &cpu_devices,
             "Number of logical devices /cpu:0, /cpu:1, ... that share the CPU's threads and memory",
             WholeNumberBetween(1, 256)}});
}

void AddVisibleDevicesFlag(CLI::App& app, std::string& visible_devices) {
  AddFlags(app, kGroup,
           {{"--visible_devices N,...",
             &visible_devices,
             "GPUs to use, numbered in this order; sets CUDA_VISIBLE_DEVICES [CUDA_VISIBLE_DEVICES, or all "
             "GPUs]",
             {&CheckVisibleDevices}}});
}

void AddSoftPlacementFlag(CLI::App& app, bool& allow_soft_placement) {
  AddFlags(app, kGroup,
           {{"--[no]allow_soft_placement", &allow_soft_placement,
             "Compute on the CPU if the requested device does not exist"}});
}

void UseVisibleDevices(const std::string& visible_devices) {
  if (!visible_devices.empty()) setenv("CUDA_VISIBLE_DEVICES", visible_devices.c_str(), 1);
}

void AddDeviceFlags(CLI::App& app, DeviceFlags& flags) {
  AddFlags(
      app, kGroup,
      {{"--device NAME",
        &flags.device,
        "Device to compute on: /gpu:0, /cpu:0 or /job:worker/task:0/device:GPU:0; auto: a GPU if one is "
        "usable, otherwise the CPU; workers on one host use different GPUs",
        {&CheckDevice}},
       {"--devices NAME,...", &flags.replicas,
        "Data parallelism on these devices: each has a replica of the model and a part of the worker's batch",
        ParsedBy(&ParseDeviceName), kOneWord},
       {"--[no]mirrored", &flags.mirrored,
        "Like --devices with all GPUs, or with all CPU devices if there is no GPU"},
       {"--place LAYERS=NAME,...", &flags.place,
        "Model parallelism: the layers whose names match LAYERS, for example 'dense*', run on this device, "
        "which may belong to another worker, for example /job:worker/task:1; the last matching rule applies",
        ParsedBy(&ParsePlacementRule), kRepeatable},
       {"--micro_batches N", &flags.micro_batches,
        "Pipeline parallelism with --place: number of micro-batches that a batch is split into; 0: four per "
        "device, or one if the model has batch normalization",
        WholeNumberFrom(0)}});
  AddCpuDevicesFlag(app, flags.cpu_devices);
  AddSoftPlacementFlag(app, flags.allow_soft_placement);
  AddVisibleDevicesFlag(app, flags.visible_devices);
  AddFlags(app, kGroup,
           {{"--precision fp32|tf32|bf16|fp16", Parsed(&flags.cuda.precision, &kernels::ParsePrecision),
             "Precision of matrix products and convolutions; a CPU computes tf32 in fp32, and bf16 if it can "
             "[tf32]"},
            {"--[no]allow_growth", &flags.cuda.allow_growth,
             "Allocate GPU memory in chunks of doubling size, not exactly what the model needs"},
            {"--per_process_gpu_memory_fraction X", &flags.cuda.memory_fraction,
             "Largest fraction of a GPU's memory that a worker allocates", NumberAboveUpTo(0, 1)},
            {"--[no]log_device_placement", &flags.log_device_placement,
             "Log the device of each layer and the server of each variable"}});
}

absl::Status ValidateDeviceFlags(const DeviceFlags& flags) {
  const FlagUse precision{absl::StrCat("--precision ", kernels::NameOf(flags.cuda.precision)),
                          flags.cuda.precision == kernels::Precision::kFloat16};
  const FlagUse cpu{absl::StrCat("--device ", flags.device), NamesCpu(flags.device)};
  const FlagUse mirrored{"--mirrored", flags.mirrored}, devices{"--devices", !flags.replicas.empty()};
  const FlagUse replicas = flags.mirrored ? mirrored : devices;
  const FlagUse device{"--device", flags.device != "auto"}, place{"--place", !flags.place.empty()};
  const FlagUse micro_batches{"--micro_batches", flags.micro_batches > 0};
  return CheckRules(
      {{precision, kExcludes, cpu, "the CPU computes in fp32 or bf16"},
       {mirrored, kExcludes, devices, "it takes all of them"},
       {replicas, kExcludes, device, "that is one device"},
       {replicas, kExcludes, place, "each replica has all layers on one device"},
       {replicas, kExcludes, micro_batches, "they are for a model whose layers are on several devices"}});
}

}  // namespace cairn::worker
