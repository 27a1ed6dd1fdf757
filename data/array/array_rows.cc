#include "data/array/array_rows.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "data/array/read_ahead.h"
#include "data/first_error.h"
#include "data/row_writer.h"

namespace cairn::data {
namespace {

class ArrayRows final : public RowSource {
 public:
  // `name` is for messages.
  ArrayRows(Array array, Shape row_shape, Scale scale, std::string name)
      : array_(std::move(array)),
        name_(std::move(name)),
        row_shape_(std::move(row_shape)),
        row_elements_(row_shape_.num_elements()),
        scale_(scale),
        read_ahead_({&array_.bytes, 1}) {}

  int64_t size() const override { return array_.shape[0]; }
  const Shape& row_shape() const override { return row_shape_; }

  void Prefetch(int64_t index) const override {
    const auto row_bytes = static_cast<size_t>(row_elements_ * SizeOf(array_.type));
    read_ahead_.Fetch(array_.bytes.span().subspan(static_cast<size_t>(index) * row_bytes, row_bytes));
  }
  void Read(int64_t index, absl::Span<const MutableTensorView> to) const override {
    WithType(array_.type, [&](auto zero) {
      using T = decltype(zero);
      const uint8_t* row = array_.bytes.data() + index * row_elements_ * static_cast<int64_t>(sizeof(T));
      const auto bad = WriteRow(to, scale_, [row](int64_t i) { return ElementAt<T>(row, i); });
      if (bad) {
        error_.Set(CannotHold(absl::StrCat(name_, ": example ", index), *bad, ElementAt<T>(row, *bad), to));
      }
    });
  }
  absl::Status status() const override { return error_.status(); }

 private:
  const Array array_;
  const std::string name_;
  const Shape row_shape_;
  const int64_t row_elements_;
  const Scale scale_;
  const ReadAhead read_ahead_;
  mutable FirstError error_;
};

class RaggedRows final : public RowSource {
 public:
  // `name` is for messages.
  RaggedRows(Array values, std::vector<int64_t> splits, std::string name)
      : values_(std::move(values)), splits_(std::move(splits)), name_(std::move(name)) {
    int64_t longest = 1;  // also if all rows are empty, since a part of a row has elements
    for (size_t i = 1; i < splits_.size(); ++i) longest = std::max(longest, splits_[i] - splits_[i - 1]);
    row_shape_ = {longest};
  }

  int64_t size() const override { return static_cast<int64_t>(splits_.size()) - 1; }
  const Shape& row_shape() const override { return row_shape_; }
  std::vector<int64_t> ragged_parts() const override { return {row_shape_[0]}; }
  void Prefetch(int64_t) const override {}
  void Read(int64_t index, absl::Span<const MutableTensorView> to) const override {
    const int64_t begin = splits_[static_cast<size_t>(index)], end = splits_[static_cast<size_t>(index) + 1];
    WithType(values_.type, [&](auto zero) {
      using T = decltype(zero);
      const uint8_t* row = values_.bytes.data() + begin * static_cast<int64_t>(sizeof(T));
      const auto bad = WriteRagged(to[0], end - begin, [row](int64_t i) { return ElementAt<T>(row, i); });
      if (bad)
        error_.Set(CannotHold(absl::StrCat(name_, ": example ", index), *bad, ElementAt<T>(row, *bad), to));
    });
  }
  absl::Status status() const override { return error_.status(); }

 private:
  const Array values_;
  const std::vector<int64_t> splits_;  // [examples + 1]
  const std::string name_;
  Shape row_shape_;
  mutable FirstError error_;
};

class JoinedRows final : public RowSource {
 public:
  explicit JoinedRows(std::vector<std::unique_ptr<RowSource>> parts) : parts_(std::move(parts)) {
    int64_t elements = 0;
    for (const auto& part : parts_) elements += part->row_shape().num_elements();
    row_shape_ = {elements};
  }

  int64_t size() const override { return parts_.front()->size(); }
  const Shape& row_shape() const override { return row_shape_; }

  std::vector<int64_t> ragged_parts() const override {
    std::vector<int64_t> ragged;
    bool any = false;
    for (const auto& part : parts_) {
      const std::vector<int64_t> of_part = part->ragged_parts();
      ragged.push_back(of_part.empty() ? -1 : of_part[0]);
      any = any || !of_part.empty();
    }
    return any ? ragged : std::vector<int64_t>();
  }
  void Prefetch(int64_t index) const override {
    for (const auto& part : parts_) part->Prefetch(index);
  }
  void Read(int64_t index, absl::Span<const MutableTensorView> to) const override {
    RowCursor cursor(to);
    for (const auto& part : parts_) part->Read(index, cursor.Take(part->row_shape().num_elements()));
  }

  absl::Status status() const override {
    for (const auto& part : parts_) CAIRN_RETURN_IF_ERROR(part->status());
    return absl::OkStatus();
  }

 private:
  const std::vector<std::unique_ptr<RowSource>> parts_;
  Shape row_shape_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RowSource>> MakeArrayRows(Array array, const std::string& name,
                                                         float input_scale) {
  const Shape& shape = array.shape;
  const auto refuse = [&](const auto&... text) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", text...));
  };
  if (shape.rank() == 0) return refuse("inputs are a scalar; the first axis must count the examples");
  if (shape[0] == 0) return refuse("holds no examples");
  if (shape.row_elements() == 0) return refuse("examples of the shape ", shape.ToString(), " are empty");
  if (shape[0] > std::numeric_limits<int32_t>::max())
    return refuse("has ", shape[0], " examples, more than 2^31");
  Shape row_shape(shape.dims().subspan(1));
  if (shape.rank() == 1) row_shape.Append(1);
  const Scale scale = ScaleOf(input_scale, array.type == ElementType::kUint8);
  return std::make_unique<ArrayRows>(std::move(array), std::move(row_shape), scale, name);
}

absl::StatusOr<std::vector<int64_t>> ReadRowSplits(const Array& array, const Array& values, bool integers,
                                                   const std::string& name) {
  const auto refuse = [&](const auto&... text) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", text...));
  };
  if (values.shape.rank() != 1 || (integers && !IsInteger(values.type))) {
    return refuse("is ", NameOf(values.type), " ", values.shape.ToString(),
                  ", but the values of a ragged input are ", integers ? "integers" : "numbers",
                  " along one axis");
  }
  if (array.shape.rank() != 1 || !IsInteger(array.type) || array.shape[0] < 2) {
    return refuse("its row splits are ", NameOf(array.type), " ", array.shape.ToString(),
                  ", not integers [examples + 1]");
  }
  if (array.shape[0] - 1 > std::numeric_limits<int32_t>::max())
    return refuse("has ", array.shape[0] - 1, " examples, more than 2^31");
  std::vector<int64_t> splits(static_cast<size_t>(array.shape[0]));
  WithType(array.type, [&](auto zero) {
    for (size_t i = 0; i < splits.size(); ++i) {
      splits[i] =
          static_cast<int64_t>(ElementAt<decltype(zero)>(array.bytes.data(), static_cast<int64_t>(i)));
    }
  });
  if (splits.front() != 0 || splits.back() != values.shape[0]) {
    return refuse("its row splits go from ", splits.front(), " to ", splits.back(), ", not from 0 to its ",
                  values.shape[0], " values");
  }
  for (size_t i = 1; i < splits.size(); ++i) {
    if (splits[i] < splits[i - 1]) return refuse("example ", i - 1, ": its row splits descend");
  }
  return splits;
}

absl::Status CheckSameSplits(const DataOptions& options, const std::vector<std::vector<int64_t>>& splits,
                             const std::vector<std::string>& names) {
  for (size_t i = 0; i < splits.size(); ++i) {
    const int ids = splits[i].empty() ? -1 : options.WeightsOf(i);
    if (ids < 0) continue;
    const auto& [ours, theirs] =
        std::mismatch(splits[i].begin(), splits[i].end(), splits[static_cast<size_t>(ids)].begin(),
                      splits[static_cast<size_t>(ids)].end());
    if (ours == splits[i].end() || theirs == splits[static_cast<size_t>(ids)].end()) continue;
    return absl::InvalidArgumentError(absl::StrCat(names[i], ": example ", ours - splits[i].begin() - 1,
                                                   " has another number of weights than it has ids in ",
                                                   names[static_cast<size_t>(ids)]));
  }
  return absl::OkStatus();
}

std::unique_ptr<RowSource> MakeRaggedRows(Array values, std::vector<int64_t> row_splits,
                                          const std::string& name) {
  return std::make_unique<RaggedRows>(std::move(values), std::move(row_splits), name);
}

absl::StatusOr<std::unique_ptr<RowSource>> JoinRows(std::vector<std::unique_ptr<RowSource>> parts,
                                                    const std::vector<std::string>& names) {
  CAIRN_CHECK(!parts.empty() && parts.size() == names.size());
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i]->size() != parts[0]->size()) {
      return absl::InvalidArgumentError(absl::StrCat(names[0], " has ", parts[0]->size(), " examples, but ",
                                                     names[i], " has ", parts[i]->size()));
    }
  }
  if (parts.size() == 1) return std::move(parts[0]);
  return std::make_unique<JoinedRows>(std::move(parts));
}

}  // namespace cairn::data
