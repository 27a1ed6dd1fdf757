#include <CLI/CLI.hpp>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "common/core/cores.h"
#include "common/core/flags.h"
#include "worker/device_choice.h"

namespace cairn::cli {
namespace {

// What --device may name on this machine: one line each, and, where there is no GPU, why.
class DevicesCommand final : public Command {
 public:
  void Declare(CLI::App&) override {}

  int Run(const CLI::App&) override {
    const worker::DeviceMakers backends = worker::TheBackends();
    const auto cpu = backends.make_cpu(UsableCores());
    if (!cpu.ok()) return Failure(cpu.status());
    std::printf("%s\n", (*cpu)->Description().c_str());
    const auto gpus = backends.count_gpus();
    if (!gpus.ok()) {
      std::printf("%s\n", std::string(gpus.status().message()).c_str());
      return 0;
    }
    for (int index = 0; index < *gpus; ++index) {
      const auto info = backends.describe_gpu(index);
      const std::string line = info.ok() ? info->ToString() : std::string(info.status().message());
      std::printf("/gpu:%d: %s\n", index, line.c_str());
    }
    return 0;
  }

 private:
  static int Failure(const absl::Status& status) {
    std::fprintf(stderr, "cairn devices: %s\n", std::string(status.message()).c_str());
    return static_cast<int>(ExitCode::kFailure);
  }
};

}  // namespace

std::unique_ptr<Command> MakeDevicesCommand() {
  return std::make_unique<DevicesCommand>();
}

}  // namespace cairn::cli
