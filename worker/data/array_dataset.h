// A data set over two arrays in memory: inputs in the type of their file, scaled when they are read.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"
#include "worker/data/formats.h"

namespace cairn::data {

class ArrayDataset final : public Dataset {
 public:
  // Takes `split`'s arrays over. Images without a channel axis, [n,h,w], get one of extent 1. Scale and limit
  // are those of DataOptions. INVALID_ARGUMENT where the counts differ, an extent is 0 or a label is no class
  // index.
  static absl::StatusOr<std::unique_ptr<Dataset>> Create(Split split, float input_scale, int64_t limit);

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  const Shape& example_shape() const override { return example_shape_; }
  int64_t num_classes() const override { return num_classes_; }
  int64_t num_targets() const override { return 1; }
  float Read(int64_t index, absl::Span<float> inputs, absl::Span<float> target) const override;

 private:
  ArrayDataset() = default;

  Array inputs_;
  Shape example_shape_;
  int64_t example_elements_ = 0;
  std::vector<int32_t> labels_;  // [size]
  int64_t num_classes_ = 0;
  // value * scale / divisor: (1, 255) gives Keras' `x / 255` to the bit, which a factor of 1/255 does not.
  float scale_ = 1;
  float divisor_ = 1;
};

}  // namespace cairn::data
