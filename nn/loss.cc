#include "nn/loss.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"

namespace cairn::nn {
namespace {

using kernels::LossKind;

struct LossOption {
  absl::string_view name;
  void (*set)(LossSpec& loss, double value);
};
constexpr LossOption kFromLogits = {"from_logits",
                                    [](LossSpec& loss, double value) { loss.from_logits = value != 0; }};
constexpr LossOption kLabelSmoothing = {"label_smoothing",
                                        [](LossSpec& loss, double value) { loss.label_smoothing = value; }};
constexpr LossOption kTemperature = {"temperature",
                                     [](LossSpec& loss, double value) { loss.temperature = value; }};
constexpr LossOption kSamplingProbability = {
    "sampling_probability", [](LossSpec& loss, double value) { loss.sampling_probability = value != 0; }};
constexpr LossOption kIgnoreClass = {
    "ignore_class", [](LossSpec& loss, double value) { loss.ignore_class = static_cast<int64_t>(value); }};
constexpr LossOption kDelta = {"delta", [](LossSpec& loss, double value) { loss.delta = value; }};

struct LossRow {
  LossKind kind;
  absl::string_view class_name, function_name;
  std::array<LossOption, 2> options{};
  absl::string_view short_name{};
};

// One row per loss.
constexpr LossRow kLosses[] = {
    {LossKind::kSparseCategoricalCrossentropy,
     "SparseCategoricalCrossentropy",
     "sparse_categorical_crossentropy",
     {kFromLogits, kIgnoreClass}},
    {LossKind::kCategoricalCrossentropy,
     "CategoricalCrossentropy",
     "categorical_crossentropy",
     {kFromLogits, kLabelSmoothing}},
    {LossKind::kBinaryCrossentropy,
     "BinaryCrossentropy",
     "binary_crossentropy",
     {kFromLogits, kLabelSmoothing},
     "bce"},
    {LossKind::kMeanSquaredError, "MeanSquaredError", "mean_squared_error", {}, "mse"},
    {LossKind::kMeanAbsoluteError, "MeanAbsoluteError", "mean_absolute_error", {}, "mae"},
    {LossKind::kHuber, "Huber", "huber", {kDelta}},
    {LossKind::kInBatchSoftmax, "InBatchSoftmax", "in_batch_softmax", {kTemperature, kSamplingProbability}},
};

const LossRow* FindLoss(absl::string_view name) {
  for (const LossRow& row : kLosses) {
    for (absl::string_view known : {row.class_name, row.function_name, row.short_name}) {
      if (!known.empty() && absl::EqualsIgnoreCase(name, known)) return &row;
    }
  }
  return nullptr;
}

absl::Status Refuse(const LossSpec& loss, const Shape& output, absl::string_view fault) {
  return absl::InvalidArgumentError(
      absl::StrCat("loss ", ClassName(loss.kind), ": the model's output ", output.ToString(), " ", fault));
}

Shape WithoutLastAxis(const Shape& shape) {
  return Shape(shape.dims().subspan(0, static_cast<size_t>(std::max(shape.rank() - 1, 0))));
}

// Shapes are compared without axes of extent 1: a mask may be [height,width] or [height,width,1].
Shape WithoutOnes(const Shape& shape) {
  Shape result;
  for (const int64_t extent : shape.dims()) {
    if (extent != 1) result.Append(extent);
  }
  return result;
}

}  // namespace

absl::StatusOr<LossSpec> ParseLoss(const KerasObject& loss) {
  const LossRow* row = FindLoss(loss.class_name);
  if (row == nullptr) {
    const auto class_name = [](std::string* out, const LossRow& known) {
      absl::StrAppend(out, known.class_name);
    };
    return absl::InvalidArgumentError(
        absl::StrCat("loss '", loss.class_name,
                     "' is not supported; supported: ", absl::StrJoin(kLosses, ", ", class_name)));
  }
  LossSpec spec = {.kind = row->kind};
  for (const auto& [name, value] : loss.config) {
    if (name == "axis" && value == -1) continue;
    const auto* option = std::find_if(
        row->options.begin(), row->options.end(),
        [&wanted = name](const LossOption& known) { return known.set != nullptr && known.name == wanted; });
    if (option == row->options.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("loss ", row->class_name, ": ", name, " ", value, " is not supported"));
    }
    constexpr double kLargestLabel = 1 << 24;
    if (option->name == "ignore_class" && !(value == std::floor(value) && std::abs(value) <= kLargestLabel)) {
      return absl::InvalidArgumentError(absl::StrCat("loss ", row->class_name, ": ignore_class ", value,
                                                     ": expected a whole number from -2^24 to 2^24"));
    }
    option->set(spec, value);
  }
  const int64_t width = row->kind != LossKind::kInBatchSoftmax ? 1 : spec.sampling_probability ? 3 : 2;
  const absl::Status valid = Validate(MakeLossParams(spec, {width}, 1));
  if (!valid.ok()) return Annotate(valid, absl::StrCat("loss ", row->class_name));
  return spec;
}

absl::string_view ClassName(LossKind kind) {
  for (const LossRow& row : kLosses) {
    if (row.kind == kind) return row.class_name;
  }
  return "";
}

bool IsClassification(LossKind kind) {
  return kind == LossKind::kSparseCategoricalCrossentropy || kind == LossKind::kCategoricalCrossentropy ||
         kind == LossKind::kBinaryCrossentropy;
}

kernels::LossParams MakeLossParams(const LossSpec& loss, const Shape& output, int64_t batch) {
  const int64_t width = output.rank() == 0 ? 1 : output[output.rank() - 1];
  return {.kind = loss.kind,
          .batch = batch,
          .rows_per_example = width == 0 ? 0 : output.num_elements() / width,
          .width = width,
          .from_logits = loss.from_logits,
          .label_smoothing = loss.label_smoothing,
          .delta = loss.delta,
          .temperature = loss.temperature,
          .sampling_probability = loss.sampling_probability,
          .ignore_class = loss.ignore_class};
}

absl::Status CheckOutput(const LossSpec& loss, const Shape& output) {
  const kernels::LossParams params = MakeLossParams(loss, output, 1);
  if (const absl::Status valid = Validate(params); !valid.ok()) {
    return Annotate(valid, absl::StrCat("loss ", ClassName(loss.kind)));
  }
  const bool over_classes = loss.kind == LossKind::kSparseCategoricalCrossentropy ||
                            loss.kind == LossKind::kCategoricalCrossentropy;
  if (over_classes && params.width == 1) {
    return Refuse(loss, output,
                  "has only one score, not one per class; for two classes use "
                  "BinaryCrossentropy");
  }
  return absl::OkStatus();
}

absl::Status CheckTargets(const LossSpec& loss, const Shape& output, const TargetsInfo& data) {
  const kernels::LossParams params = MakeLossParams(loss, output, 1);
  const int64_t needed = params.targets_per_example();
  const bool sparse = TakesClassIndices(loss.kind);
  const int64_t classes = std::max(data.num_classes, data.position_classes);
  if (sparse && classes == 0) {
    return Refuse(
        loss, output,
        absl::StrCat("needs class indices, the data has ", data.num_targets, " numbers per example"));
  }
  if (data.num_targets != needed) {
    return Refuse(
        loss, output,
        absl::StrCat(
            "needs ", needed, sparse ? " class indices" : " targets", " per example, the data has ",
            data.num_targets,
            !sparse && data.num_classes > 0 ? "; class indices need SparseCategoricalCrossentropy" : ""));
  }
  const Shape needed_shape = sparse ? WithoutLastAxis(output) : output;
  if (data.shape.rank() > 1 && WithoutOnes(data.shape) != WithoutOnes(needed_shape)) {
    return Refuse(loss, output,
                  absl::StrCat("needs targets of the shape ", needed_shape.ToString(), ", the data has ",
                               data.shape.ToString()));
  }
  if (loss.kind == LossKind::kSparseCategoricalCrossentropy && classes > params.width) {
    return Refuse(loss, output,
                  absl::StrCat("has ", params.width, " classes, labels go up to ", classes - 1));
  }
  if (loss.kind == LossKind::kBinaryCrossentropy && data.num_classes > 2) {
    return Refuse(loss, output,
                  absl::StrCat("needs targets of 0 and 1, labels go up to ", data.num_classes - 1));
  }
  return absl::OkStatus();
}

bool IsIgnored(const LossSpec& loss, float target) {
  return loss.ignore_class.has_value() && target == static_cast<float>(*loss.ignore_class);
}

std::string TargetFault(const LossSpec& loss, absl::Span<const float> target) {
  const bool sparse = TakesClassIndices(loss.kind);
  const bool shares =
      loss.kind == LossKind::kBinaryCrossentropy || loss.kind == LossKind::kCategoricalCrossentropy;
  for (const float value : target) {
    if (IsIgnored(loss, value)) continue;
    const bool admitted = std::isfinite(value) && (!shares || (value >= 0 && value <= 1)) &&
                          (!sparse || (value >= 0 && value == std::floor(value)));
    if (admitted) continue;
    return absl::StrCat("is ", value, "; ", ClassName(loss.kind), " admits ",
                        shares   ? "0 to 1"
                        : sparse ? "non-negative integers"
                                 : "finite numbers");
  }
  return "";
}

std::string TargetOddity(const LossSpec& loss, int64_t width, absl::Span<const float> target) {
  if (loss.kind != LossKind::kCategoricalCrossentropy) return "";
  constexpr float kTolerance = 1e-3f;  // for shares that were rounded
  for (; !target.empty(); target.remove_prefix(static_cast<size_t>(width))) {
    const auto row = target.subspan(0, static_cast<size_t>(width));
    const float sum = std::accumulate(row.begin(), row.end(), 0.0f);
    if (std::abs(sum - 1) > kTolerance) {
      return absl::StrCat("adds up to ", sum, "; ", ClassName(loss.kind), " expects shares that add up to 1");
    }
  }
  return "";
}

}  // namespace cairn::nn
