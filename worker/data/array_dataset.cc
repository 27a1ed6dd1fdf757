#include "worker/data/array_dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::data {
namespace {

template <typename T>
T ElementAt(const uint8_t* bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// Calls `body(T{})` with T the C++ type of `type`.
template <typename Body>
auto WithType(ElementType type, Body body) {
  switch (type) {
    case ElementType::kUint8:
      return body(uint8_t{});
    case ElementType::kInt8:
      return body(int8_t{});
    case ElementType::kInt16:
      return body(int16_t{});
    case ElementType::kInt32:
      return body(int32_t{});
    case ElementType::kInt64:
      return body(int64_t{});
    case ElementType::kFloat32:
      return body(float{});
    case ElementType::kFloat64:
      break;
  }
  return body(double{});
}

// Targets are floats, which hold every integer up to here.
constexpr int64_t kLargestLabel = int64_t{1} << 24;

absl::StatusOr<std::vector<int32_t>> ReadLabels(const Split& split) {
  const Array& labels = split.labels;
  const auto refuse = [&](const auto&... text) {
    return absl::InvalidArgumentError(absl::StrCat(split.labels_name, ": ", text...));
  };
  if (!IsInteger(labels.type)) {
    return refuse("labels are ", NameOf(labels.type), "; they must be integers, one class index per example");
  }
  // CIFAR's labels are [n,1].
  const bool one_per_row = labels.shape.rank() == 2 && labels.shape[1] == 1;
  if (labels.shape.rank() != 1 && !one_per_row) {
    return refuse("labels have the shape ", labels.shape.ToString(),
                  "; it must be [examples], one class index each");
  }
  std::vector<int32_t> result(static_cast<size_t>(labels.shape[0]));
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t label = WithType(labels.type, [&](auto zero) {
      return static_cast<int64_t>(ElementAt<decltype(zero)>(labels.bytes.data(), static_cast<int64_t>(i)));
    });
    if (label < 0 || label > kLargestLabel) {
      return refuse("label ", label, " of example ", i, " is no class index");
    }
    result[i] = static_cast<int32_t>(label);
  }
  return result;
}

absl::StatusOr<Shape> ExampleShape(const Split& split) {
  const Shape& shape = split.inputs.shape;
  const auto refuse = [&](const auto&... text) {
    return absl::InvalidArgumentError(absl::StrCat(split.inputs_name, ": ", text...));
  };
  if (shape.rank() == 0) return refuse("inputs are a scalar; the first axis must count the examples");
  if (shape[0] == 0) return refuse("holds no examples");
  if (shape.row_elements() == 0) return refuse("examples of the shape ", shape.ToString(), " are empty");
  if (shape[0] > std::numeric_limits<int32_t>::max())
    return refuse("has ", shape[0], " examples, more than 2^31");
  Shape example(shape.dims().subspan(1));
  if (shape.rank() == 1 || shape.rank() == 3) example.Append(1);
  return example;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> ArrayDataset::Create(Split split, float input_scale, int64_t limit) {
  CAIRN_ASSIGN_OR_RETURN(Shape example_shape, ExampleShape(split));
  CAIRN_ASSIGN_OR_RETURN(std::vector<int32_t> labels, ReadLabels(split));
  const int64_t examples = split.inputs.shape[0];
  if (static_cast<int64_t>(labels.size()) != examples) {
    return absl::InvalidArgumentError(absl::StrCat(split.inputs_name, " has ", examples, " examples, but ",
                                                   split.labels_name, " has ", labels.size(), " labels"));
  }
  std::unique_ptr<ArrayDataset> dataset(new ArrayDataset());
  dataset->num_classes_ = int64_t{*std::max_element(labels.begin(), labels.end())} + 1;
  dataset->example_shape_ = std::move(example_shape);
  dataset->example_elements_ = dataset->example_shape_.num_elements();
  dataset->labels_ = std::move(labels);
  dataset->inputs_ = std::move(split.inputs);
  if (limit > 0 && limit < examples) {
    dataset->labels_.resize(static_cast<size_t>(limit));
    dataset->inputs_.bytes.resize(
        static_cast<size_t>(limit * dataset->example_elements_ * SizeOf(dataset->inputs_.type)));
    dataset->labels_.shrink_to_fit();
    dataset->inputs_.bytes.shrink_to_fit();
  }
  if (!std::isnan(input_scale)) {
    dataset->scale_ = input_scale;
  } else if (dataset->inputs_.type == ElementType::kUint8) {
    dataset->divisor_ = 255;
  }
  return dataset;
}

float ArrayDataset::Read(int64_t index, absl::Span<float> inputs, absl::Span<float> target) const {
  CAIRN_CHECK(index >= 0 && index < size());
  CAIRN_CHECK(static_cast<int64_t>(inputs.size()) == example_elements_);
  WithType(inputs_.type, [&](auto zero) {
    using T = decltype(zero);
    const uint8_t* row = inputs_.bytes.data() + index * example_elements_ * static_cast<int64_t>(sizeof(T));
    float* out = inputs.data();
    for (int64_t i = 0; i < example_elements_; ++i) {
      out[i] = static_cast<float>(ElementAt<T>(row, i)) * scale_ / divisor_;
    }
  });
  target[0] = static_cast<float>(labels_[static_cast<size_t>(index)]);
  return 1;
}

}  // namespace cairn::data
