// `cairn`, the command line tool: parses the subcommand and its flags and runs it.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/command.h"
#include "common/build_info/build_info.h"
#include "common/core/status.h"
#include "common/flags/flags.h"
#include "common/memory/out_of_memory.h"
#include "common/system/process_start.h"
#include "common/system/standard_streams.h"
#include "data/file/mapped_file.h"

namespace cairn::cli {
namespace {

struct Row {
  const char* name;
  const char* what;
  std::unique_ptr<Command> (*make)();
};

constexpr Row kCommands[] = {
    {"train", "Train a model on this machine: start servers and workers and show their progress",
     MakeTrainCommand},
    {"run",
     "Run a training program of any kind on this machine: start servers and N copies of it, as its workers",
     MakeRunCommand},
    {"check", "Check from this machine whether a job can start: names, servers, clocks, data, disk space",
     MakeCheckCommand},
    {"model", "Show a model's layers and parameters", MakeModelCommand},
    {"devices", "List the devices of this machine, and why no GPU can be used", MakeDevicesCommand},
    {"matpow", "Compute A^n + B^n on chosen devices, to test them and measure their speed",
     MakeMatpowCommand},
    {"plan", "Estimate the step time of a cluster, its bottleneck, and the best number of servers",
     MakePlanCommand},
    {"digits", "Write a synthetic data set of digits in the format of MNIST", MakeDigitsCommand},
    {"synthetic", "Write a synthetic click log, texts or images", MakeSyntheticCommand},
    {"var", "Set, get and list variables on the servers", MakeVarCommand},
    {"checkpoint", "List, show, verify and consolidate checkpoints", MakeCheckpointCommand},
    {"export", "Write a trained model as .onnx or .safetensors", MakeExportCommand},
    {"predict", "Score examples with a trained model", MakePredictCommand},
    {"cluster", "Generate cluster files: ClusterSpec, shell script, Docker Compose, Kubernetes",
     MakeClusterCommand},
    {"health", "Check the health of a server, for container health checks", MakeHealthCommand},
    {"status", "Show the state of a running cluster: tasks, rates, and which tasks others wait for",
     MakeStatusCommand},
    {"job", "Cancel a job", MakeJobCommand},
    {"trace", "Merge timelines (--trace_file), or show where the time of a step goes", MakeTraceCommand},
    {"version", "Print version, commit and build configuration", MakeVersionCommand},
};

// The exit code of a command that returned `code`. A success becomes a failure if standard output could not
// be written.
int EndOf(const std::string& command, int code) {
  const absl::Status status = FlushStandardOutput();
  if (status.ok()) return code;
  std::fprintf(stderr, "cairn %s: %s\n", command.c_str(), std::string(status.message()).c_str());
  return code != 0 ? code : static_cast<int>(ExitCode::kFailure);
}

int Main(int argc, char** argv) {
  OccupyStandardStreams();
  PrepareProcess(argv);
  for (const std::string& remark : TakeRemarks()) std::fprintf(stderr, "cairn: %s\n", remark.c_str());
  CLI::App app("Trains neural networks with parameter servers", "cairn");
  app.require_subcommand(0, 1);
  std::vector<std::pair<CLI::App*, std::unique_ptr<Command>>> commands;
  for (const Row& row : kCommands) {
    CLI::App* subcommand = app.add_subcommand(row.name, row.what);
    commands.emplace_back(subcommand, row.make());
    commands.back().second->Declare(*subcommand);
  }
  app.footer("`cairn COMMAND --help` lists the flags of a command.");  // not inherited by the commands above
  if (const auto code = ParseCommandLine(app, argc, argv, BuildInfo())) return static_cast<int>(*code);
  data::ExplainTruncatedFiles();
  for (const auto& [subcommand, command] : commands) {
    if (subcommand->parsed()) return EndOf(subcommand->get_name(), command->Run(*subcommand));
  }
  return static_cast<int>(UsageError("cairn", "a command is missing; `cairn --help` lists them"));
}

}  // namespace
}  // namespace cairn::cli

int main(int argc, char** argv) {
  cairn::ReportOutOfMemory("cairn");
  return cairn::cli::Main(argc, argv);
}
