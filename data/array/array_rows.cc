#include "data/array/array_rows.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "data/array/read_ahead.h"

namespace cairn::data {
namespace {

class ArrayRows final : public RowSource {
 public:
  ArrayRows(Array array, Shape row_shape, Scale scale)
      : array_(std::move(array)),
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
  void Read(int64_t index, absl::Span<float> to) const override {
    WithType(array_.type, [&](auto zero) {
      using T = decltype(zero);
      const uint8_t* row = array_.bytes.data() + index * row_elements_ * static_cast<int64_t>(sizeof(T));
      for (int64_t i = 0; i < row_elements_; ++i) {
        to.data()[i] = scale_(static_cast<float>(ElementAt<T>(row, i)));
      }
    });
  }

 private:
  const Array array_;
  const Shape row_shape_;
  const int64_t row_elements_;
  const Scale scale_;
  const ReadAhead read_ahead_;
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

  void Prefetch(int64_t index) const override {
    for (const auto& part : parts_) part->Prefetch(index);
  }
  void Read(int64_t index, absl::Span<float> to) const override {
    for (const auto& part : parts_) {
      const auto elements = static_cast<size_t>(part->row_shape().num_elements());
      part->Read(index, to.subspan(0, elements));
      to.remove_prefix(elements);
    }
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
  return std::make_unique<ArrayRows>(std::move(array), std::move(row_shape), scale);
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
