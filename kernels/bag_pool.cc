#include "kernels/bag_pool.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn::kernels {
namespace {

constexpr std::pair<absl::string_view, Combiner> kCombiners[] = {
    {"sum", Combiner::kSum}, {"mean", Combiner::kMean}, {"sqrtn", Combiner::kSqrtn}, {"max", Combiner::kMax}};

constexpr int64_t RoundedUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

absl::StatusOr<Combiner> ParseCombiner(absl::string_view name) {
  for (const auto& [known, combiner] : kCombiners) {
    if (name == known) return combiner;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("combiner '", name, "' is not one of sum, mean, sqrtn, max"));
}

absl::Status Validate(const BagPoolParams& params) {
  for (const int64_t width : params.widths) {
    if (width < 1) return absl::InvalidArgumentError(absl::StrCat("cannot pool rows of ", width, " floats"));
  }
  constexpr int64_t kMaxFloats = std::numeric_limits<int32_t>::max();
  int64_t floats = 0;
  for (const BagPoolParams::Lookup& lookup : params.lookups) {
    const auto tables = static_cast<int64_t>(params.widths.size());
    if (lookup.table < 0 || lookup.table >= tables || lookup.bags < 1) {
      return absl::InvalidArgumentError(absl::StrCat("cannot pool ", lookup.bags, " bags of table ",
                                                     lookup.table, " among ", tables, " tables"));
    }
    const int64_t width = params.widths[static_cast<size_t>(lookup.table)];
    if (lookup.bags > kMaxFloats / width || (floats += lookup.bags * width) > kMaxFloats / 2) {
      return absl::UnimplementedError(
          absl::StrCat("cannot pool more than ", kMaxFloats / 2, " floats at once"));
    }
  }
  return absl::OkStatus();
}

std::vector<int64_t> PooledBegins(const BagPoolParams& params) {
  constexpr int64_t kAlignment = 64;
  std::vector<int64_t> begins = {0};
  for (const BagPoolParams::Lookup& lookup : params.lookups) {
    const int64_t floats = lookup.bags * params.widths[static_cast<size_t>(lookup.table)];
    begins.push_back(begins.back() + RoundedUp(floats, kAlignment));
  }
  return begins;
}

std::vector<TableBegin> TableBegins(const std::vector<int64_t>& widths,
                                    const std::vector<int64_t>& unique_rows) {
  constexpr int64_t kAlignment = 4;
  std::vector<TableBegin> begins(1);
  for (size_t table = 0; table < widths.size(); ++table) {
    const int64_t rows = unique_rows[table];
    begins.push_back({.row = begins.back().row + rows,
                      .floats = begins.back().floats + RoundedUp(rows * widths[table], kAlignment)});
  }
  return begins;
}

}  // namespace cairn::kernels
