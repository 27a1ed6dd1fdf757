// `cairn`, the command line: reads which subcommand is meant and runs it.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "common/core/flags.h"
#include "common/core/out_of_memory.h"
#include "common/core/process_start.h"
#include "common/core/standard_streams.h"
#include "common/core/status.h"
#include "worker/data/mapped_file.h"

namespace cairn::cli {
namespace {

struct Row {
  const char* name;
  const char* what;
  std::unique_ptr<Command> (*make)();
};

constexpr Row kCommands[] = {
    {"train", "Train on this machine: starts servers and workers and shows their progress", MakeTrainCommand},
    {"check", "Look whether a job could start, seen from here: names, servers, clocks, data, disk",
     MakeCheckCommand},
    {"model", "Show a model's layers and parameters", MakeModelCommand},
    {"devices", "List the devices of this machine, or why there is no GPU", MakeDevicesCommand},
    {"matpow", "Compute A^n + B^n, the powers on one or two devices and the sum on another",
     MakeMatpowCommand},
    {"plan", "How long a step of a cluster takes, what bounds it, and how many servers are best",
     MakePlanCommand},
    {"digits", "Write a set of generated digits in MNIST's format", MakeDigitsCommand},
    {"var", "Set, get and list variables on the servers", MakeVarCommand},
    {"checkpoint", "List, show, verify and consolidate checkpoints", MakeCheckpointCommand},
    {"export", "Write a trained model as .onnx or .safetensors", MakeExportCommand},
    {"predict", "Score examples with a trained model", MakePredictCommand},
    {"cluster", "Write the files of a cluster: ClusterSpec, shell, Compose, Kubernetes", MakeClusterCommand},
    {"health", "Ask a server whether it is well, for health checks of containers", MakeHealthCommand},
    {"status", "Show a cluster at work: tasks, rates, who waits for whom", MakeStatusCommand},
    {"job", "End a job that holds its servers", MakeJobCommand},
    {"trace", "Merge timelines (--trace_file), or tell where a step's time goes", MakeTraceCommand},
    {"version", "Print the version", MakeVersionCommand},
};

// The exit code of a command that ended with `code`: output that was lost makes a success a failure.
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
  if (const auto code = ParseCommandLine(app, argc, argv)) return static_cast<int>(*code);
  data::ExplainTruncatedFiles();
  for (const auto& [subcommand, command] : commands) {
    if (subcommand->parsed()) return EndOf(subcommand->get_name(), command->Run(*subcommand));
  }
  return static_cast<int>(UsageError("cairn", "which command? `cairn --help` lists them"));
}

}  // namespace
}  // namespace cairn::cli

int main(int argc, char** argv) {
  cairn::ReportOutOfMemory("cairn");
  return cairn::cli::Main(argc, argv);
}
