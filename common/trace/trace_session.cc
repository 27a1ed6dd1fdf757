#include "common/trace/trace_session.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/core/files.h"
#include "common/core/log.h"
#include "common/flags/flag_table.h"
#include "common/trace/trace_file.h"

namespace cairn {
namespace {

constexpr auto kLook = std::chrono::milliseconds(100);
// After the last recorded step, the thread waits this many times kLook before it writes the file, because
// work begun in that step may still run: answers in flight, a checkpoint being written.
constexpr int kLooksBehind = 10;
// The pause between two writes while steps are recorded: at least kMinPause, and at least kPausePerWork times
// the duration of the last write.
constexpr auto kMinPause = std::chrono::seconds(2);
constexpr int kPausePerWork = 100;

// Bounds the number of files if a task dies again and again.
constexpr int kMaxLives = 1000;

std::string LifeFile(const std::string& file, int life) {
  return absl::StrCat(file, ".", life);
}

// Whether `file` is the timeline of a life of `task` that did not end normally.
bool IsOfLife(const std::string& file, const std::string& task) {
  const auto text = ReadFile(file);
  return text.ok() && IsUnfinished(*text, task);
}

// Renames the file that an unfinished earlier life of `task` left, so that this life does not overwrite it.
// If the last life ended normally, this is a new run, and the files of earlier lives are removed.
void KeepEarlierLife(const std::string& file, const std::string& task) {
  if (!FileExists(file)) return;
  if (!IsOfLife(file, task)) {
    for (const std::string& life : EarlierLives(file))
      if (IsOfLife(life, task)) std::remove(life.c_str());
    return;
  }
  int life = 1;
  while (life < kMaxLives && FileExists(LifeFile(file, life))) ++life;
  if (std::rename(file.c_str(), LifeFile(file, life).c_str()) == 0)
    LogInfo("the timeline of the previous process is now in ", LifeFile(file, life));
}

}  // namespace

absl::StatusOr<TraceSteps> ParseTraceSteps(absl::string_view text) {
  const std::vector<absl::string_view> ends = absl::StrSplit(text, ':');
  TraceSteps steps;
  if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &steps.first) ||
      !absl::SimpleAtoi(ends[1], &steps.last)) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not a range FIRST:LAST of steps"));
  }
  if (steps.first < 1) return absl::InvalidArgumentError(absl::StrCat("'", text, "': steps count from 1"));
  if (steps.last < steps.first) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "': step ", steps.last, " comes before step ", steps.first));
  }
  return steps;
}

void AddTraceFlags(CLI::App& app, TraceFlags& flags) {
  AddFlags(app, "Profiling",
           {{"--trace_file FILE", &flags.file,
             "Write a timeline of this task in Chrome's trace format, for Perfetto or chrome://tracing"},
            {"--trace_steps FIRST:LAST", Parsed(&flags.steps, &ParseTraceSteps),
             "Record only the steps that make versions FIRST to LAST of the variables [all]"}});
}

std::vector<std::string> EarlierLives(const std::string& file) {
  std::vector<std::string> files;
  for (int life = 1; life <= kMaxLives && FileExists(LifeFile(file, life)); ++life)
    files.push_back(LifeFile(file, life));
  return files;
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
  KeepEarlierLife(flags_.file, task);
  recorder_ = std::make_unique<TraceRecorder>(task, flags_.steps.value_or(TraceSteps()));
  thread_ = Thread("trace", [this] { Watch(); });
}

TraceSession::~TraceSession() {
  stopping_ = true;
  thread_.Join();
  if (recorder_ != nullptr) Write(/*ended=*/true);
}

void TraceSession::Watch() {
  using Steady = std::chrono::steady_clock;
  Steady::time_point next = Steady::now() + kMinPause;
  for (int looks_behind = 0; !stopping_;) {
    std::this_thread::sleep_for(kLook);
    if (recorder_->over() && ++looks_behind == kLooksBehind) return Write(/*ended=*/false);
    const Steady::time_point begin = Steady::now();
    if (begin < next || recorder_->recorded() == written_) continue;
    Write(/*ended=*/false);
    const Steady::time_point end = Steady::now();
    next = end + std::max<Steady::duration>(kMinPause, (end - begin) * kPausePerWork);
  }
}

void TraceSession::Write(bool ended) {
  written_ = recorder_->recorded();
  TaskTrace trace = LayOut(*recorder_);
  trace.ended = ended;
  if (const absl::Status status = WriteFileAtomically(flags_.file, ToJson(trace)); !status.ok()) {
    LogWarning("--trace_file: ", status.message());
    return;
  }
  if (!ended && !recorder_->over()) return;
  LogInfo("timeline with ", trace.slices.size(), " slices written to ", flags_.file);
  if (trace.lost > 0) {
    LogWarning("the timeline lacks the ", trace.lost,
               " oldest events because the buffers were full: record fewer steps with --trace_steps");
  }
}

}  // namespace cairn
