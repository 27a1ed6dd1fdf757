#include "ps/table/embedding/row_mean.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/wire/row_frame.h"
#include "optim/store/buffer_pool.h"
#include "ps/table/embedding/row_gradient.h"

namespace cairn::ps {
namespace {

const RowGradient* RowsIn(const TableUpdate::Contribution& contribution) {
  if (contribution.gradient->examples == 0) return nullptr;
  return static_cast<const RowGradient*>(contribution.data.get());
}

}  // namespace

absl::StatusOr<RowMean> RowsOf(const TableMean& mean, int64_t row_elements) {
  if (mean == nullptr) return RowMean();
  const int64_t of_row = static_cast<int64_t>(sizeof(int64_t) / sizeof(float)) + row_elements;
  if (mean->size() % of_row != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a mean of ", mean->size(), " floats does not consist of rows of ", row_elements, " elements"));
  }
  const auto rows = static_cast<size_t>(mean->size() / of_row);
  const absl::Span<const int64_t> ids(reinterpret_cast<const int64_t*>(mean->data()), rows);
  return RowMean{.ids = ids, .elements = mean->span().subspan(net::AsFloats(ids).size())};
}

absl::StatusOr<TableMean> RowMeans::Compute(absl::Span<const TableUpdate::Contribution> contributions) {
  int64_t examples = 0, divisor = 0;
  ids_.clear();
  for (const TableUpdate::Contribution& contribution : contributions) {
    examples += contribution.gradient->examples;
    divisor = std::gcd(divisor, contribution.gradient->examples);
    const RowGradient* const gradient = RowsIn(contribution);
    if (gradient == nullptr) continue;
    for (const net::ReceivedRows& frame : gradient->frames()) {
      ids_.insert(ids_.end(), frame.ids().begin(), frame.ids().end());
    }
  }
  if (examples == 0) return TableMean();
  if (ids_.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return absl::InvalidArgumentError(absl::StrCat("an update of ", ids_.size(), " rows of one table"));
  }
  unique_.Compute(ids_);
  const absl::Span<const float> ids = net::AsFloats(unique_.keys());
  const size_t width = static_cast<size_t>(row_elements_), elements = unique_.keys().size() * width;
  const std::shared_ptr<AlignedBuffer> mean =
      optim::BufferPool(static_cast<int64_t>(ids.size() + elements), /*max_idle=*/0, budget_).Acquire();
  float* const sums = std::copy(ids.begin(), ids.end(), mean->data());
  size_t begun = 0;  // the rows whose sums have a term
  const int32_t* position = unique_.positions().data();
  for (const TableUpdate::Contribution& contribution : contributions) {
    const RowGradient* const gradient = RowsIn(contribution);
    if (gradient == nullptr) continue;
    const auto weight = static_cast<float>(contribution.gradient->examples / divisor);
    for (const net::ReceivedRows& frame : gradient->frames()) {
      const float* element = frame.elements().data();
      for (size_t i = 0; i < frame.ids().size(); ++i) {
        const auto row = static_cast<size_t>(*position++);
        float* const sum = sums + row * width;
        if (row == begun) {
          ++begun;
          for (size_t k = 0; k < width; ++k) sum[k] = 0.0f + weight * element[k];  // 0 + -0 is 0
        } else {
          for (size_t k = 0; k < width; ++k) sum[k] += weight * element[k];
        }
        element += width;
      }
    }
  }
  const auto total = static_cast<float>(examples / divisor);
  if (total != 1) std::for_each(sums, sums + elements, [total](float& sum) { sum /= total; });
  return TableMean(mean);
}

}  // namespace cairn::ps
