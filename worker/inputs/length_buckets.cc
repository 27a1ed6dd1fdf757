#include "worker/inputs/length_buckets.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/loss.h"
#include "worker/export/model_source.h"

namespace cairn::worker {
namespace {

// INVALID_ARGUMENT unless `model` takes ids, of which those that a shorter one drops may be padding.
absl::Status CheckInputs(const nn::Model& model) {
  for (const nn::ModelInput& input : model.inputs()) {
    if (IsInteger(input.dtype) && !input.ragged) continue;
    return absl::InvalidArgumentError(absl::StrCat("input '", input.name, "' takes ",
                                                   input.ragged ? "ragged " : "", NameOf(input.dtype),
                                                   ": only sequences of ids, padded with 0, have buckets"));
  }
  return absl::OkStatus();
}

// The form of examples for `model`, which is `whole` or one of its shorter ones.
absl::StatusOr<data::BucketForm> FormFor(const nn::Model& model, const nn::Model& whole,
                                         const nn::Objective& objective) {
  data::BucketForm form;
  for (const nn::ModelInput& input : model.inputs()) form.inputs.push_back(input.shape);
  for (size_t i = 0; i < objective.losses().size(); ++i) {
    const kernels::LossParams params = objective.ParamsOf(i, model, 1),
                              of_whole = objective.ParamsOf(i, whole, 1);
    if (i == 0 || objective.weighs_each_loss())
      form.weights.push_back({.count = of_whole.weights_per_example(), .kept = params.weights_per_example()});
    data::KeptPart& part = form.targets.emplace_back();
    part.count = of_whole.targets_per_example();
    part.kept = params.targets_per_example();
    if (part.kept == part.count || params.masked) continue;
    if (!params.ignore_class.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the loss of output '", whole.outputs()[objective.losses()[i].output].name,
          "' would count the steps of padding: mask them (mask_zero), or give the loss an ignore_class"));
    }
    part.padding = static_cast<float>(*params.ignore_class);
  }
  return form;
}

}  // namespace

absl::Status AddShorterModels(const TrainOptions& options, nn::Model& model) {
  if (options.bucket_boundaries.empty()) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(Annotate(CheckInputs(model), "--bucket_boundaries"));
  const Shape whole = model.inputs()[0].shape;
  for (const int64_t boundary : options.bucket_boundaries) {
    const nn::InputSizes sizes = {
        .given = options.input_shapes, .in_data = [whole] { return whole; }, .max_length = boundary};
    auto shorter = ReadModelFile(options.model, sizes);
    absl::Status added = shorter.status();
    if (added.ok()) added = model.AddShorter(*std::move(shorter));
    if (absl::IsInvalidArgument(added)) {
      return Annotate(added, absl::StrCat("--bucket_boundaries: the model for sequences of ", boundary,
                                          boundary == 1 ? " step" : " steps"));
    }
    CAIRN_RETURN_IF_ERROR(added);
  }
  return absl::OkStatus();
}

absl::StatusOr<data::LengthBuckets> BucketsOf(const nn::Model& model, const nn::Objective& objective,
                                              const data::Dataset& dataset) {
  std::vector<data::BucketForm> forms;
  for (const nn::Model& shorter : model.shorter()) {
    CAIRN_RETURN_IF_ERROR(Annotate(objective.CheckWeights(shorter), "--bucket_boundaries"));
    auto form = FormFor(shorter, model, objective);
    if (!form.ok()) return Annotate(form.status(), "--bucket_boundaries");
    forms.push_back(*std::move(form));
  }
  CAIRN_ASSIGN_OR_RETURN(forms.emplace_back(), FormFor(model, model, objective));
  if (dataset.weights_per_example() == 0) {
    for (data::BucketForm& form : forms) form.weights.clear();
  }
  return data::SortIntoBuckets(dataset, std::move(forms));
}

}  // namespace cairn::worker
