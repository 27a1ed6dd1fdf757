#include "worker/device_flags.h"

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/core/flags.h"
#include "common/core/status.h"
#include "worker/device_choice.h"
#include "worker/device_name.h"
#include "worker/layer_placement.h"

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
  return text == "auto" ? "" : std::string(ParseDeviceName(text).status().message());
}

std::string CheckExplicitDevice(const std::string& text) {
  return std::string(ParseDeviceName(text).status().message());
}

std::string CheckPlacementRule(const std::string& text) {
  return std::string(ParsePlacementRule(text).status().message());
}

absl::Status NotTogether(absl::string_view a, absl::string_view b, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(a, " does not go with ", b, ": ", why));
}

// Whether `device` names a CPU explicitly.
bool NamesCpu(absl::string_view device) {
  const auto name = ParseDeviceName(device);
  return name.ok() && name->type == kCpu;
}

}  // namespace

void AddCpuDevicesFlag(CLI::App& app, int& cpu_devices) {
  app.add_option(FlagNames("cpu_devices"), cpu_devices,
                 "Number of logical devices /cpu:0, /cpu:1, ... that share the CPU's threads and memory")
      ->check(WholeNumberBetween(1, 256))
      ->capture_default_str()
      ->type_name("N")
      ->group(kGroup);
}

void AddVisibleDevicesFlag(CLI::App& app, std::string& visible_devices) {
  app.add_option(
         FlagNames("visible_devices"), visible_devices,
         "GPUs to use, numbered in this order; sets CUDA_VISIBLE_DEVICES [CUDA_VISIBLE_DEVICES, or all GPUs]")
      ->check(CLI::Validator(&CheckVisibleDevices, ""))
      ->type_name("N,...")
      ->group(kGroup);
}

void AddSoftPlacementFlag(CLI::App& app, bool& allow_soft_placement) {
  app.add_flag(SwitchNames("allow_soft_placement"), allow_soft_placement,
               "Compute on the CPU if the requested device does not exist")
      ->group(kGroup);
}

void UseVisibleDevices(const std::string& visible_devices) {
  if (!visible_devices.empty()) setenv("CUDA_VISIBLE_DEVICES", visible_devices.c_str(), 1);
}

void AddDeviceFlags(CLI::App& app, TrainOptions& options) {
  app.add_option(
         FlagNames("device"), options.device,
         "Device to compute on: /gpu:0, /cpu:0 or /job:worker/task:0/device:GPU:0; auto: a GPU if one is "
         "usable, otherwise the CPU; workers on one host use different GPUs")
      ->check(CLI::Validator(&CheckDevice, ""))
      ->capture_default_str()
      ->type_name("NAME")
      ->group(kGroup);
  app.add_option(FlagNames("devices"), options.devices,
                 "Data parallelism on these devices: each has a replica of the model and a part of the "
                 "worker's batch")
      ->check(CLI::Validator(&CheckExplicitDevice, ""))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...")
      ->group(kGroup);
  app.add_flag(SwitchNames("mirrored"), options.mirrored,
               "Like --devices with all GPUs, or with all CPU devices if there is no GPU")
      ->group(kGroup);
  app.add_option(FlagNames("place"), options.place,
                 "Model parallelism: the layers whose names match LAYERS, for example 'dense*', run on this "
                 "device, which may belong to another worker, for example /job:worker/task:1; the last "
                 "matching rule applies")
      ->check(CLI::Validator(&CheckPlacementRule, ""))
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->type_name("LAYERS=NAME,...")
      ->group(kGroup);
  app.add_option(
         FlagNames("micro_batches"), options.micro_batches,
         "Pipeline parallelism with --place: number of micro-batches that a batch is split into; 0: four per "
         "device, or one if the model has batch normalization")
      ->check(WholeNumberFrom(0))
      ->capture_default_str()
      ->type_name("N")
      ->group(kGroup);
  AddCpuDevicesFlag(app, options.cpu_devices);
  AddSoftPlacementFlag(app, options.allow_soft_placement);
  AddVisibleDevicesFlag(app, options.visible_devices);
  app.add_option_function<std::string>(
         FlagNames("precision"),
         [&options](const std::string& text) { options.precision = *kernels::ParsePrecision(text); },
         "Precision of matrix products and convolutions on a GPU; the CPU computes tf32 in fp32 [tf32]")
      ->check(CLI::Validator(
          [](const std::string& text) {
            return std::string(kernels::ParsePrecision(text).status().message());
          },
          ""))
      ->type_name("fp32|tf32|bf16|fp16")
      ->group(kGroup);
  app.add_flag(SwitchNames("allow_growth"), options.allow_growth,
               "Allocate GPU memory in chunks of doubling size, not exactly what the model needs")
      ->group(kGroup);
  app.add_option(FlagNames("per_process_gpu_memory_fraction"), options.per_process_gpu_memory_fraction,
                 "Largest fraction of a GPU's memory that a worker allocates")
      ->check(NumberAboveUpTo(0, 1))
      ->capture_default_str()
      ->type_name("X")
      ->group(kGroup);
  app.add_flag(SwitchNames("log_device_placement"), options.log_device_placement,
               "Log the device of each layer and the server of each variable")
      ->group(kGroup);
}

absl::Status ValidateDeviceFlags(const TrainOptions& options) {
  if (NamesCpu(options.device) && !ComputesOnCpu(options.precision)) {
    return absl::InvalidArgumentError(absl::StrCat("--precision ", kernels::NameOf(options.precision),
                                                   " does not go with --device ", options.device,
                                                   ": the CPU computes in fp32"));
  }
  if (options.mirrored && !options.devices.empty()) {
    return NotTogether("--mirrored", "--devices", "it takes all of them");
  }
  const bool mirrored = options.mirrored || !options.devices.empty();
  const char* const flag = options.mirrored ? "--mirrored" : "--devices";
  if (mirrored && options.device != "auto") return NotTogether(flag, "--device", "that is one device");
  if (mirrored && !options.place.empty()) {
    return NotTogether(flag, "--place", "each replica has all layers on one device");
  }
  if (mirrored && options.micro_batches > 0) {
    return NotTogether(flag, "--micro_batches", "they are for a model whose layers are on several devices");
  }
  return absl::OkStatus();
}

}  // namespace cairn::worker
