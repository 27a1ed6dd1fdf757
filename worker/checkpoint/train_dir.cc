#include "worker/checkpoint/train_dir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "worker/checkpoint/file_io.h"

namespace cairn::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kCheckpoints[] = "checkpoints";
constexpr char kPointer[] = "checkpoint";
constexpr char kTemporary[] = ".tmp-";

absl::Status FailureOf(absl::string_view what, const std::string& path, const std::error_code& error) {
  return absl::Status(absl::ErrnoToStatusCode(error.value()),
                      absl::StrCat("cannot ", what, " ", path, ": ", error.message()));
}

std::string TemporaryOf(const std::string& path) {
  return absl::StrCat(path, kTemporary, getpid());
}

// The names in `directory`; empty if it does not exist.
absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(directory, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) return FailureOf("read", directory, error);
  return names;
}

absl::Status RemoveAll(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return error ? FailureOf("remove", path, error) : absl::OkStatus();
}

// Creates a directory and its missing parents, and syncs each of them to the disk.
absl::Status MakeDirectory(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return absl::OkStatus();
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (parent != path) CAIRN_RETURN_IF_ERROR(MakeDirectory(parent));
  if (mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) return ErrnoStatus("cannot create", path.string());
  return SyncDirectory(parent.string());
}

absl::Status RemoveLeftovers(const std::string& directory, absl::string_view prefix) {
  CAIRN_ASSIGN_OR_RETURN(const auto names, NamesIn(directory));
  for (const std::string& name : names) {
    const auto suffix = name.rfind(kTemporary);
    if (suffix == std::string::npos || !absl::StartsWith(name, prefix)) continue;
    if (prefix == kPointer ? suffix != prefix.size() : StepOf(name.substr(0, suffix)) < 0) continue;
    CAIRN_RETURN_IF_ERROR(RemoveAll(absl::StrCat(directory, "/", name)));
  }
  return absl::OkStatus();
}

// Renames the checkpoint first, so that a partly removed checkpoint is never taken for a damaged one.
absl::Status RemoveCheckpoint(const std::string& path) {
  const std::string temporary = TemporaryOf(path);
  if (std::rename(path.c_str(), temporary.c_str()) != 0) return ErrnoStatus("cannot remove", path);
  return RemoveAll(temporary);
}

}  // namespace

std::string CheckpointsDirectory(const std::string& train_dir) {
  return absl::StrCat(train_dir, "/", kCheckpoints);
}

std::string StepName(int64_t global_step) {
  return absl::StrFormat("step-%08d", global_step);
}

int64_t StepOf(absl::string_view name) {
  int64_t step = 0;
  absl::string_view digits = name;
  if (!absl::ConsumePrefix(&digits, "step-") || !absl::SimpleAtoi(digits, &step) || step < 0 ||
      name != StepName(step)) {
    return -1;
  }
  return step;
}

std::string TrainDirOf(const std::string& path) {
  const fs::path directory = fs::absolute(fs::path(path) / "").lexically_normal().parent_path();
  const bool checkpoint =
      StepOf(directory.filename().string()) >= 0 && directory.parent_path().filename() == kCheckpoints;
  return checkpoint ? directory.parent_path().parent_path().string() : path;
}

absl::StatusOr<std::vector<std::string>> ListCheckpoints(const std::string& train_dir) {
  const std::string directory = CheckpointsDirectory(train_dir);
  CAIRN_ASSIGN_OR_RETURN(const auto names, NamesIn(directory));
  std::vector<int64_t> steps;
  for (const std::string& name : names) {
    if (StepOf(name) >= 0) steps.push_back(StepOf(name));
  }
  std::sort(steps.begin(), steps.end());
  std::vector<std::string> paths;
  for (int64_t step : steps) paths.push_back(absl::StrCat(directory, "/", StepName(step)));
  return paths;
}

absl::StatusOr<std::string> BeginCheckpoint(const std::string& train_dir, int64_t global_step) {
  const std::string directory = CheckpointsDirectory(train_dir);
  CAIRN_RETURN_IF_ERROR(MakeDirectory(directory));
  CAIRN_RETURN_IF_ERROR(RemoveLeftovers(directory, "step-"));
  CAIRN_RETURN_IF_ERROR(RemoveLeftovers(train_dir, kPointer));
  std::string temporary = TemporaryOf(absl::StrCat(directory, "/", StepName(global_step)));
  if (mkdir(temporary.c_str(), 0777) != 0) return ErrnoStatus("cannot create", temporary);
  return temporary;
}

absl::StatusOr<std::string> PublishCheckpoint(const std::string& train_dir, int64_t global_step,
                                              const std::string& temporary) {
  const std::string directory = CheckpointsDirectory(train_dir);
  std::string path = absl::StrCat(directory, "/", StepName(global_step));
  CAIRN_RETURN_IF_ERROR(SyncDirectory(temporary));
  if (!FileExists(path)) {
    if (std::rename(temporary.c_str(), path.c_str()) != 0) return ErrnoStatus("cannot rename to", path);
  } else if (renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) {
    CAIRN_RETURN_IF_ERROR(RemoveAll(temporary));
  } else {  // the file system cannot exchange files: for a moment there is no checkpoint of this step
    const std::string old = absl::StrCat(temporary, "-old");
    if (std::rename(path.c_str(), old.c_str()) != 0) return ErrnoStatus("cannot replace", path);
    if (std::rename(temporary.c_str(), path.c_str()) != 0) return ErrnoStatus("cannot rename to", path);
    CAIRN_RETURN_IF_ERROR(RemoveAll(old));
  }
  CAIRN_RETURN_IF_ERROR(SyncDirectory(directory));
  CAIRN_RETURN_IF_ERROR(WriteFileAtomically(
      absl::StrCat(train_dir, "/", kPointer),
      absl::StrCat("model_checkpoint_path: \"", kCheckpoints, "/", StepName(global_step), "\"\n")));
  CAIRN_RETURN_IF_ERROR(SyncDirectory(train_dir));
  return path;
}

absl::Status PruneCheckpoints(const std::string& train_dir, int64_t max_to_keep, int64_t newest_step) {
  if (max_to_keep <= 0) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const auto paths, ListCheckpoints(train_dir));
  auto count = static_cast<int64_t>(paths.size());
  for (const std::string& path : paths) {
    if (count <= max_to_keep) break;
    if (absl::EndsWith(path, absl::StrCat("/", StepName(newest_step)))) continue;
    CAIRN_RETURN_IF_ERROR(RemoveCheckpoint(path));
    --count;
  }
  return absl::OkStatus();
}

}  // namespace cairn::worker
