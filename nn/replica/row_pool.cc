#include "nn/replica/row_pool.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"
#include "kernels/ops.h"
#include "nn/batch.h"
#include "nn/replica/device_copy.h"

namespace cairn::nn {
namespace {

// Assigns places to arrays in one piece of memory.
class Arrays {
 public:
  // Returns where the next array begins, in floats.
  template <typename T>
  int64_t Add(int64_t elements) {
    static_assert(sizeof(T) % sizeof(float) == 0);
    return std::exchange(floats_, floats_ + PaddedFloats(elements * int64_t{sizeof(T) / sizeof(float)}));
  }
  int64_t floats() const { return floats_; }

 private:
  int64_t floats_ = 0;
};

template <typename T>
T* At(float* memory, int64_t place) {
  return reinterpret_cast<T*>(memory + place);
}

}  // namespace

absl::Status StagedMemory::Reserve(int64_t floats) {
  if (memory_ != nullptr && floats <= host_.size()) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(device_.Synchronize());  // copies may still use the memory
  constexpr int64_t kMinFloats = 1024;           // pinned memory must not share a page with other data
  const int64_t grown = std::max(floats + floats / 4, kMinFloats);
  memory_ = nullptr;  // until all of it has been made
  pinned_ = nullptr;
  CAIRN_ASSIGN_OR_RETURN(host_, CatchOutOfMemory("rows of a batch", [&]() -> absl::StatusOr<AlignedBuffer> {
                           return AlignedBuffer(grown);
                         }));
  CAIRN_ASSIGN_OR_RETURN(pinned_, device_.Pin(host_.data(), grown * int64_t{sizeof(float)}));
  CAIRN_ASSIGN_OR_RETURN(memory_, device_.Allocate(grown, "rows of a batch"));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RowPool>> RowPool::Create(kernels::Device& device, const Model& model,
                                                         const RowBags& bags, int64_t examples) {
  std::unique_ptr<RowPool> pool(new RowPool(device));
  CAIRN_RETURN_IF_ERROR(pool->Init(model, bags, examples));
  return pool;
}

absl::Status RowPool::Init(const Model& model, const RowBags& bags, int64_t examples) {
  for (const RowBags::Table& table : bags.tables) params_.widths.push_back(table.width);
  lookup_of_input_.assign(model.inputs().size(), -1);
  for (size_t i = 0; i < bags.lookups.size(); ++i) {
    const RowBags::Lookup& lookup = bags.lookups[i];
    const int64_t floats = InputFloats(model.inputs()[static_cast<size_t>(lookup.input)], examples);
    const int64_t count = floats / bags.tables[static_cast<size_t>(lookup.table)].width;
    params_.lookups.push_back({.table = lookup.table, .combiner = lookup.combiner, .bags = count});
    lookup_of_input_[static_cast<size_t>(lookup.input)] = static_cast<int>(i);
    bags_count_ += count;
  }
  begins_ = kernels::PooledBegins(params_);
  CAIRN_ASSIGN_OR_RETURN(pool_, device_.ops().MakeBagPool(params_));
  CAIRN_ASSIGN_OR_RETURN(pooled_, device_.Allocate(begins_.back(), "pooled rows"));
  CAIRN_ASSIGN_OR_RETURN(dpooled_, device_.Allocate(begins_.back(), "gradients of pooled rows"));
  return absl::OkStatus();
}

int64_t RowPool::positions() const {
  int64_t positions = 0;
  for (const RowBags::Lookup& lookup : bags_->lookups)
    positions += static_cast<int64_t>(lookup.unique.size());
  return positions;
}

bool RowPool::is_weighted() const {
  return std::any_of(bags_->lookups.begin(), bags_->lookups.end(),
                     [](const RowBags::Lookup& lookup) { return !lookup.weights.empty(); });
}

absl::Status RowPool::Forward(const RowBags& bags) {
  bags_ = &bags;
  const int64_t count = positions();
  if (count > std::numeric_limits<int32_t>::max()) {
    return absl::ResourceExhaustedError(absl::StrCat("a batch looks up ", count, " ids, more than 2^31 - 1"));
  }
  std::vector<int64_t> unique_rows;
  for (const RowBags::Table& table : bags.tables) {
    unique_rows.push_back(static_cast<int64_t>(table.rows.size()) / table.width);
  }
  tables_ = kernels::TableBegins(params_.widths, unique_rows);
  Arrays arrays;
  const int64_t values = arrays.Add<float>(tables_.back().floats);
  const int64_t tables = arrays.Add<kernels::TableBegin>(static_cast<int64_t>(tables_.size()));
  const int64_t splits = arrays.Add<int32_t>(bags_count_ + 1), unique = arrays.Add<int32_t>(count);
  const int64_t weights = is_weighted() ? arrays.Add<float>(count) : -1;
  CAIRN_RETURN_IF_ERROR(batch_memory_.Reserve(arrays.floats()));
  float *const host = batch_memory_.host(), *const device = batch_memory_.device();
  packed_ = {.values = host + values,
             .tables = At<kernels::TableBegin>(host, tables),
             .splits = At<int32_t>(host, splits),
             .unique = At<int32_t>(host, unique),
             .weights = weights < 0 ? nullptr : host + weights};
  batch_ = {.rows = tables_.back().row,
            .tables = At<kernels::TableBegin>(device, tables),
            .values = device + values,
            .splits = At<int32_t>(device, splits),
            .unique = At<int32_t>(device, unique),
            .weights = weights < 0 ? nullptr : device + weights};
  PackBatch();
  CAIRN_RETURN_IF_ERROR(device_.CopyToDevice(host, device, arrays.floats() * int64_t{sizeof(float)}));
  return pool_->Forward(batch_, pooled_->data());
}

void RowPool::PackBatch() {
  std::copy(tables_.begin(), tables_.end(), packed_.tables);
  for (size_t table = 0; table < bags_->tables.size(); ++table) {
    const absl::Span<const float> rows = bags_->tables[table].rows;
    std::copy(rows.begin(), rows.end(), packed_.values + tables_[table].floats);
  }
  int32_t *splits = packed_.splits, *unique = packed_.unique;
  float* weights = packed_.weights;
  int32_t position = 0;  // the first of the lookup
  *splits++ = 0;
  for (size_t i = 0; i < bags_->lookups.size(); ++i) {
    const RowBags::Lookup& lookup = bags_->lookups[i];
    for (int64_t bag = 1; bag <= params_.lookups[i].bags; ++bag) {
      const bool single = lookup.combiner == kernels::Combiner::kNone;
      *splits++ = position + (single ? static_cast<int32_t>(bag) : lookup.splits[static_cast<size_t>(bag)]);
    }
    unique = std::copy(lookup.unique.begin(), lookup.unique.end(), unique);
    position += static_cast<int32_t>(lookup.unique.size());
    if (weights == nullptr) continue;
    weights = lookup.weights.empty() ? std::fill_n(weights, lookup.unique.size(), 1.0f)
                                     : std::copy(lookup.weights.begin(), lookup.weights.end(), weights);
  }
}

absl::Status RowPool::Backward() {
  const int64_t count = positions(), rows = tables_.back().row;
  Arrays arrays;
  const int64_t splits = arrays.Add<int32_t>(rows + 1), bags = arrays.Add<int32_t>(count);
  const int64_t weights = packed_.weights != nullptr ? arrays.Add<float>(count) : -1;
  CAIRN_RETURN_IF_ERROR(uses_memory_.Reserve(arrays.floats()));
  CAIRN_RETURN_IF_ERROR(gradients_.Reserve(tables_.back().floats));
  float* const host = uses_memory_.host();
  PackUses({At<int32_t>(host, splits), static_cast<size_t>(rows) + 1}, At<int32_t>(host, bags),
           weights < 0 ? nullptr : host + weights);
  CAIRN_RETURN_IF_ERROR(
      device_.CopyToDevice(host, uses_memory_.device(), arrays.floats() * int64_t{sizeof(float)}));
  float* const memory = uses_memory_.device();
  const kernels::BagUses uses = {.splits = At<int32_t>(memory, splits),
                                 .bags = At<int32_t>(memory, bags),
                                 .weights = weights < 0 ? nullptr : memory + weights};
  CAIRN_RETURN_IF_ERROR(pool_->Backward(batch_, uses, dpooled_->data(), gradients_.device()));
  row_gradients_.clear();
  for (size_t table = 0; table < bags_->tables.size(); ++table) {
    row_gradients_.emplace_back(gradients_.host() + tables_[table].floats, bags_->tables[table].rows.size());
  }
  return device_.CopyToHost(gradients_.device(), gradients_.host(),
                            tables_.back().floats * int64_t{sizeof(float)});
}

// A counting sort, which keeps the order of the positions of a row.
void RowPool::PackUses(absl::Span<int32_t> splits, int32_t* bags, float* weights) {
  std::fill(splits.begin(), splits.end(), 0);
  const auto for_each_lookup = [&](const auto& visit) {
    int32_t bag = 0;
    for (const kernels::BagPoolParams::Lookup& lookup : params_.lookups) {
      const auto end = bag + static_cast<int32_t>(lookup.bags);
      visit(bag, end, tables_[static_cast<size_t>(lookup.table)].row);
      bag = end;
    }
  };
  for_each_lookup([&](int32_t begin, int32_t end, int64_t first_row) {
    for (int32_t p = packed_.splits[begin]; p < packed_.splits[end]; ++p) {
      ++splits[static_cast<size_t>(first_row + packed_.unique[p] + 1)];
    }
  });
  for (size_t row = 1; row < splits.size(); ++row) splits[row] += splits[row - 1];
  next_use_.assign(splits.begin(), splits.end());
  for_each_lookup([&](int32_t begin, int32_t end, int64_t first_row) {
    for (int32_t bag = begin; bag < end; ++bag) {
      for (int32_t p = packed_.splits[bag]; p < packed_.splits[bag + 1]; ++p) {
        const int32_t use = next_use_[static_cast<size_t>(first_row + packed_.unique[p])]++;
        bags[use] = bag;
        if (weights != nullptr) weights[use] = packed_.weights[p];
      }
    }
  });
}

}  // namespace cairn::nn
