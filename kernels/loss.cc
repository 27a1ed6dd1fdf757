#include "kernels/loss.h"

#include <cmath>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::kernels {
namespace {

// Class indices are floats, which represent every whole number up to this one.
constexpr int64_t kMaxClasses = int64_t{1} << 24;

absl::Status ValidateFocal(const LossParams& params) {
  if (!(params.gamma >= 0 && std::isfinite(params.gamma))) {
    return absl::InvalidArgumentError(
        absl::StrCat("gamma ", params.gamma, ": expected a number of at least 0"));
  }
  if (!std::isfinite(params.alpha))
    return absl::InvalidArgumentError(absl::StrCat("alpha ", params.alpha, ": expected a number"));
  const auto alphas = static_cast<int64_t>(params.class_alphas.size());
  if (alphas == 0) return absl::OkStatus();
  if (params.kind != LossKind::kCategoricalFocalCrossentropy || alphas != params.width) {
    return absl::InvalidArgumentError(
        absl::StrCat("alpha: a list of ", alphas, " numbers does not fit ", params.width, " classes"));
  }
  for (const float alpha : params.class_alphas) {
    if (!std::isfinite(alpha))
      return absl::InvalidArgumentError(absl::StrCat("alpha ", alpha, ": expected a number"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const LossParams& params) {
  const auto outputs = [&params] {
    return absl::StrCat("outputs [", params.batch, ",", params.rows_per_example, ",", params.width, "]");
  };
  if (params.batch < 1 || params.rows_per_example < 1 || params.width < 1) {
    return absl::InvalidArgumentError(absl::StrCat("cannot compute a loss of ", outputs()));
  }
  for (const auto& [name, stride, floats] :
       {std::tuple("outputs", params.output_stride,
                   params.outputs_per_example() + (params.masked ? params.rows_per_example : 0)),
        std::tuple("targets", params.target_stride, params.targets_per_example()),
        std::tuple("weights", params.weight_stride, params.weights_per_example())}) {
    if (stride == 0 || stride >= floats) continue;
    return absl::InvalidArgumentError(absl::StrCat("cannot compute a loss of ", floats, " ", name,
                                                   " per example, with a stride of ", stride));
  }
  if (params.masked && params.output_stride == 0)
    return absl::InvalidArgumentError(absl::StrCat(outputs(), ": a mask after them needs a stride"));
  if (params.ignore_class.has_value() && params.kind != LossKind::kSparseCategoricalCrossentropy)
    return absl::InvalidArgumentError("ignore_class needs class indices as targets");
  if (!std::isfinite(params.weight))
    return absl::InvalidArgumentError(absl::StrCat("weight ", params.weight, ": expected a number"));
  if (IsOfBoxes(params.kind) && params.width != 4) {
    return absl::InvalidArgumentError(absl::StrCat(outputs(), ": a box has 4 numbers, along the last axis"));
  }
  if (params.kind == LossKind::kSparseCategoricalCrossentropy && params.width > kMaxClasses) {
    return absl::InvalidArgumentError(absl::StrCat(outputs(), ": more than 2^24 classes"));
  }
  if (!(params.label_smoothing >= 0 && params.label_smoothing <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("label_smoothing ", params.label_smoothing, ": expected a number from 0 to 1"));
  }
  if (!(params.delta > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("delta ", params.delta, ": expected a number above 0"));
  }
  CAIRN_RETURN_IF_ERROR(ValidateFocal(params));
  if (!(params.temperature > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("temperature ", params.temperature, ": expected a number above 0"));
  }
  const int64_t embeddings = params.width - (params.sampling_probability ? 1 : 0);
  if (params.kind == LossKind::kInBatchSoftmax &&
      (params.rows_per_example != 1 || embeddings < 2 || embeddings % 2 != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(outputs(), ": an output must be two embeddings of equal width",
                     params.sampling_probability ? " and a sampling probability" : ""));
  }
  const bool part = params.output_stride != 0 || params.target_stride != 0 || params.weight_stride != 0 ||
                    params.weight != 1 || params.leaves_out_rows();
  if (params.kind == LossKind::kInBatchSoftmax && part) {
    return absl::InvalidArgumentError(absl::StrCat(
        outputs(), ": a loss over the items of a batch must be the only one, with the weight 1"));
  }
  return absl::OkStatus();
}

absl::Status BadLabelError(const LossParams& params, int64_t index, float label) {
  const int64_t example = index / params.rows_per_example, row = index % params.rows_per_example;
  return absl::InvalidArgumentError(
      absl::StrCat("label ", label, " of example ", example, " of the batch",
                   params.rows_per_example == 1 ? "" : absl::StrCat(", row ", row), ": the network has ",
                   params.width, " classes, 0 to ", params.width - 1));
}

}  // namespace cairn::kernels
