#include "ps/log/log_validator.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::ps {

absl::Span<const Gradient> ContributorsOf(const LogEntry& entry) {
  if (const auto* apply = std::get_if<Apply>(&entry.action)) return apply->contributors;
  if (const auto* measure = std::get_if<Measure>(&entry.action)) return measure->contributors;
  return {};
}

int64_t VersionOf(const LogEntry& entry) {
  if (const auto* apply = std::get_if<Apply>(&entry.action)) return apply->version;
  if (const auto* measure = std::get_if<Measure>(&entry.action)) return measure->version;
  return 0;
}

absl::Status LogValidator::CheckWorker(int worker) const {
  if (worker >= 0 && worker < most_workers_) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("worker ", worker, ", but the number of workers is ", most_workers_));
}

absl::Status LogValidator::CheckWorkers(const LogEntry& entry) const {
  if (const auto* refuse = std::get_if<Refuse>(&entry.action)) return CheckWorker(refuse->key.worker);
  if (const auto* release = std::get_if<Release>(&entry.action)) return CheckWorker(release->key.worker);
  for (const Gradient& gradient : ContributorsOf(entry))
    CAIRN_RETURN_IF_ERROR(CheckWorker(gradient.key.worker));
  return absl::OkStatus();
}

absl::Status LogValidator::Admit(const LogEntry& entry) {
  const auto refuse = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("entry ", entry.index, " of the log ", what...));
  };
  const auto* measure = std::get_if<Measure>(&entry.action);
  const bool apply = std::holds_alternative<Apply>(entry.action);
  if (const absl::Status known = CheckWorkers(entry); !known.ok())
    return refuse("is about ", known.message());
  if ((apply || measure != nullptr) && VersionOf(entry) - 1 != version_) {
    return refuse("belongs to the update to version ", VersionOf(entry), ", but follows version ", version_);
  }
  if (measure != nullptr && norms_.empty()) {
    return refuse("measures an update, but the job's optimizer takes no norms");
  }
  const bool measures_next =
      measure != nullptr && measures_ < norms_.size() && measure->norms == norms_[measures_];
  const bool all_measured = measure == nullptr && measures_ == (apply ? norms_.size() : 0);
  if (!measures_next && !all_measured) {
    return refuse("comes after ", measures_, " of the ", norms_.size(), " norms of an update");
  }
  measures_ = measures_next ? measures_ + 1 : 0;
  if (apply) ++version_;
  return absl::OkStatus();
}

void LogValidator::GoOnFrom(int64_t version) {
  version_ = version;
  measures_ = 0;
}

}  // namespace cairn::ps
