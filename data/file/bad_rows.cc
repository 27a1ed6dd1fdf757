#include "data/file/bad_rows.h"

#include "absl/strings/str_cat.h"

namespace cairn::data {

absl::Status BadRows::Skip(const absl::Status& fault) {
  if (absl::IsDataLoss(fault)) return absl::InvalidArgumentError(fault.message());
  ++count_;
  if (count_ == 1) first_ = fault;
  if (count_ <= limit_) return absl::OkStatus();
  if (limit_ == 0) return absl::InvalidArgumentError(fault.message());
  return absl::InvalidArgumentError(absl::StrCat(fault.message(), "; this is bad row number ", count_,
                                                 ", and ", limit_, " may be skipped"));
}

std::string BadRows::Summary(absl::string_view set) const {
  if (count_ == 0) return "";
  return absl::StrCat(set, ": ", count_, count_ == 1 ? " bad row is" : " bad rows are",
                      " skipped, the first: ", first_.message());
}

}  // namespace cairn::data
