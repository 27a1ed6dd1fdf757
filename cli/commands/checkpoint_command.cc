#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "cli/commands/command.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/embedding/trained_tables.h"
#include "worker/export/table_files.h"

namespace cairn::cli {
namespace {

using worker::Checkpoint;
using worker::TensorInfo;

constexpr char kCheckpointProgram[] = "cairn checkpoint";

std::string NameOf(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

// "2026-11-20 21:02:12"; "-" if the time is not finite.
std::string TimeOf(double unix_seconds) {
  if (!std::isfinite(unix_seconds)) return "-";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::UnixEpoch() + absl::Seconds(unix_seconds),
                          absl::UTCTimeZone());
}

// Formats an error as "DATA_LOSS: state.json: ...", without the directory at the start of its message.
std::string FaultOf(const absl::Status& status, const std::string& directory) {
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ",
                      absl::StripPrefix(status.message(), absl::StrCat(directory, ": ")));
}

// All checkpoints of a train_dir by increasing step, or the one checkpoint at `path`.
absl::StatusOr<std::vector<std::string>> CheckpointsAt(const std::string& path) {
  if (FileExists(absl::StrCat(path, "/", worker::kStateFile)) || worker::StepOf(NameOf(path)) >= 0) {
    return std::vector<std::string>{path};
  }
  CAIRN_ASSIGN_OR_RETURN(auto directories, worker::ListCheckpoints(path));
  if (directories.empty()) return absl::NotFoundError(absl::StrCat("there is no checkpoint in ", path));
  return directories;
}

// The newest intact checkpoint of a train_dir, or the one checkpoint at `path`.
absl::StatusOr<Checkpoint> OpenAt(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const auto directories, CheckpointsAt(path));
  if (directories.size() == 1 && directories.front() == path) return Checkpoint::Open(path);
  return worker::OpenNewest(path, [](const absl::Status& skipped) {
    std::fprintf(stderr, "%s: skipped %s\n", kCheckpointProgram, std::string(skipped.message()).c_str());
  });
}

// Prints a line for each checkpoint at `path`, and verifies every byte of it. With `quick`, only
// Checkpoint::Open() runs, and the verdict is "not verified".
absl::Status List(const std::string& path, bool quick) {
  CAIRN_ASSIGN_OR_RETURN(const auto directories, CheckpointsAt(path));
  for (const std::string& directory : directories) {
    const auto checkpoint = Checkpoint::Open(directory);
    const absl::Status whole = !checkpoint.ok() ? checkpoint.status()
                               : quick          ? absl::OkStatus()
                                                : checkpoint->Verify();
    const std::string verdict = !whole.ok() ? FaultOf(whole, directory) : quick ? "not verified" : "ok";
    if (checkpoint.ok()) {
      absl::PrintF("%d\t%s\t%d\t%s\n", checkpoint->run().global_step, TimeOf(checkpoint->run().saved_at),
                   checkpoint->bytes(), verdict);
    } else {
      absl::PrintF("%d\t-\t-\t%s\n", worker::StepOf(NameOf(directory)), verdict);
    }
    std::fflush(stdout);  // reading the next checkpoint may take long
  }
  return absl::OkStatus();
}

absl::Status Show(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenAt(path));
  const worker::RunState& run = checkpoint.run();
  const auto fact = [](absl::string_view name, const auto& value) {
    absl::PrintF("%-16s %s\n", name, absl::StrCat(value));
  };
  fact("checkpoint", checkpoint.directory());
  fact("saved_at", absl::StrCat(TimeOf(run.saved_at), " UTC"));
  fact("global_step", run.global_step);
  fact("final_version", run.final_version);
  fact("epochs", run.epochs);
  fact("mode", run.mode);
  fact("run_id", run.run_id);
  fact("model_sha256", run.model_sha256);
  fact("optimizer", run.optimizer);
  for (const auto& [name, value] : run.hyperparameters) fact(absl::StrCat("  ", name), value);
  fact("slots", absl::StrJoin(run.slots, ", "));
  if (run.learning_rate.has_value()) fact("learning_rate", *run.learning_rate);
  fact("seed", run.seed);
  fact("batch_size", run.batch_size);
  fact("num_workers", run.num_workers);
  for (const worker::TableRun& table : run.tables.value_or(std::vector<worker::TableRun>())) {
    fact("table", absl::StrCat(table.name, ", rows of ", table.dim, ", ", table.optimizer));
  }
  if (!run.positions.empty()) fact("positions", absl::StrJoin(run.positions, ", "));
  fact("examples", run.examples);
  fact("gradients",
       absl::StrCat(run.accepted, " accepted, ", run.stale, " stale, ", run.duplicate, " duplicate"));
  fact("files", absl::StrCat(checkpoint.files().size(), ", ", checkpoint.bytes(), " bytes"));
  std::printf("\n");

  size_t width = 6;
  for (const TensorInfo& tensor : checkpoint.tensors()) width = std::max(width, tensor.name.size());
  absl::PrintF("%-*s  %-20s %12s %5s\n", width, "tensor", "shape", "bytes", "files");
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    absl::PrintF("%-*s  %-20s %12d %5d\n", width, tensor.name, tensor.shape.ToString(), tensor.bytes(),
                 tensor.rows.size());
  }
  return absl::OkStatus();
}

// Verifies all checkpoints at `path`, and does not stop at a damaged one. Returns kFailure if a checkpoint is
// damaged.
absl::StatusOr<ExitCode> Verify(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const auto directories, CheckpointsAt(path));
  ExitCode code = ExitCode::kDone;
  for (const std::string& directory : directories) {
    const auto checkpoint = Checkpoint::Open(directory);
    const absl::Status status = checkpoint.ok() ? checkpoint->Verify() : checkpoint.status();
    absl::PrintF("%s: %s\n", directory, status.ok() ? "ok" : FaultOf(status, directory));
    if (!status.ok() && code == ExitCode::kDone) {
      code = absl::IsDataLoss(status) ? ExitCode::kFailure : ExitCodeOf(status);
    }
  }
  return code;
}

absl::Status Consolidate(const std::string& path, const std::string& output) {
  CAIRN_ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenAt(path));
  std::vector<net::VariableInfo> variables;
  int64_t elements = 0;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (!tensor.slot.empty() || tensor.of_table) continue;
    variables.push_back({tensor.variable, tensor.shape, elements});
    elements += tensor.shape.num_elements();
  }
  std::vector<float> values(static_cast<size_t>(elements));
  CAIRN_RETURN_IF_ERROR(checkpoint.Load(variables, {}, {absl::MakeSpan(values)}));
  std::vector<worker::NamedTensor> tensors;
  for (const net::VariableInfo& variable : variables) {
    tensors.push_back(
        {variable.name, variable.shape,
         absl::MakeConstSpan(values).subspan(static_cast<size_t>(variable.offset),
                                             static_cast<size_t>(variable.shape.num_elements()))});
  }
  std::map<std::string, std::string> metadata = {{"format", "pt"},
                                                 {"global_step", absl::StrCat(checkpoint.run().global_step)}};
  for (const worker::TableRun& table : checkpoint.run().tables.value_or(std::vector<worker::TableRun>())) {
    CAIRN_RETURN_IF_ERROR(worker::AddRows(checkpoint, table, tensors, metadata));
  }
  return worker::WriteSafetensors(output, tensors, metadata);
}

// `cairn checkpoint`: lists, shows, verifies and consolidates the checkpoints of a --train_dir.
class CheckpointCommand final : public Command {
 public:
  void Declare(CLI::App& app) override {
    app.require_subcommand(1);
    list_ = app.add_subcommand("list", "Print step, time (UTC), size in bytes and state of each checkpoint");
    AddFlags(*list_, {{"--quick", &quick_, "Do not read the values; damaged values are not detected"}});
    show_ = app.add_subcommand("show", "Print the run state and the tensors of a checkpoint");
    verify_ = app.add_subcommand("verify",
                                 "Verify the checksums of all files; exit with 1 if a checkpoint is damaged");
    consolidate_ = app.add_subcommand("consolidate", "Write all variables to one .safetensors file");
    for (CLI::App* command : {list_, show_, verify_, consolidate_}) {
      AddFlags(*command,
               {{"DIR", &path_, "A --train_dir, or the directory of one checkpoint", {}, kRequired}});
    }
    AddFlags(*consolidate_, {{"-o, --output FILE", &output_, "File to write", {}, kRequired}});
  }

  int Run(const CLI::App&) override {
    std::error_code error;
    if (!std::filesystem::is_directory(path_, error)) {
      return static_cast<int>(
          UsageError(kCheckpointProgram, absl::StrCat("DIR: there is no directory '", path_, "'")));
    }
    while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
    if (consolidate_->parsed()) {
      if (const absl::Status status = CheckWritable(output_); !status.ok()) {
        return static_cast<int>(UsageError(kCheckpointProgram, absl::StrCat("--output: ", status.message())));
      }
    }
    const auto code = Dispatch();
    if (code.ok()) return static_cast<int>(*code);
    std::fprintf(stderr, "%s: %s\n", kCheckpointProgram, std::string(code.status().message()).c_str());
    return static_cast<int>(ExitCodeOf(code.status()));
  }

 private:
  absl::StatusOr<ExitCode> Dispatch() const {
    if (verify_->parsed()) return Verify(path_);
    const absl::Status status = list_->parsed()   ? List(path_, quick_)
                                : show_->parsed() ? Show(path_)
                                                  : Consolidate(path_, output_);
    if (!status.ok()) return status;
    return ExitCode::kDone;
  }

  std::string path_, output_;
  bool quick_ = false;
  CLI::App *list_ = nullptr, *show_ = nullptr, *verify_ = nullptr, *consolidate_ = nullptr;
};

}  // namespace

std::unique_ptr<Command> MakeCheckpointCommand() {
  return std::make_unique<CheckpointCommand>();
}

}  // namespace cairn::cli
