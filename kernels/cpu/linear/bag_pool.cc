// Pools bags of rows of embedding tables.
#include "kernels/bag_pool.h"

#include <algorithm>

#include "common/core/status.h"
#include "kernels/cpu/loops/bag_pool_loops.h"
#include "kernels/cpu/loops/instruction_sets.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/pool_bags.h"

namespace cairn::kernels::cpu {
namespace {

const BagPoolCode& BagPoolLoopsOfProcessor() {
  static const BagPoolCode code = CAIRN_BEST_LOOPS(BagPoolLoops);
  return code;
}

class CpuBagPool final : public BagPool {
 public:
  explicit CpuBagPool(const BagPoolParams& params) : params_(params), begins_(PooledBegins(params)) {}

  absl::Status Forward(const BagBatch& batch, float* pooled) override {
    ForEachLookup(batch, [&](size_t lookup, const HostBags& bags, const HostRows& rows) {
      PoolBags(bags, rows, pooled + begins_[lookup]);
    });
    return absl::OkStatus();
  }

  absl::Status Backward(const BagBatch& batch, const BagUses& /*uses*/, const float* dpooled,
                        float* dvalues) override {
    std::fill_n(dvalues, batch.tables[params_.widths.size()].floats, 0.0f);
    ForEachLookup(batch, [&](size_t lookup, const HostBags& bags, const HostRows& rows) {
      AddBagGradients(bags, rows, dpooled + begins_[lookup], dvalues + (rows.values - batch.values));
    });
    return absl::OkStatus();
  }

 private:
  template <typename Visit>
  void ForEachLookup(const BagBatch& batch, const Visit& visit) const {
    const int32_t* splits = batch.splits;
    for (size_t i = 0; i < params_.lookups.size(); ++i) {
      const BagPoolParams::Lookup& lookup = params_.lookups[i];
      const HostBags bags = {.combiner = lookup.combiner,
                             .bags = lookup.bags,
                             .splits = splits,
                             .unique = batch.unique,
                             .weights = batch.weights};
      visit(i, bags,
            HostRows{.width = params_.widths[static_cast<size_t>(lookup.table)],
                     .values = batch.values + batch.tables[lookup.table].floats});
      splits += lookup.bags;
    }
  }

  const BagPoolParams params_;
  const std::vector<int64_t> begins_;  // [lookup + 1]
};

}  // namespace

void PoolBags(const HostBags& bags, const HostRows& rows, float* pooled) {
  BagPoolLoopsOfProcessor().pool(bags, rows, pooled);
}

void AddBagGradients(const HostBags& bags, const HostRows& rows, const float* dpooled, float* dvalues) {
  BagPoolLoopsOfProcessor().add_gradients(bags, rows, dpooled, dvalues);
}

absl::StatusOr<std::unique_ptr<BagPool>> MakeBagPool(const BagPoolParams& params) {
  CAIRN_RETURN_IF_ERROR(Validate(params));
  return std::make_unique<CpuBagPool>(params);
}

}  // namespace cairn::kernels::cpu
