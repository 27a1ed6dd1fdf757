#include "worker/embedding/batch_lookup.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/bag_pool.h"
#include "kernels/cpu/pool_bags.h"

namespace cairn::worker {
namespace {

// Ensures that `buffer` has room for `floats`. Its contents are lost if it grows.
void Reserve(AlignedBuffer& buffer, int64_t floats) {
  if (buffer.size() < floats) buffer = AlignedBuffer(floats + floats / 4);
}

absl::Span<float> First(AlignedBuffer& buffer, int64_t floats) {
  return buffer.span().subspan(0, static_cast<size_t>(floats));
}

// [table] The inputs of the model with the ids of the table, in the order of its lookups.
std::vector<std::vector<int>> InputsOfTables(const TablePlan& plan) {
  std::vector<std::vector<int>> inputs(plan.tables.size());
  for (size_t i = 0; i < plan.model.lookups.size(); ++i) {
    inputs[static_cast<size_t>(plan.table_of_lookup[i])].push_back(plan.model.lookups[i].ids);
  }
  return inputs;
}

// Rows are short: to call memmove for each takes longer than the copy.
float* CopyRow(const float* from, size_t width, float* to) {
  constexpr size_t kBlock = 8;
  size_t k = 0;
  for (; k + kBlock <= width; k += kBlock) std::memcpy(to + k, from + k, kBlock * sizeof(float));
  for (; k < width; ++k) to[k] = from[k];
  return to + width;
}

}  // namespace

BatchLookup::BatchLookup(const TablePlan& plan)
    : plan_(&plan),
      tables_(plan.tables.size()),
      lookups_(plan.model.lookups.size()),
      rows_(plan.tables.size()),
      gradients_(plan.tables.size()),
      bags_({.tables = std::vector<nn::RowBags::Table>(plan.tables.size()),
             .lookups = std::vector<nn::RowBags::Lookup>(plan.model.lookups.size())}) {
  for (size_t i = 0; i < lookups_.size(); ++i) {
    const std::string& combiner = plan.model.lookups[i].combiner;
    if (combiner.empty()) continue;
    lookups_[i].combiner = *kernels::ParseCombiner(combiner);
    tables_[static_cast<size_t>(plan.table_of_lookup[i])].pooled = true;
  }
  const std::vector<std::vector<int>> inputs = InputsOfTables(plan);
  for (size_t table = 0; table < tables_.size(); ++table) {
    tables_[table].same_as =
        static_cast<size_t>(std::find(inputs.begin(), inputs.end(), inputs[table]) - inputs.begin());
  }
}

absl::Status BatchLookup::Begin(const nn::BatchView& batch) {
  batch_ = batch;
  for (TableRows& table : tables_) table.ids.clear();
  for (size_t lookup = 0; lookup < lookups_.size(); ++lookup) CAIRN_RETURN_IF_ERROR(AddIds(lookup));
  for (size_t table = 0; table < tables_.size(); ++table) {
    TableRows& rows = tables_[table];
    if (rows.same_as == table) rows.unique.Compute(rows.ids);
    const absl::Span<const int64_t> keys = UniqueOf(table).keys();
    const int64_t floats = static_cast<int64_t>(keys.size()) * plan_->tables[table].row_elements();
    Reserve(rows.values, floats);
    rows_[table] = {.table = static_cast<int>(table) + 1, .keys = keys, .rows = First(rows.values, floats)};
  }
  return absl::OkStatus();
}

int64_t BatchLookup::num_ids() const {
  size_t ids = 0;
  for (const TableRows& table : tables_) ids += table.ids.size();
  return static_cast<int64_t>(ids);
}

bool BatchLookup::IsOf(const nn::BatchView& batch) const {
  return batch.examples == batch_.examples && batch.seed == batch_.seed &&
         std::equal(batch.inputs.begin(), batch.inputs.end(), batch_.inputs.begin(), batch_.inputs.end(),
                    [](const TensorView& a, const TensorView& b) { return a.data == b.data; });
}

absl::Status BatchLookup::AddIds(size_t i) {
  const nn::TableLookup& lookup = plan_->model.lookups[i];
  const TensorView& ids = batch_.inputs[static_cast<size_t>(lookup.ids)];
  // The rows of a ragged view keep all elements of the tensor that it is a part of.
  const int64_t first = ids.ragged() ? ids.row_splits.front() : 0;
  const int64_t count =
      ids.ragged() ? ids.row_splits.back() - first : batch_.examples * lookup.ids_per_example;
  std::vector<int64_t>& all = tables_[static_cast<size_t>(plan_->table_of_lookup[i])].ids;
  constexpr int64_t kMaxIds = std::numeric_limits<int32_t>::max();
  if (count > kMaxIds - static_cast<int64_t>(all.size())) {
    return absl::ResourceExhaustedError(absl::StrCat("a batch looks up more than ", kMaxIds,
                                                     " ids in the table of layer '", lookup.layer, "'"));
  }
  lookups_[i].first = all.size();
  lookups_[i].count = static_cast<size_t>(count);
  CAIRN_RETURN_IF_ERROR(CheckWeights(lookup, ids));
  lookups_[i].splits.clear();
  for (const int64_t split : ids.row_splits)
    lookups_[i].splits.push_back(static_cast<int32_t>(split - first));
  if (lookups_[i].combiner != kernels::Combiner::kNone && !ids.ragged()) {
    for (int64_t example = 0; example <= batch_.examples; ++example)
      lookups_[i].splits.push_back(static_cast<int32_t>(example * lookup.ids_per_example));
  }
  absl::Status status;
  WithIntegerType(ids.dtype, [&]<typename Id>(Id) {
    const absl::Span<const Id> values(static_cast<const Id*>(ids.data) + first, static_cast<size_t>(count));
    for (const Id id : values) {
      const auto key = static_cast<int64_t>(id);
      if (lookup.rows == 0 || (key >= 0 && key < lookup.rows)) {
        all.push_back(key);
      } else if (status.ok()) {
        status = absl::InvalidArgumentError(absl::StrCat(
            "input '", lookup.ids_name, "' has the id ", key, ", but the table of layer '", lookup.layer,
            "' has the rows 0 to ", lookup.rows - 1, "; --dynamic_tables ", lookup.layer, " accepts any id"));
      }
    }
  });
  return status;
}

absl::Status BatchLookup::CheckWeights(const nn::TableLookup& lookup, const TensorView& ids) const {
  if (lookup.weights < 0 || !ids.ragged()) return absl::OkStatus();
  const TensorView& weights = batch_.inputs[static_cast<size_t>(lookup.weights)];
  for (size_t i = 1; i < ids.row_splits.size(); ++i) {
    const int64_t of_ids = ids.row_splits[i] - ids.row_splits[i - 1];
    const int64_t of_weights = weights.row_splits[i] - weights.row_splits[i - 1];
    if (of_ids == of_weights) continue;
    return absl::InvalidArgumentError(absl::StrCat("layer '", lookup.layer, "': example ", i - 1,
                                                   " of the batch has ", of_ids, " ids in input '",
                                                   lookup.ids_name, "', but ", of_weights, " weights"));
  }
  return absl::OkStatus();
}

absl::Span<const int32_t> BatchLookup::PositionsOf(size_t lookup) const {
  return UniqueOf(static_cast<size_t>(plan_->table_of_lookup[lookup]))
      .positions()
      .subspan(lookups_[lookup].first, lookups_[lookup].count);
}

absl::Span<const float> BatchLookup::WeightsOf(size_t i) const {
  const int weights = plan_->model.lookups[i].weights;
  if (weights < 0) return {};
  const TensorView& view = batch_.inputs[static_cast<size_t>(weights)];
  const int64_t first = view.ragged() ? view.row_splits.front() : 0;
  return {static_cast<const float*>(view.data) + first, lookups_[i].count};
}

kernels::cpu::HostBags BatchLookup::BagsOf(size_t i) const {
  const absl::Span<const float> weights = WeightsOf(i);
  return {.combiner = lookups_[i].combiner,
          .bags = batch_.examples,
          .splits = lookups_[i].splits.data(),
          .unique = PositionsOf(i).data(),
          .weights = weights.empty() ? nullptr : weights.data()};
}

kernels::cpu::HostRows BatchLookup::RowsOf(size_t i) const {
  return {.width = plan_->model.lookups[i].width,
          .values = rows_[static_cast<size_t>(plan_->table_of_lookup[i])].rows.data()};
}

nn::BatchView BatchLookup::View(bool with_gradients) {
  nn::BatchView view = batch_;
  view.inputs.clear();
  view.input_gradients.clear();
  for (const int kept : plan_->model.kept_inputs)
    view.inputs.push_back(batch_.inputs[static_cast<size_t>(kept)]);
  if (with_gradients) view.input_gradients.resize(plan_->model.model.inputs().size());
  for (size_t i = 0; i < lookups_.size(); ++i) {
    const auto input = static_cast<size_t>(plan_->model.lookups[i].input);
    const Shape& shape = plan_->model.model.inputs()[input].shape;
    const int64_t floats = batch_.examples * shape.num_elements();
    Reserve(lookups_[i].input, floats);
    const absl::Span<float> elements = First(lookups_[i].input, floats);
    Pool(i, elements);
    Shape of_batch({batch_.examples});
    for (const int64_t dim : shape.dims()) of_batch.Append(dim);
    view.inputs.push_back(TensorView::OfFloats(of_batch, elements));
    if (!with_gradients) continue;
    Reserve(lookups_[i].gradient, floats);
    view.input_gradients[input] = First(lookups_[i].gradient, floats);
  }
  return view;
}

absl::Span<const client::RowGradients> BatchLookup::Gradients() {
  for (size_t table = 0; table < tables_.size(); ++table) {
    TableRows& rows = tables_[table];
    const auto floats = static_cast<int64_t>(rows_[table].rows.size());
    Reserve(rows.gradients, floats);
    const absl::Span<float> gradients = First(rows.gradients, floats);
    rows.begun = 0;
    if (rows.pooled) std::fill(gradients.begin(), gradients.end(), 0.0f);
    gradients_[table] = {.table = rows_[table].table, .keys = rows_[table].keys, .gradients = gradients};
  }
  for (size_t i = 0; i < lookups_.size(); ++i) AddGradients(i);
  return gradients_;
}

nn::BatchView BatchLookup::ViewOfBags() {
  nn::BatchView view = batch_;
  view.inputs.clear();
  view.input_gradients.clear();
  for (const int kept : plan_->model.kept_inputs)
    view.inputs.push_back(batch_.inputs[static_cast<size_t>(kept)]);
  for (size_t table = 0; table < tables_.size(); ++table) {
    bags_.tables[table] = {.width = plan_->tables[table].row_elements(), .rows = rows_[table].rows};
  }
  for (size_t i = 0; i < lookups_.size(); ++i) {
    const int input = plan_->model.lookups[i].input;
    bags_.lookups[i] = {.input = input,
                        .table = plan_->table_of_lookup[i],
                        .combiner = lookups_[i].combiner,
                        .splits = lookups_[i].splits,
                        .unique = PositionsOf(i),
                        .weights = WeightsOf(i)};
    Shape of_batch({batch_.examples});
    for (const int64_t dim : plan_->model.model.inputs()[static_cast<size_t>(input)].shape.dims())
      of_batch.Append(dim);
    view.inputs.push_back({.dtype = DType::kFloat32, .shape = of_batch, .data = nullptr});
  }
  view.row_bags = &bags_;
  return view;
}

absl::Span<const client::RowGradients> BatchLookup::Gradients(
    absl::Span<const absl::Span<const float>> of_tables) {
  for (size_t table = 0; table < tables_.size(); ++table) {
    gradients_[table] = {
        .table = rows_[table].table, .keys = rows_[table].keys, .gradients = of_tables[table]};
  }
  return gradients_;
}

void BatchLookup::Pool(size_t i, absl::Span<float> output) const {
  if (lookups_[i].combiner != kernels::Combiner::kNone) {
    return kernels::cpu::PoolBags(BagsOf(i), RowsOf(i), output.data());
  }
  const auto width = static_cast<size_t>(plan_->model.lookups[i].width);
  const float* const rows = RowsOf(i).values;
  float* next = output.data();
  for (const int32_t position : PositionsOf(i)) {
    next = CopyRow(rows + static_cast<size_t>(position) * width, width, next);
  }
}

void BatchLookup::AddGradients(size_t i) {
  const auto width = static_cast<size_t>(plan_->model.lookups[i].width);
  TableRows& rows = tables_[static_cast<size_t>(plan_->table_of_lookup[i])];
  float* const sums = rows.gradients.data();
  const float* next = lookups_[i].gradient.data();
  if (lookups_[i].combiner != kernels::Combiner::kNone) {
    return kernels::cpu::AddBagGradients(BagsOf(i), RowsOf(i), next, sums);
  }
  for (const int32_t position : PositionsOf(i)) {
    float* const sum = sums + static_cast<size_t>(position) * width;
    if (position == rows.begun && !rows.pooled) {
      ++rows.begun;
      for (size_t k = 0; k < width; ++k) sum[k] = 0.0f + next[k];  // 0 + -0 is 0
    } else {
      for (size_t k = 0; k < width; ++k) sum[k] += next[k];
    }
    next += width;
  }
}

}  // namespace cairn::worker
