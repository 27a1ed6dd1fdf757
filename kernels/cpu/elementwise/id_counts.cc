// Vectors that count the ids of a row.
#include "kernels/id_counts.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/cpu/ops.h"
#include "kernels/embedding_errors.h"

namespace cairn::kernels::cpu {
namespace {

// `Id`: the C++ type of the ids.
template <typename Id>
class CpuIdCounts final : public NaryOp {
 public:
  explicit CpuIdCounts(const IdCountsParams& params)
      : params_(params), output_({.shape = {params.rows, params.depth}}) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(absl::Span<const float* const> xs, float* y) override {
    const auto* const ids = reinterpret_cast<const Id*>(xs[0]);
    const float* const weights = params_.weighted ? xs[1] : nullptr;
    std::fill_n(y, params_.rows * params_.depth, 0.0f);
    for (int64_t row = 0; row < params_.rows; ++row) {
      const IdSpan places = IdsOfRow(params_, xs[0], row);
      float* const to = y + row * params_.depth;
      for (int64_t place = places.begin; place < places.end; ++place) {
        const Id id = ids[place];
        if (params_.skips_negative && id < Id{0}) continue;
        const int64_t column = ColumnOf(id, params_.depth);
        if (column < 0) return NotInTable(id, params_.depth);
        const float weight = weights == nullptr ? 1 : weights[place];
        to[column] = params_.once ? weight : to[column] + weight;
      }
    }
    return absl::OkStatus();
  }
  absl::Status Backward(absl::Span<const float* const>, const float*, absl::Span<float* const>) override {
    return absl::OkStatus();
  }

 private:
  const IdCountsParams params_;
  const TensorDesc output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NaryOp>> MakeIdCounts(const IdCountsParams& params) {
  if (const absl::Status status = Validate(params); !status.ok()) return status;
  if (!IsInteger(params.id_type)) return std::make_unique<CpuIdCounts<float>>(params);
  return WithIntegerType(params.id_type, [&](auto zero) -> std::unique_ptr<NaryOp> {
    return std::make_unique<CpuIdCounts<decltype(zero)>>(params);
  });
}

}  // namespace cairn::kernels::cpu
