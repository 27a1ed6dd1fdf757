#include "worker/options/output_paths.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "common/flags/path_checks.h"

namespace cairn::worker {
namespace {

absl::Status Check(const char* flag, const std::string& path, absl::Status (*check)(const std::string&)) {
  if (path.empty()) return absl::OkStatus();
  const absl::Status status = check(path);
  return status.ok() ? status : absl::InvalidArgumentError(absl::StrCat(flag, ": ", status.message()));
}

}  // namespace

absl::Status CheckOutputPaths(const TrainOptions& options) {
  CAIRN_RETURN_IF_ERROR(Check("--summary", options.summary, &CheckWritable));
  CAIRN_RETURN_IF_ERROR(Check("--export_dir", options.export_dir, &CheckDirectoryWritable));
  return Check("--train_dir", options.train_dir, &CheckDirectoryWritable);
}

}  // namespace cairn::worker
