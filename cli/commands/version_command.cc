#include <cstdio>
#include <string>

#include "cli/commands/command.h"
#include "common/build_info/build_info.h"

namespace cairn::cli {
namespace {

class VersionCommand final : public Command {
 public:
  void Declare(CLI::App&) override {}
  int Run(const CLI::App&) override {
    std::printf("cairn %s\n", std::string(BuildInfo()).c_str());
    return 0;
  }
};

}  // namespace

std::unique_ptr<Command> MakeVersionCommand() {
  return std::make_unique<VersionCommand>();
}

}  // namespace cairn::cli
