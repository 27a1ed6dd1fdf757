#include "data/labelled_dataset.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "data/example_shape.h"

namespace cairn::data {
namespace {

absl::Status CheckCounts(const Split& split) {
  const int64_t examples = split.inputs->size();
  const int64_t targets = split.target_rows != nullptr ? split.target_rows->size() : split.targets.size();
  if (targets != examples) {
    return absl::InvalidArgumentError(absl::StrCat(split.inputs_name, " has ", examples, " examples, but ",
                                                   split.targets_name, " has ", targets, " targets"));
  }
  if (!split.weights.values.empty() && split.weights.size() != examples) {
    return absl::InvalidArgumentError(absl::StrCat(split.inputs_name, " has ", examples, " examples, but ",
                                                   split.weights.name(), " has ", split.weights.size(),
                                                   " weights"));
  }
  return absl::OkStatus();
}

// INVALID_ARGUMENT if `inputs` lack an input that the model takes as ragged.
absl::Status CheckRagged(const DataOptions& options, const RowSource& inputs, const std::string& name) {
  const std::vector<int64_t> ragged = inputs.ragged_parts();
  for (size_t i = 0; i < options.input_types.size(); ++i) {
    if (!options.IsRagged(i) || (i < ragged.size() && ragged[i] >= 0)) continue;
    return NotRagged(name, options.input_names[i]);
  }
  return absl::OkStatus();
}

// One spec for each input of the model, or one for the whole row if the model's inputs are unknown or do not fit.
std::vector<InputSpec> SpecsFor(const DataOptions& options, const Shape& example_shape,
                                const std::vector<int64_t>& ragged) {
  std::vector<InputSpec> specs;
  int64_t elements = 0;
  for (size_t i = 0; i < options.input_types.size(); ++i) {
    const bool is_ragged = options.IsRagged(i);
    specs.push_back(
        {options.input_types[i], is_ragged ? Shape({ragged[i]}) : options.input_shapes[i], is_ragged});
    elements += specs.back().shape.num_elements();
  }
  if (specs.size() == 1) specs[0].shape = example_shape;
  if (specs.empty() || (specs.size() > 1 && elements != example_shape.num_elements())) {
    return {{DType::kFloat32, example_shape}};
  }
  return specs;
}

}  // namespace

LabelledDataset::LabelledDataset(Split split)
    : inputs_(std::move(split.inputs)),
      size_(inputs_->size()),
      example_shape_(inputs_->row_shape()),
      inputs_name_(std::move(split.inputs_name)),
      targets_name_(std::move(split.targets_name)),
      parts_(std::move(split.parts)),
      targets_(std::move(split.targets)),
      target_rows_(std::move(split.target_rows)),
      weights_(std::move(split.weights)) {}

absl::StatusOr<std::unique_ptr<Dataset>> LabelledDataset::Create(Split split, const DataOptions& options,
                                                                 Use use) {
  CAIRN_RETURN_IF_ERROR(CheckCounts(split));
  std::unique_ptr<LabelledDataset> dataset(new LabelledDataset(std::move(split)));
  if (options.limit > 0) dataset->size_ = std::min(dataset->size_, options.limit);
  if (options.example_shape.rank() > 1 && IsCompatible(dataset->example_shape_, options.example_shape)) {
    dataset->example_shape_ = options.example_shape;
  }
  if (dataset->targets_.shape.num_elements() != dataset->targets_.per_example) {
    dataset->targets_.shape = {dataset->targets_.per_example};
  }
  if (use == Use::kTraining) {
    // Gray images may have no channel axis in the file.
    if (!options.augmentation.empty() && dataset->example_shape_.rank() == 2)
      dataset->example_shape_.Append(1);
    const absl::Status suits = Validate(options.augmentation, dataset->example_shape_);
    if (!suits.ok()) return Annotate(suits, dataset->inputs_name_);
    if (!options.augmentation.empty() && dataset->targets_.shape.rank() > 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          dataset->targets_name_, ": targets have the shape ", dataset->targets_.shape.ToString(),
          " and would not be augmented with the images: --augment needs targets with at most one axis"));
    }
    dataset->augmentation_ = options.augmentation;
  }
  CAIRN_RETURN_IF_ERROR(CheckRagged(options, *dataset->inputs_, dataset->inputs_name_));
  dataset->input_specs_ = SpecsFor(options, dataset->example_shape_, dataset->inputs_->ragged_parts());
  if (!dataset->augmentation_.empty() && dataset->input_specs_[0].dtype != DType::kFloat32) {
    return absl::InvalidArgumentError(
        absl::StrCat(dataset->inputs_name_,
                     ": the model looks its values up in a table, and only images can be augmented"));
  }
  if (options.autoencoder) CAIRN_RETURN_IF_ERROR(dataset->UseInputsAsTargets());
  return dataset;
}

absl::Status LabelledDataset::UseInputsAsTargets() {
  if (input_specs_.size() != 1 || input_specs_[0].dtype != DType::kFloat32 || input_specs_[0].ragged) {
    return absl::InvalidArgumentError(absl::StrCat(
        inputs_name_, ": --autoencoder needs a model with one input of numbers, which are the targets"));
  }
  if (!augmentation_.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        inputs_name_, ": targets would not be augmented with the inputs: --autoencoder excludes --augment"));
  }
  inputs_are_targets_ = true;
  target_rows_ = nullptr;
  targets_ = {.per_example = example_shape_.num_elements(), .shape = example_shape_};
  return absl::OkStatus();
}

absl::Status LabelledDataset::status() const {
  const absl::Status inputs = inputs_->status();
  return inputs.ok() && target_rows_ != nullptr ? target_rows_->status() : inputs;
}

absl::Span<const float> LabelledDataset::Target(int64_t index) const {
  if (target_rows_ != nullptr || inputs_are_targets_) return {};
  const auto each = static_cast<size_t>(targets_.per_example);
  return absl::MakeConstSpan(targets_.values).subspan(static_cast<size_t>(index) * each, each);
}

std::string LabelledDataset::TargetName(int64_t index) const {
  const auto next = std::find_if(parts_.begin(), parts_.end(),
                                 [index](const FilePart& part) { return part.first > index; });
  if (next == parts_.begin()) return absl::StrCat(targets_name_, ": example ", index);
  const FilePart& part = *std::prev(next);
  return absl::StrCat(part.path, ": example ", index - part.first);
}

void LabelledDataset::Prefetch(absl::Span<const uint32_t> examples, Fetch fetch) const {
  for (const uint32_t example : examples) {
    if (fetch == Fetch::kFromDisk) {
      inputs_->Prefetch(example);
    } else {
      inputs_->PrefetchMemory(example);
      if (target_rows_ == nullptr && !inputs_are_targets_)
        __builtin_prefetch(targets_.values.data() + example * targets_.per_example);
    }
  }
}

void LabelledDataset::Read(int64_t index, absl::Span<const MutableTensorView> inputs,
                           absl::Span<float> target) const {
  CAIRN_CHECK(index >= 0 && index < size_);
  inputs_->Read(index, inputs);
  if (inputs_are_targets_) {
    std::copy_n(static_cast<const float*>(inputs[0].data), target.size(), target.data());
  } else if (target_rows_ != nullptr) {
    target_rows_->Read(index, {MutableTensorView::OfFloats(targets_.shape, target)});
  } else {
    std::copy_n(targets_.values.data() + index * targets_.per_example, targets_.per_example, target.data());
  }
}

}  // namespace cairn::data
