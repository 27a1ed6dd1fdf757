#include "nn/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"

namespace cairn::nn {
namespace {

using kernels::LossKind;

// A numeric option. Values outside its range are not supported.
struct MetricOption {
  absl::string_view name;
  double smallest, largest;
  bool whole;
  void (*set)(MetricParams& params, double value);
};
constexpr void KeepDefault(MetricParams&, double) {}

using Limits = std::numeric_limits<double>;
constexpr MetricOption kThreshold = {"threshold", Limits::lowest(), Limits::max(), false,
                                     [](MetricParams& params, double value) { params.threshold = value; }};
constexpr MetricOption kThresholds = {"thresholds", 0, 1, false, kThreshold.set};
constexpr MetricOption kK = {"k", 1, 1 << 24, true, [](MetricParams& params, double value) {
                               params.k = static_cast<int64_t>(value);
                             }};
constexpr MetricOption kListSize = {"list_size", 1, 1 << 24, true, [](MetricParams& params, double value) {
                                      params.list_size = static_cast<int64_t>(value);
                                    }};
constexpr MetricOption kNumThresholds = {
    "num_thresholds", 2, 1 << 20, true,
    [](MetricParams& params, double value) { params.num_thresholds = static_cast<int64_t>(value); }};
constexpr MetricOption kMetricFromLogits = {
    "from_logits", 0, 1, true, [](MetricParams& params, double value) { params.from_logits = value != 0; }};
constexpr MetricOption kMetricSmoothing = {
    "label_smoothing", 0, 1, false,
    [](MetricParams& params, double value) { params.label_smoothing = value; }};
constexpr MetricOption kMaskToken = {
    "mask_token_id", 0, 1 << 24, true,
    [](MetricParams& params, double value) { params.mask_token_id = static_cast<int64_t>(value); }};
constexpr MetricOption kNotMultiLabel = {"multi_label", 0, 0, true, KeepDefault};
constexpr MetricOption kNotFromSortedIds = {"from_sorted_ids", 0, 0, true, KeepDefault};

// Options of intersections over unions. Labels are class indices or, of one-hot metrics, shares; outputs are scores.
constexpr MetricOption kNumClasses = {
    "num_classes", 1, 1 << 24, true,
    [](MetricParams& params, double value) { params.num_classes = static_cast<int64_t>(value); }};
constexpr MetricOption kIgnoredClass = {
    "ignore_class", -1, 1 << 24, true,
    [](MetricParams& params, double value) { params.ignored_class = static_cast<int64_t>(value); }};
constexpr MetricOption kLastAxis = {"axis", -1, -1, true, KeepDefault};
constexpr MetricOption kSparseLabels = {"sparse_y_true", 1, 1, true, KeepDefault};
constexpr MetricOption kScores = {"sparse_y_pred", 0, 0, true, KeepDefault};

// Sets an option that is a string. Returns false if the option or its value is not supported.
using TextSetter = bool (*)(absl::string_view option, absl::string_view value, MetricParams& params);

bool SetAucText(absl::string_view option, absl::string_view value, MetricParams& params) {
  if (option == "curve") {
    params.precision_recall = absl::EqualsIgnoreCase(value, "PR");
    return params.precision_recall || absl::EqualsIgnoreCase(value, "ROC");
  }
  return option == "summation_method" && absl::EqualsIgnoreCase(value, "interpolation");
}

// Keras adds up integers.
bool SetIouText(absl::string_view option, absl::string_view value, MetricParams& /*params*/) {
  return option == "dtype" && absl::StartsWith(value, "int");
}

enum class Targets { kClassIndices, kOnePerOutput, kItemsOfBatch, kAny };
using enum Targets;

absl::string_view Describe(Targets targets) {
  return targets == kClassIndices   ? "class indices"
         : targets == kItemsOfBatch ? "items of the batch"
                                    : "a target for each output";
}

struct MetricRow {
  absl::string_view class_name, name;
  Targets targets;
  MetricMaker make;
  std::array<MetricOption, 5> options{};
  TextSetter set_text = nullptr;
  absl::string_view short_name{};
  Better better = Better::kHigher;
};

// One row per metric.
constexpr MetricRow kMetrics[] = {
    {"BinaryAccuracy", "binary_accuracy", kOnePerOutput, MakeBinaryAccuracy, {kThreshold}},
    {"CategoricalAccuracy", "categorical_accuracy", kOnePerOutput, MakeCategoricalAccuracy},
    {"SparseCategoricalAccuracy", "sparse_categorical_accuracy", kClassIndices,
     MakeSparseCategoricalAccuracy},
    {"TopKCategoricalAccuracy",
     "top_k_categorical_accuracy",
     kOnePerOutput,
     MakeTopKCategoricalAccuracy,
     {kK}},
    {"SparseTopKCategoricalAccuracy",
     "sparse_top_k_categorical_accuracy",
     kClassIndices,
     MakeSparseTopKCategoricalAccuracy,
     {kK, kNotFromSortedIds}},
    {"AUC", "auc", kOnePerOutput, MakeAuc, {kNumThresholds, kMetricFromLogits, kNotMultiLabel}, SetAucText},
    {"BinaryCrossentropy",
     "binary_crossentropy",
     kOnePerOutput,
     MakeBinaryCrossentropy,
     {kMetricFromLogits, kMetricSmoothing},
     nullptr,
     "bce",
     Better::kLower},
    {"HitRate", "hit_rate", kAny, MakeHitRate, {kK, kListSize}},
    {"NDCG", "ndcg", kAny, MakeNdcg, {kK, kListSize}},
    {"MeanIoU",
     "mean_io_u",
     kClassIndices,
     MakeIou,
     {kNumClasses, kIgnoredClass, kLastAxis, kSparseLabels, kScores},
     SetIouText},
    {"IoU",
     "io_u",
     kClassIndices,
     MakeIou,
     {kNumClasses, kIgnoredClass, kLastAxis, kSparseLabels, kScores},
     SetIouText},
    {"OneHotMeanIoU",
     "one_hot_mean_io_u",
     kOnePerOutput,
     MakeIou,
     {kNumClasses, kIgnoredClass, kLastAxis, kScores},
     SetIouText},
    {"OneHotIoU",
     "one_hot_io_u",
     kOnePerOutput,
     MakeIou,
     {kNumClasses, kIgnoredClass, kLastAxis, kScores},
     SetIouText},
    {"BinaryIoU", "binary_io_u", kOnePerOutput, MakeBinaryIou, {kThreshold}, SetIouText},
    {"Perplexity",
     "perplexity",
     kClassIndices,
     MakePerplexity,
     {kMetricFromLogits, kMaskToken},
     nullptr,
     {},
     Better::kLower},
    {"Precision", "precision", kOnePerOutput, MakePrecision, {kThresholds}},
    {"Recall", "recall", kOnePerOutput, MakeRecall, {kThresholds}},
    {"TruePositives", "true_positives", kOnePerOutput, MakeTruePositives, {kThresholds}},
    {"TrueNegatives", "true_negatives", kOnePerOutput, MakeTrueNegatives, {kThresholds}},
    {"FalsePositives",
     "false_positives",
     kOnePerOutput,
     MakeFalsePositives,
     {kThresholds},
     nullptr,
     {},
     Better::kLower},
    {"FalseNegatives",
     "false_negatives",
     kOnePerOutput,
     MakeFalseNegatives,
     {kThresholds},
     nullptr,
     {},
     Better::kLower},
    {"MeanSquaredError",
     "mean_squared_error",
     kOnePerOutput,
     MakeMeanSquaredError,
     {},
     nullptr,
     "mse",
     Better::kLower},
    {"MeanAbsoluteError",
     "mean_absolute_error",
     kOnePerOutput,
     MakeMeanAbsoluteError,
     {},
     nullptr,
     "mae",
     Better::kLower},
    {"RootMeanSquaredError",
     "root_mean_squared_error",
     kOnePerOutput,
     MakeRootMeanSquaredError,
     {},
     nullptr,
     {},
     Better::kLower},
};

const MetricRow* FindMetric(absl::string_view name) {
  for (const MetricRow& row : kMetrics) {
    for (absl::string_view known : {row.class_name, row.name, row.short_name}) {
      if (!known.empty() && absl::EqualsIgnoreCase(name, known)) return &row;
    }
  }
  return nullptr;
}

// The meaning of "accuracy", as in keras/src/trainers/compile_utils.py, get_metric().
absl::string_view ResolveAccuracy(const LossSpec& loss, int64_t width) {
  if (width == 1) return "BinaryAccuracy";
  return loss.kind == LossKind::kSparseCategoricalCrossentropy ? "SparseCategoricalAccuracy"
                                                               : "CategoricalAccuracy";
}

// Splits "NDCG@10" into a metric with the option k and 10. Other names stay as they are.
void TakeCutoff(KerasObject& metric) {
  const size_t at = metric.class_name.find('@');
  double k = 0;
  if (at == std::string::npos || !absl::SimpleAtod(metric.class_name.substr(at + 1), &k)) return;
  metric.class_name.erase(at);
  metric.config["k"] = k;
}

Targets TargetsOf(const LossSpec& loss) {
  return loss.kind == LossKind::kInBatchSoftmax                  ? kItemsOfBatch
         : loss.kind == LossKind::kSparseCategoricalCrossentropy ? kClassIndices
                                                                 : kOnePerOutput;
}

// The parameters of a metric of lists, before its options.
MetricParams RankingParams(const MetricRow& row, Targets targets, MetricParams params) {
  params.k = row.make == MakeNdcg ? 0 : 10;
  params.candidates = targets == kItemsOfBatch   ? Candidates::kBatch
                      : targets == kClassIndices ? Candidates::kClasses
                                                 : Candidates::kOutputs;
  return params;
}

// The fault of the list_size of a metric of lists; empty: none.
std::string ListSizeFault(const MetricParams& params) {
  const bool needed = params.candidates == Candidates::kOutputs && params.width == 1;
  if (needed == (params.list_size > 0)) return "";
  return needed ? "needs list_size, the number of adjacent examples that form a list, since the model has "
                  "one output"
                : "has a list_size, which only a model with one output takes";
}

// Sets the classes whose mean is the result, of a metric for which they are an option.
absl::Status SetTargetClasses(const KerasObject& metric, const MetricRow& row, MetricParams& params) {
  constexpr int64_t kMaxCounted = 8192;  // the intersections of so many classes take 512 MiB
  const int64_t classes = row.make == MakeBinaryIou ? 2 : params.width;
  if (row.make == MakeIou && classes > kMaxCounted) {
    return absl::InvalidArgumentError(
        absl::StrCat("the outputs have ", classes, " classes, more than ", kMaxCounted));
  }
  if (params.num_classes != 0 && params.num_classes != classes) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_classes ", params.num_classes, ": the outputs have ", classes, " classes"));
  }
  const bool some = absl::EndsWith(row.class_name, "IoU") && !absl::StrContains(row.class_name, "Mean");
  for (const auto& [name, values] : metric.lists) {
    for (const double value : values) {
      if (!some || name != "target_class_ids" || value != std::floor(value) || !(value >= 0) ||
          value >= static_cast<double>(classes)) {
        return absl::InvalidArgumentError(
            absl::StrCat(name, " [", absl::StrJoin(values, ","), "] is not supported"));
      }
      params.target_classes.push_back(static_cast<int64_t>(value));
    }
  }
  return absl::OkStatus();
}

absl::Status SetOptions(const KerasObject& metric, const MetricRow& row, MetricParams& params) {
  const auto refuse = [](absl::string_view option, const auto& value) {
    return absl::InvalidArgumentError(absl::StrCat(option, " ", value, " is not supported"));
  };
  for (const auto& [name, value] : metric.config) {
    const auto* option = std::find_if(
        row.options.begin(), row.options.end(),
        [&wanted = name](const MetricOption& known) { return known.set != nullptr && known.name == wanted; });
    if (option == row.options.end() || !(value >= option->smallest && value <= option->largest) ||
        (option->whole && value != std::floor(value))) {
      return refuse(name, value);
    }
    option->set(params, value);
  }
  for (const auto& [name, value] : metric.texts) {
    if (name == "name") continue;
    if (row.set_text == nullptr || !row.set_text(name, value, params)) return refuse(name, value);
  }
  return SetTargetClasses(metric, row, params);
}

// Makes `name` unique, as keras/src/trainers/compile_utils.py, CompileMetrics.result() does. `uses` counts
// how often each name has occurred.
std::string UniqueName(std::string name, bool weighted, std::map<std::string, int>& uses) {
  if (weighted && uses.count(name) > 0) name = absl::StrCat("weighted_", name);
  const int earlier = uses[name]++;
  return earlier == 0 ? name : absl::StrCat(name, "_", earlier);
}

absl::StatusOr<MetricSpec> ParseMetric(const CompiledMetric& compiled, const LossSpec& loss,
                                       const MetricParams& shape) {
  KerasObject metric = compiled.metric;
  const std::string what = absl::StrCat("metric '", metric.class_name, "'");
  TakeCutoff(metric);
  const bool resolve = metric.class_name == "accuracy" || metric.class_name == "acc";
  const MetricRow* row = FindMetric(resolve ? ResolveAccuracy(loss, shape.width) : metric.class_name);
  if (row == nullptr) {
    const auto class_name = [](std::string* out, const MetricRow& known) {
      absl::StrAppend(out, known.class_name);
    };
    return absl::InvalidArgumentError(absl::StrCat(what, " is not supported; supported: accuracy, ",
                                                   absl::StrJoin(kMetrics, ", ", class_name)));
  }
  const Targets targets = TargetsOf(loss);
  if (row->targets != kAny && row->targets != targets) {
    return absl::InvalidArgumentError(absl::StrCat(what, " needs ", Describe(row->targets), ", the loss ",
                                                   ClassName(loss.kind), " has ", Describe(targets)));
  }
  MetricSpec spec = {
      .weighted = compiled.weighted, .make = row->make, .params = shape, .better = row->better};
  if (row->make == MakePerplexity) spec.params.from_logits = loss.from_logits;  // unless the option is given
  if (row->targets == kAny) spec.params = RankingParams(*row, targets, shape);
  CAIRN_RETURN_IF_ERROR(Annotate(SetOptions(metric, *row, spec.params), what));
  if (row->targets == kAny && !ListSizeFault(spec.params).empty()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " ", ListSizeFault(spec.params)));
  }
  const auto name = metric.texts.find("name");
  spec.name = name == metric.texts.end() ? std::string(row->name) : name->second;
  return spec;
}

// The columns of `values` [examples, ...], copied to `memory`.
absl::Span<const float> ColumnsOf(absl::Span<const float> values, int64_t examples, Columns columns,
                                  std::vector<float>& memory) {
  if (examples == 0) return {};
  const int64_t stride = static_cast<int64_t>(values.size()) / examples;
  memory.resize(static_cast<size_t>(examples * columns.count));
  for (int64_t i = 0; i < examples; ++i)
    std::copy_n(values.begin() + i * stride + columns.first, columns.count,
                memory.begin() + i * columns.count);
  return memory;
}

MetricPlaces PlacesOf(const Objective& objective, size_t loss, const Model& model) {
  const ModelOutput& output = model.outputs()[objective.losses()[loss].output];
  const kernels::LossParams params = objective.ParamsOf(loss, model, 1);
  MetricPlaces places = {.outputs_per_example = model.output_shape().num_elements()};
  if (model.joining_nodes() > 0) {
    places.outputs = {.first = output.begin, .count = params.outputs_per_example()};
    places.targets = {.first = objective.FirstTarget(loss, model), .count = params.targets_per_example()};
  }
  if (objective.weighs_each_loss())
    places.weights = {.first = objective.FirstWeight(loss, model), .count = params.weights_per_example()};
  if (!params.leaves_out_rows()) return places;
  LeftOutRows& left_out = places.left_out.emplace();
  left_out.rows_per_example = params.rows_per_example;
  if (params.masked) left_out.first_mask = output.begin + params.outputs_per_example();
  if (params.ignore_class.has_value()) left_out.label = static_cast<float>(*params.ignore_class);
  return places;
}

// The places of a batch with these outputs.
const MetricPlaces& PlacesFor(const MetricSpec& spec, const BatchView& batch, const BatchResult& result) {
  if (batch.examples == 0) return spec.places;
  const auto width = static_cast<int64_t>(result.outputs.size()) / batch.examples;
  const auto found = absl::c_find_if(
      spec.shorter, [width](const MetricPlaces& places) { return places.outputs_per_example == width; });
  return found == spec.shorter.end() ? spec.places : *found;
}

}  // namespace

absl::StatusOr<std::vector<MetricSpec>> ParseMetrics(absl::Span<const CompiledMetric> compiled,
                                                     const LossSpec& loss, const Shape& output) {
  const std::vector<CompiledMetric> accuracy = {{.metric = MetricOfName("accuracy")}};
  if (compiled.empty() && IsClassification(loss.kind)) compiled = accuracy;
  const kernels::LossParams shape = MakeLossParams(loss, output, 1);
  std::vector<MetricSpec> specs;
  std::map<std::string, int> uses = {{"loss", 1}};
  for (const CompiledMetric& entry : compiled) {
    CAIRN_ASSIGN_OR_RETURN(
        MetricSpec spec,
        ParseMetric(entry, loss, {.rows_per_example = shape.rows_per_example, .width = shape.width}));
    spec.name = UniqueName(std::move(spec.name), entry.weighted, uses);
    specs.push_back(std::move(spec));
  }
  return specs;
}

absl::StatusOr<std::vector<MetricSpec>> MetricsOf(absl::Span<const CompiledMetric> compiled,
                                                  const Objective& objective, const Model& model) {
  // [entry of `compiled`] The output that it is for; none: all outputs.
  std::vector<std::optional<size_t>> output_of(compiled.size());
  for (size_t i = 0; i < compiled.size(); ++i) {
    if (!objective.several_outputs() || compiled[i].output.all()) continue;
    CAIRN_ASSIGN_OR_RETURN(output_of[i], IndexOfOutput(compiled[i].output, model, "metrics"));
    const auto is_for = [&](const OutputLoss& part) { return part.output == *output_of[i]; };
    if (absl::c_any_of(objective.losses(), is_for)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("metrics: output '", model.outputs()[*output_of[i]].name,
                     "' has no loss, and so no targets that a metric could compare"));
  }
  std::vector<MetricSpec> all;
  for (size_t i = 0; i < objective.losses().size(); ++i) {
    const OutputLoss& part = objective.losses()[i];
    const ModelOutput& output = model.outputs()[part.output];
    std::vector<CompiledMetric> of_output;
    for (size_t entry = 0; entry < compiled.size(); ++entry) {
      if (output_of[entry].value_or(part.output) == part.output) of_output.push_back(compiled[entry]);
    }
    // Without any metrics of the file, each classification has the accuracy.
    const bool none = of_output.empty() && !compiled.empty();
    auto specs = none ? std::vector<MetricSpec>() : ParseMetrics(of_output, part.loss, output.shape);
    if (!specs.ok() && objective.several_outputs())
      return Annotate(specs.status(), absl::StrCat("output '", output.name, "'"));
    CAIRN_RETURN_IF_ERROR(specs.status());
    if (objective.losses().size() > 1)
      all.push_back({.name = absl::StrCat(output.name, "_loss"), .better = Better::kLower, .loss = i});
    const kernels::LossParams params = objective.ParamsOf(i, model, 1);
    for (MetricSpec& spec : *specs) {
      if (objective.several_outputs()) spec.name = absl::StrCat(output.name, "_", spec.name);
      // Each row is then an example of the metric: the sums over all of them are those that Keras divides.
      if (params.leaves_out_rows() || (params.row_weights && spec.weighted)) spec.params.rows_per_example = 1;
      spec.places = PlacesOf(objective, i, model);
      for (const Model& shorter : model.shorter()) spec.shorter.push_back(PlacesOf(objective, i, shorter));
      all.push_back(std::move(spec));
    }
  }
  return all;
}

MetricSet::Arguments MetricSet::KeepRows(const LeftOutRows& left_out, int64_t examples,
                                         absl::Span<const float> all_outputs, const Arguments& from) {
  const int64_t rows = examples * left_out.rows_per_example;
  if (rows == 0) return from;
  const int64_t width = static_cast<int64_t>(from.outputs.size()) / rows;
  const int64_t targets_of_row = static_cast<int64_t>(from.targets.size()) / rows;
  const int64_t stride = static_cast<int64_t>(all_outputs.size()) / examples;
  const bool row_weights = static_cast<int64_t>(from.weights.size()) == rows;
  kept_outputs_.clear();
  kept_targets_.clear();
  kept_weights_.clear();
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t example = i / left_out.rows_per_example, row = i % left_out.rows_per_example;
    const auto mask = static_cast<size_t>(example * stride + left_out.first_mask.value_or(0) + row);
    if (left_out.first_mask.has_value() && all_outputs[mask] == 0) continue;
    const auto target = from.targets.begin() + i * targets_of_row;
    if (left_out.label.has_value() && *target == *left_out.label) continue;
    const auto output = from.outputs.begin() + i * width;
    kept_outputs_.insert(kept_outputs_.end(), output, output + width);
    kept_targets_.insert(kept_targets_.end(), target, target + targets_of_row);
    if (!from.weights.empty())
      kept_weights_.push_back(from.weights[static_cast<size_t>(row_weights ? i : example)]);
  }
  return {kept_outputs_, kept_targets_, kept_weights_};
}

MetricSet::MetricSet(absl::Span<const MetricSpec> specs) {
  for (const MetricSpec& spec : specs) {
    entries_.push_back({spec, spec.make == nullptr ? nullptr : spec.make(spec.params)});
  }
}

MetricSet::Arguments MetricSet::ArgumentsOf(const MetricPlaces& places, const BatchView& batch,
                                            absl::Span<const float> outputs) {
  Arguments arguments = {outputs, batch.targets, batch.weights};
  if (places.outputs.count > 0) {
    arguments.outputs = ColumnsOf(outputs, batch.examples, places.outputs, outputs_);
    arguments.targets = ColumnsOf(batch.targets, batch.examples, places.targets, targets_);
  }
  if (places.weights.count > 0 && !batch.weights.empty())
    arguments.weights = ColumnsOf(batch.weights, batch.examples, places.weights, weights_);
  if (!places.left_out.has_value()) return arguments;
  return KeepRows(*places.left_out, batch.examples, outputs, arguments);
}

void MetricSet::Update(const BatchView& batch, const BatchResult& result) {
  loss_ += result.sums;
  Arguments arguments;
  const MetricPlaces* made_for = nullptr;  // where these arguments are
  for (Entry& entry : entries_) {
    if (entry.metric == nullptr) continue;
    const MetricSpec& spec = entry.spec;
    const MetricPlaces& places = PlacesFor(spec, batch, result);
    if (made_for == nullptr || *made_for != places) arguments = ArgumentsOf(places, batch, result.outputs);
    made_for = &places;
    entry.metric->Update(arguments.outputs, arguments.targets,
                         spec.weighted ? arguments.weights : absl::Span<const float>());
  }
}

MetricValues MetricSet::Values() const {
  const double loss = loss_.examples == 0 ? std::nan("") : loss_.loss / static_cast<double>(loss_.examples);
  MetricValues values = {{"loss", loss}};
  for (const Entry& entry : entries_) {
    if (entry.metric != nullptr) {
      values.emplace_back(entry.spec.name, entry.metric->Result());
      continue;
    }
    const bool known = entry.spec.loss < loss_.of_outputs.size() && loss_.examples > 0;
    values.emplace_back(
        entry.spec.name,
        known ? loss_.of_outputs[entry.spec.loss] / static_cast<double>(loss_.examples) : std::nan(""));
  }
  std::sort(values.begin(), values.end());
  return values;
}

void MetricSet::Reset() {
  loss_ = {};
  for (Entry& entry : entries_) {
    if (entry.metric != nullptr) entry.metric->Reset();
  }
}

}  // namespace cairn::nn
