#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/commands/command.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "common/flags/words.h"
#include "common/trace/trace_file.h"
#include "common/trace/trace_merge.h"
#include "common/trace/trace_summary.h"

namespace cairn::cli {
namespace {

constexpr char kTraceProgram[] = "cairn trace";

class TraceCommand final : public Command {
 public:
  void Declare(CLI::App& app) override {
    app.require_subcommand(1);
    merge_ =
        app.add_subcommand("merge", "Merge the timelines of several tasks into one file, with one clock");
    AddFlags(*merge_, {{"OUT FILE", &out_, "File to write", {}, kRequired},
                       {"IN FILE", &in_, "Files that tasks wrote with --trace_file", {}, kRequired}});
    show_ = app.add_subcommand("show", "Show where the time of a step goes");
    AddFlags(*show_, {{"FILE FILE", &file_, "Timeline of one task, or a merged one", {}, kRequired}});
  }

  int Run(const CLI::App&) override {
    const absl::Status status = merge_->parsed() ? Merge() : Show();
    if (status.ok()) return 0;
    std::fprintf(stderr, "%s: %s\n", kTraceProgram, std::string(status.message()).c_str());
    const bool input = absl::IsInvalidArgument(status) || absl::IsNotFound(status);
    return static_cast<int>(input ? ExitCode::kUsage : ExitCode::kFailure);
  }

 private:
  absl::Status Merge() const {
    if (const absl::Status status = CheckWritable(out_); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("OUT: ", status.message()));
    }
    CAIRN_RETURN_IF_ERROR(MergeTraceFiles(out_, in_));
    std::printf("%s: %s\n", out_.c_str(), Counted(static_cast<int64_t>(in_.size()), "timeline").c_str());
    return absl::OkStatus();
  }

  absl::Status Show() const {
    CAIRN_ASSIGN_OR_RETURN(const std::string text, ReadFile(file_));
    CAIRN_ASSIGN_OR_RETURN(const std::vector<TaskTrace> traces, ParseTraces(text, file_));
    std::fputs(SummaryOf(traces).c_str(), stdout);
    return absl::OkStatus();
  }

  CLI::App* merge_ = nullptr;
  CLI::App* show_ = nullptr;
  std::string out_, file_;
  std::vector<std::string> in_;
};

}  // namespace

std::unique_ptr<Command> MakeTraceCommand() {
  return std::make_unique<TraceCommand>();
}

}  // namespace cairn::cli
