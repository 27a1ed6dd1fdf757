#include "worker/adapt/moments.h"

#include <cstddef>

namespace cairn::worker {

Moments::Moments(const Shape& example, const std::vector<int64_t>& axes) {
  std::vector<bool> kept(static_cast<size_t>(example.rank()));
  for (const int64_t axis : axes)
    kept[static_cast<size_t>((axis < 0 ? axis + example.rank() + 1 : axis) - 1)] = true;
  for (int axis = 0; axis < example.rank(); ++axis) {
    if (kept[static_cast<size_t>(axis)]) shape_.Append(example[axis]);
  }
  for (int64_t element = 0; element < example.num_elements(); ++element) {
    int64_t rest = element, stride = 1, mean = 0;
    for (int axis = example.rank() - 1; axis >= 0; --axis) {
      if (kept[static_cast<size_t>(axis)]) {
        mean += rest % example[axis] * stride;
        stride *= example[axis];
      }
      rest /= example[axis];
    }
    mean_of_.push_back(static_cast<size_t>(mean));
  }
  const auto count = static_cast<size_t>(shape_.num_elements());
  counts_.resize(count);
  means_.resize(count);
  squares_.resize(count);
}

void Moments::Add(absl::Span<const float> values) {
  for (size_t element = 0; element < values.size(); ++element) {
    const size_t i = mean_of_[element];
    const double from_mean = values[element] - means_[i];
    means_[i] += from_mean / ++counts_[i];
    squares_[i] += from_mean * (values[element] - means_[i]);
  }
}

std::vector<double> Moments::Variances() const {
  std::vector<double> variances;
  for (size_t i = 0; i < squares_.size(); ++i) variances.push_back(squares_[i] / counts_[i]);
  return variances;
}

}  // namespace cairn::worker
