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

constexpr char kGroup[] = "Where it computes";

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

std::string CheckPlaceRule(const std::string& text) {
  return std::string(ParsePlaceRule(text).status().message());
}

absl::Status NotTogether(absl::string_view a, absl::string_view b, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(a, " does not go with ", b, ": ", why));
}

// Whether `device` certainly names a CPU.
bool NamesCpu(absl::string_view device) {
  const auto name = ParseDeviceName(device);
  return name.ok() && name->type == kCpu;
}

}  // namespace

void AddCpuDevicesFlag(CLI::App& app, int& cpu_devices) {
  app.add_option(
         FlagNames("cpu_devices"), cpu_devices,
         "Logical devices /cpu:0, /cpu:1, ... that the CPU is divided into, with its threads and memory")
      ->check(WholeNumberFrom(1))
      ->check(CLI::Range(1, 256))
      ->capture_default_str()
      ->type_name("N")
      ->group(kGroup);
}

void AddVisibleDevicesFlag(CLI::App& app, std::string& visible_devices) {
  app.add_option(FlagNames("visible_devices"), visible_devices,
                 "The GPUs that exist for us, in this order [CUDA_VISIBLE_DEVICES, or all]")
      ->check(CLI::Validator(&CheckVisibleDevices, ""))
      ->type_name("N,...")
      ->group(kGroup);
}

void AddSoftPlacementFlag(CLI::App& app, bool& allow_soft_placement) {
  app.add_flag(SwitchNames("allow_soft_placement"), allow_soft_placement,
               "Compute on the CPU where a device that is asked for does not exist")
      ->group(kGroup);
}

void UseVisibleDevices(const std::string& visible_devices) {
  if (!visible_devices.empty()) setenv("CUDA_VISIBLE_DEVICES", visible_devices.c_str(), 1);
}

void AddDeviceFlags(CLI::App& app, TrainOptions& options) {
  app.add_option(FlagNames("device"), options.device,
                 "/gpu:0, /cpu:0 or /job:worker/task:0/device:GPU:0; auto: a GPU where one is usable, of "
                 "several each worker of a machine another one")
      ->check(CLI::Validator(&CheckDevice, ""))
      ->capture_default_str()
      ->type_name("NAME")
      ->group(kGroup);
  app.add_option(FlagNames("devices"), options.devices,
                 "A replica of the model on each of these devices, the worker's batch split among them")
      ->check(CLI::Validator(&CheckExplicitDevice, ""))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...")
      ->group(kGroup);
  app.add_flag(SwitchNames("mirrored"), options.mirrored,
               "The same on all GPUs, or, where there is none, on all CPU devices")
      ->group(kGroup);
  app.add_option(
         FlagNames("place"), options.place,
         "The layers whose names fit, as 'dense*', on this device, also of another worker of the group, as "
         "/job:worker/task:1; of several that fit the last counts")
      ->check(CLI::Validator(&CheckPlaceRule, ""))
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->type_name("LAYERS=NAME,...")
      ->group(kGroup);
  app.add_option(
         FlagNames("micro_batches"), options.micro_batches,
         "Pieces of a batch, so that devices with different layers work at the same time; 0: four for "
         "each device, one where layers normalize by the batch")
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
         "What a GPU computes products in; the CPU takes tf32 for fp32 [tf32]")
      ->check(CLI::Validator(
          [](const std::string& text) {
            return std::string(kernels::ParsePrecision(text).status().message());
          },
          ""))
      ->type_name("fp32|tf32|bf16|fp16")
      ->group(kGroup);
  app.add_flag(SwitchNames("allow_growth"), options.allow_growth,
               "Take GPU memory in doubling pieces, not as the model needs it")
      ->group(kGroup);
  app.add_option(FlagNames("per_process_gpu_memory_fraction"), options.per_process_gpu_memory_fraction,
                 "The most of a GPU's memory that a worker takes")
      ->check(NumberAboveUpTo(0, 1))
      ->capture_default_str()
      ->type_name("X")
      ->group(kGroup);
  app.add_flag(SwitchNames("log_device_placement"), options.log_device_placement,
               "Tell on which device each layer is, and on which server each variable")
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
