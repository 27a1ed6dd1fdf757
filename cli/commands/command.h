// A subcommand of `cairn`. Each subcommand has its own source file and a row in the table of main.cc.
#pragma once

#include <memory>

namespace CLI {
class App;
}

namespace cairn::cli {

class Command {
 public:
  virtual ~Command() = default;
  // Declares its flags on `app`, once, before the command line is read.
  virtual void Declare(CLI::App& app) = 0;
  // Does the work with the flags that were read; returns the exit code. `app` is the app that was passed to
  // Declare().
  virtual int Run(const CLI::App& app) = 0;
};

std::unique_ptr<Command> MakeCheckCommand();
std::unique_ptr<Command> MakeCheckpointCommand();
std::unique_ptr<Command> MakeClusterCommand();
std::unique_ptr<Command> MakeDevicesCommand();
std::unique_ptr<Command> MakeDigitsCommand();
std::unique_ptr<Command> MakeExportCommand();
std::unique_ptr<Command> MakeHealthCommand();
std::unique_ptr<Command> MakeJobCommand();
std::unique_ptr<Command> MakeMatpowCommand();
std::unique_ptr<Command> MakeModelCommand();
std::unique_ptr<Command> MakePlanCommand();
std::unique_ptr<Command> MakePredictCommand();
std::unique_ptr<Command> MakeRunCommand();
std::unique_ptr<Command> MakeStatusCommand();
std::unique_ptr<Command> MakeSyntheticCommand();
std::unique_ptr<Command> MakeTraceCommand();
std::unique_ptr<Command> MakeTrainCommand();
std::unique_ptr<Command> MakeVarCommand();
std::unique_ptr<Command> MakeVersionCommand();

}  // namespace cairn::cli
