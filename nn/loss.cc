#include "nn/loss.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/ascii.h"
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

constexpr LossOption kGamma = {"gamma", [](LossSpec& loss, double value) { loss.gamma = value; }};
constexpr LossOption kAlpha = {"alpha", [](LossSpec& loss, double value) { loss.alpha = value; }};
constexpr LossOption kBalanced = {"apply_class_balancing",
                                  [](LossSpec& loss, double value) { loss.balanced = value != 0; }};
// The classes keep this number in their config and compute with keras.config.epsilon().
constexpr LossOption kEps = {"eps", [](LossSpec& /*loss*/, double /*value*/) {}};
constexpr LossOption kEpsilon = {"epsilon", [](LossSpec& /*loss*/, double /*value*/) {}};

struct LossRow {
  LossKind kind;
  absl::string_view class_name, function_name;
  std::array<LossOption, 5> options{};
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
    {LossKind::kCategoricalFocalCrossentropy,
     "CategoricalFocalCrossentropy",
     "categorical_focal_crossentropy",
     {kFromLogits, kLabelSmoothing, kAlpha, kGamma}},
    {LossKind::kBinaryFocalCrossentropy,
     "BinaryFocalCrossentropy",
     "binary_focal_crossentropy",
     {kFromLogits, kLabelSmoothing, kAlpha, kGamma, kBalanced}},
    {LossKind::kIou, "IoULoss", "", {}},
    {LossKind::kGiou, "GIoULoss", "", {}},
    {LossKind::kCiou, "CIoULoss", "", {kEps, kEpsilon}},
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

absl::Status TakeNumbers(const KerasObject& loss, const LossRow& row, LossSpec& spec) {
  for (const auto& [name, value] : loss.config) {
    if (name == "axis" && value == -1) continue;
    const auto* option = std::find_if(
        row.options.begin(), row.options.end(),
        [&wanted = name](const LossOption& known) { return known.set != nullptr && known.name == wanted; });
    if (option == row.options.end())
      return absl::InvalidArgumentError(absl::StrCat(name, " ", value, " is not supported"));
    constexpr double kLargestLabel = 1 << 24;
    if (option->name == "ignore_class" && !(value == std::floor(value) && std::abs(value) <= kLargestLabel)) {
      return absl::InvalidArgumentError(
          absl::StrCat("ignore_class ", value, ": expected a whole number from -2^24 to 2^24"));
    }
    option->set(spec, value);
  }
  return absl::OkStatus();
}

absl::Status TakeBoxFormat(absl::string_view format, LossSpec& spec) {
  constexpr std::pair<absl::string_view, kernels::BoxFormat> kFormats[] = {
      {"xyxy", kernels::BoxFormat::kXyxy},
      {"yxyx", kernels::BoxFormat::kYxyx},
      {"xywh", kernels::BoxFormat::kXywh},
      {"center_xywh", kernels::BoxFormat::kCenterXywh},
      {"center_yxhw", kernels::BoxFormat::kCenterYxhw},
  };
  // Fractions of the image's extents are compared as they are.
  std::string name = absl::AsciiStrToLower(format);
  if (absl::StartsWith(name, "rel_")) name.erase(0, 4);
  for (const auto& [known, value] : kFormats) {
    if (name != known) continue;
    spec.box_format = value;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "bounding_box_format: \"", format,
      "\" is not supported; supported: xyxy, yxyx, xywh, center_xywh and center_yxhw, also after rel_"));
}

// keras_cv reduces over `axis` before it applies the mode, so the loss is a function of the whole batch unless that is
// linear.
absl::Status TakeIouMode(absl::string_view mode, bool of_each_box, LossSpec& spec) {
  if (mode == "linear") return absl::OkStatus();
  if (mode != "quadratic" && mode != "log")
    return absl::InvalidArgumentError(
        absl::StrCat("mode: \"", mode, "\": expected linear, quadratic or log"));
  if (!of_each_box) {
    return absl::InvalidArgumentError(absl::StrCat(
        "mode: \"", mode,
        "\" of the mean over the batch is not supported; set axis to \"no_reduction\", for the mean of "
        "the losses of boxes"));
  }
  spec.iou_mode = mode == "log" ? kernels::IouMode::kLog : kernels::IouMode::kQuadratic;
  return absl::OkStatus();
}

absl::Status TakeTexts(const KerasObject& loss, LossSpec& spec) {
  const bool intersection = spec.kind == LossKind::kIou || spec.kind == LossKind::kGiou;
  std::map<std::string, std::string> texts = loss.texts;
  const auto take = [&texts](const char* key) {
    const auto found = texts.extract(key);
    return found.empty() ? std::string() : std::move(found.mapped());
  };
  if (IsOfBoxes(spec.kind)) {
    const std::string format = take("bounding_box_format");
    if (format.empty()) {
      return absl::InvalidArgumentError(
          "bounding_box_format is missing: write it into the config, if the class does not");
    }
    CAIRN_RETURN_IF_ERROR(TakeBoxFormat(format, spec));
  }
  const bool of_each_box = intersection && texts.contains("axis") && texts.at("axis") == "no_reduction";
  if (of_each_box) texts.erase("axis");
  if (spec.kind == LossKind::kIou) {
    const std::string mode = take("mode");
    CAIRN_RETURN_IF_ERROR(TakeIouMode(mode.empty() ? "log" : mode, of_each_box, spec));
  }
  if (texts.empty()) return absl::OkStatus();
  const auto& [key, value] = *texts.begin();
  return absl::InvalidArgumentError(absl::StrCat(key, ": \"", value, "\" is not supported"));
}

absl::Status TakeLists(const KerasObject& loss, LossSpec& spec) {
  for (const auto& [key, values] : loss.lists) {
    if (key != "alpha" || spec.kind != LossKind::kCategoricalFocalCrossentropy || values.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, ": [", absl::StrJoin(values, ","), "] is not supported"));
    }
    for (const double value : values) spec.class_alphas.push_back(static_cast<float>(value));
  }
  return absl::OkStatus();
}

// The width of an output that fits the options.
int64_t NarrowestOutput(const LossSpec& spec) {
  if (IsOfBoxes(spec.kind)) return 4;
  if (!spec.class_alphas.empty()) return static_cast<int64_t>(spec.class_alphas.size());
  return spec.kind != LossKind::kInBatchSoftmax ? 1 : spec.sampling_probability ? 3 : 2;
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
  absl::Status status = TakeNumbers(loss, *row, spec);
  if (status.ok()) status = TakeTexts(loss, spec);
  if (status.ok()) status = TakeLists(loss, spec);
  if (status.ok()) status = Validate(MakeLossParams(spec, {NarrowestOutput(spec)}, 1));
  if (!status.ok()) return Annotate(status, absl::StrCat("loss ", row->class_name));
  return spec;
}

absl::string_view ClassName(LossKind kind) {
  for (const LossRow& row : kLosses) {
    if (row.kind == kind) return row.class_name;
  }
  return "";
}

bool IsClassification(LossKind kind) {
  return kind == LossKind::kSparseCategoricalCrossentropy || TakesShares(kind) || IsBinary(kind);
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
          .gamma = loss.gamma,
          .alpha = loss.alpha,
          .class_alphas = loss.class_alphas,
          .balanced = loss.balanced,
          .box_format = loss.box_format,
          .iou_mode = loss.iou_mode,
          .ignore_class = loss.ignore_class};
}

absl::Status CheckOutput(const LossSpec& loss, const Shape& output) {
  const kernels::LossParams params = MakeLossParams(loss, output, 1);
  if (const absl::Status valid = Validate(params); !valid.ok()) {
    return Annotate(valid, absl::StrCat("loss ", ClassName(loss.kind)));
  }
  const bool over_classes = loss.kind == LossKind::kSparseCategoricalCrossentropy || TakesShares(loss.kind);
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
  if (IsBinary(loss.kind) && data.num_classes > 2) {
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
  const bool shares = IsBinary(loss.kind) || TakesShares(loss.kind);
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
  if (!TakesShares(loss.kind)) return "";
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
