// A data set made of a format's rows and their targets and weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "data/formats.h"

namespace cairn::data {

class LabelledDataset final : public Dataset {
 public:
  enum class Use { kTraining, kValidation };

  // Takes over `split`. Applies the limit and the example's shape from `options` and, in training, the
  // augmentation. INVALID_ARGUMENT if the numbers of inputs, targets and weights differ, or
  // if the training options do not suit the examples.
  static absl::StatusOr<std::unique_ptr<Dataset>> Create(Split split, const DataOptions& options, Use use);

  int64_t size() const override { return size_; }
  const Shape& example_shape() const override { return example_shape_; }
  TargetInfo target_info() const override {
    return {targets_.per_example, targets_.num_classes, targets_.position_classes, targets_.shape,
            inputs_are_targets_};
  }
  absl::Status status() const override;
  std::string inputs_name() const override { return inputs_name_; }
  absl::Span<const float> Target(int64_t index) const override;
  std::string TargetName(int64_t index) const override;
  const Weights* weights() const override { return weights_.values.empty() ? nullptr : &weights_; }
  Augmentation augmentation() const override { return augmentation_; }
  void Prefetch(absl::Span<const uint32_t> examples, Fetch fetch) const override;
  std::vector<InputSpec> input_specs() const override { return input_specs_; }
  void Read(int64_t index, absl::Span<const MutableTensorView> inputs,
            absl::Span<float> target) const override;

 private:
  explicit LabelledDataset(Split split);
  // Takes the inputs as targets.
  absl::Status UseInputsAsTargets();

  std::unique_ptr<RowSource> inputs_;
  int64_t size_;
  Shape example_shape_;
  std::vector<InputSpec> input_specs_;
  const std::string inputs_name_, targets_name_;
  const std::vector<FilePart> parts_;
  Targets targets_;  // the targets of at least size_ examples, unless target_rows_ has them
  std::unique_ptr<RowSource> target_rows_;
  bool inputs_are_targets_ = false;
  Weights weights_;  // of at least size_ examples
  Augmentation augmentation_;
};

}  // namespace cairn::data
