#include "data/mapped_rows.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/core/tensor_view.h"
#include "data/first_error.h"

namespace cairn::data {
namespace {

class MappedRows final : public RowSource {
 public:
  // `name` is for messages.
  MappedRows(const DataOptions& options, std::unique_ptr<RowSource> rows, std::string name)
      : rows_(std::move(rows)), name_(std::move(name)), input_names_(options.input_names) {
    for (size_t i = 0; i < options.id_maps.size(); ++i)
      maps_.push_back(options.IsText(i) ? nullptr : options.id_maps[i]);
  }

  int64_t size() const override { return rows_->size(); }
  const Shape& row_shape() const override { return rows_->row_shape(); }
  std::vector<int64_t> ragged_parts() const override { return rows_->ragged_parts(); }
  void Prefetch(int64_t index) const override { rows_->Prefetch(index); }
  void PrefetchMemory(int64_t index) const override { rows_->PrefetchMemory(index); }

  void Read(int64_t index, absl::Span<const MutableTensorView> to) const override {
    // One tensor for the whole row: the row does not fit the model's inputs, which is reported before it is used.
    if (to.size() != maps_.size()) return rows_->Read(index, to);
    absl::InlinedVector<MutableTensorView, 2> values(to.begin(), to.end());
    absl::InlinedVector<std::vector<float>, 2> floats(to.size());  // [input] before they are mapped
    absl::InlinedVector<int64_t, 2> ends(to.size());               // [input] of ragged inputs
    for (size_t i = 0; i < to.size(); ++i) {
      if (to[i].end != nullptr) ends[i] = *to[i].end;
      if (!IsMapped(i, to[i]) || !maps_[i]->Takes(ValueKind::kFloat)) continue;
      floats[i].resize(static_cast<size_t>(to[i].shape.num_elements()));
      values[i].dtype = DType::kFloat32;
      values[i].data = floats[i].data();
    }
    rows_->Read(index, values);
    for (size_t i = 0; i < to.size(); ++i) {
      if (!IsMapped(i, to[i])) continue;
      const int64_t count = to[i].end != nullptr ? *to[i].end - ends[i] : to[i].shape.num_elements();
      const absl::Span<int64_t> ids(static_cast<int64_t*>(to[i].data), static_cast<size_t>(count));
      if (!floats[i].empty()) {
        std::transform(floats[i].begin(), floats[i].begin() + count, ids.begin(),
                       [&](float value) { return maps_[i]->OfFloat(value).value_or(0); });
      } else {
        MapIntegers(index, i, ids);
      }
    }
  }

  absl::Status status() const override {
    const absl::Status read = rows_->status();
    return read.ok() ? error_.status() : read;
  }

 private:
  // Ids are int64; a reader that takes floats gets the values.
  bool IsMapped(size_t input, const MutableTensorView& to) const {
    return maps_[input] != nullptr && to.dtype == DType::kInt64;
  }

  void MapIntegers(int64_t index, size_t input, absl::Span<int64_t> values) const {
    for (int64_t& value : values) {
      const auto id = maps_[input]->OfInteger(value);
      if (!id) {
        error_.Set(absl::InvalidArgumentError(
            absl::StrCat(name_, ": example ", index, ": ",
                         maps_[input]->WhyNoId(absl::StrCat(value), input_names_[input]))));
      }
      value = id.value_or(0);
    }
  }

  const std::unique_ptr<RowSource> rows_;
  const std::string name_;
  const std::vector<std::string> input_names_;
  std::vector<std::shared_ptr<const IdMap>> maps_;  // [input] null: none, or the ids are made already
  mutable FirstError error_;
};

}  // namespace

DataOptions WithTypesInFiles(DataOptions options) {
  for (size_t i = 0; i < options.id_maps.size(); ++i) {
    const IdMap* const map = options.id_maps[i].get();
    if (map != nullptr && !options.IsText(i) && map->Takes(ValueKind::kFloat))
      options.input_types[i] = DType::kFloat32;
  }
  return options;
}

absl::StatusOr<std::unique_ptr<RowSource>> MapRows(const DataOptions& options,
                                                   std::unique_ptr<RowSource> rows, const std::string& name,
                                                   bool has_texts) {
  bool any = false;
  for (size_t i = 0; i < options.id_maps.size(); ++i) {
    if (options.id_maps[i] == nullptr) continue;
    if (!options.IsText(i)) {
      any = true;
    } else if (!has_texts) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, ": input '", options.input_names[i],
          "' of the model takes strings, which only CSV, JSON lines, TFRecord files and folders of "
          "texts have"));
    }
  }
  if (!any) return rows;
  return std::make_unique<MappedRows>(options, std::move(rows), name);
}

}  // namespace cairn::data
