#include <cstdio>

#include "cli/command.h"
#include "common/core/flags.h"

namespace cairn::cli {
namespace {

class VersionCommand final : public Command {
 public:
  void Declare(CLI::App&) override {}
  int Run(const CLI::App&) override {
    std::printf("cairn %s\n", std::string(Version()).c_str());
    return 0;
  }
};

}  // namespace

std::unique_ptr<Command> MakeVersionCommand() {
  return std::make_unique<VersionCommand>();
}

}  // namespace cairn::cli
