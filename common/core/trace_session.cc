#include "common/core/trace_session.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/core/files.h"
#include "common/core/flags.h"
#include "common/core/log.h"
#include "common/core/trace_file.h"

namespace cairn {
namespace {

constexpr auto kLook = std::chrono::milliseconds(100);
// What began in the last step and goes on behind it: answers on their way, a checkpoint being written.
constexpr int kLooksBehind = 10;

}  // namespace

absl::StatusOr<TraceSteps> ParseTraceSteps(absl::string_view text) {
  const std::vector<absl::string_view> ends = absl::StrSplit(text, ':');
  TraceSteps steps;
  if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &steps.first) || !absl::SimpleAtoi(ends[1], &steps.last)) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no FIRST:LAST of steps"));
  }
  if (steps.first < 1) return absl::InvalidArgumentError(absl::StrCat("'", text, "': steps count from 1"));
  if (steps.last < steps.first) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "': step ", steps.last, " comes before step ", steps.first));
  }
  return steps;
}

void AddTraceFlags(CLI::App& app, TraceFlags& flags) {
  const std::string group = "Timeline";
  app.add_option(FlagNames("trace_file"), flags.file,
                 "Write what was done when, in Chrome's trace format, for Perfetto or chrome://tracing")
      ->type_name("FILE")
      ->group(group);
  app.add_option_function<std::string>(
         FlagNames("trace_steps"), [&flags](const std::string& text) { flags.steps = *ParseTraceSteps(text); },
         "Only of these steps, both counted, from 1 [all]")
      ->check(CLI::Validator(
          [](const std::string& text) { return std::string(ParseTraceSteps(text).status().message()); }, ""))
      ->type_name("FIRST:LAST")
      ->group(group);
}

absl::Status CheckTraceFlags(const TraceFlags& flags) {
  if (flags.file.empty()) {
    return flags.steps.has_value() ? absl::InvalidArgumentError("--trace_steps needs --trace_file")
                                   : absl::OkStatus();
  }
  const absl::Status status = CheckWritable(flags.file);
  return status.ok() ? status : absl::InvalidArgumentError(absl::StrCat("--trace_file: ", status.message()));
}

TraceSession::TraceSession(TraceFlags flags, const std::string& task) : flags_(std::move(flags)) {
  if (flags_.file.empty()) return;
  recorder_ = std::make_unique<TraceRecorder>(task, flags_.steps.value_or(TraceSteps()));
  if (flags_.steps.has_value()) thread_ = Thread("trace", [this] { Watch(); });
}

TraceSession::~TraceSession() {
  stopping_ = true;
  thread_.Join();
  if (recorder_ != nullptr && recorder_->recorded() != written_) Write();
}

void TraceSession::Watch() {
  for (int looks_behind = 0; !stopping_ && looks_behind < kLooksBehind;) {
    std::this_thread::sleep_for(kLook);
    if (recorder_->over()) ++looks_behind;
  }
  if (!stopping_) Write();
}

void TraceSession::Write() {
  written_ = recorder_->recorded();
  const TaskTrace trace = LayOut(*recorder_);
  if (const absl::Status status = WriteFileAtomically(flags_.file, ToJson(trace)); !status.ok()) {
    LogWarning("--trace_file: ", status.message());
    return;
  }
  LogInfo("timeline of ", trace.slices.size(), " slices in ", flags_.file);
  if (trace.lost > 0) {
    LogWarning("the timeline lacks the ", trace.lost, " oldest events, for which there was no room: choose fewer steps by "
               "--trace_steps");
  }
}

}  // namespace cairn
