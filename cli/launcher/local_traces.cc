#include "cli/launcher/local_traces.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "common/trace/trace_merge.h"

namespace cairn::cli {

LocalTraces::LocalTraces(TraceFlags flags, std::vector<Supervisor::Task>& tasks) : flags_(std::move(flags)) {
  if (flags_.file.empty()) return;
  for (Supervisor::Task& task : tasks) {
    const std::string file =
        absl::StrCat(flags_.file, ".", absl::StrReplaceAll(task.child.name, {{"/", "-"}}), ".part");
    for (const std::string& life : EarlierLives(file)) unlink(life.c_str());
    unlink(file.c_str());  // left by an earlier run that was killed
    task.child.command.push_back(absl::StrCat("--trace_file=", file));
    if (flags_.steps.has_value()) {
      task.child.command.push_back(
          absl::StrCat("--trace_steps=", flags_.steps->first, ":", flags_.steps->last));
    }
    parts_.push_back({.task = task.child.name, .file = file});
  }
}

absl::Status LocalTraces::Merge(std::vector<std::string>& missing) const {
  std::vector<std::string> files;
  for (const Part& part : parts_) {
    if (FileExists(part.file) || !EarlierLives(part.file).empty()) {
      files.push_back(part.file);
    } else {
      missing.push_back(part.task);
    }
  }
  if (files.empty()) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(MergeTraceFiles(flags_.file, files));
  for (const std::string& file : files) {
    for (const std::string& life : EarlierLives(file)) unlink(life.c_str());
    unlink(file.c_str());
  }
  return absl::OkStatus();
}

}  // namespace cairn::cli
