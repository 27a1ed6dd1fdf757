#include "worker/inputs/prediction.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "common/memory/aligned_buffer.h"
#include "data/example_shape.h"
#include "data/input_rows.h"
#include "kernels/cpu/device.h"
#include "kernels/formulas.h"
#include "nn/replica/replica.h"
#include "worker/embedding/table_replica.h"
#include "worker/inputs/data_check.h"
#include "worker/inputs/inputs.h"

namespace cairn::worker {
namespace {

constexpr int64_t kBatch = 256;

const nn::Model& NetworkOf(const PredictionRequest& request) {
  return request.tables != nullptr ? request.tables->plan.model.model : request.model;
}

absl::Status CheckRequest(const PredictionRequest& request, const nn::Objective& objective) {
  CAIRN_RETURN_IF_ERROR(CheckExampleShape(request.model, request.inputs.row_shape(), "inputs"));
  const std::vector<int64_t> ragged = request.inputs.ragged_parts();
  for (size_t i = 0; i < request.model.inputs().size(); ++i) {
    if (!request.model.inputs()[i].ragged || (i < ragged.size() && ragged[i] >= 0)) continue;
    return data::NotRagged("inputs", request.model.inputs()[i].name);
  }
  const std::vector<std::string> dynamic_layers =
      request.tables != nullptr ? request.tables->plan.dynamic_layers() : std::vector<std::string>();
  CAIRN_RETURN_IF_ERROR(CheckIndices(
      {request.model, request.inputs.size(), "inputs", InputSpecsOf(request.model, request.inputs),
       dynamic_layers},
      [&](int64_t i, absl::Span<const MutableTensorView> inputs) { request.inputs.Read(i, inputs); }));
  CAIRN_RETURN_IF_ERROR(request.inputs.status());
  CAIRN_RETURN_IF_ERROR(objective.CheckOutputs(request.model));
  if (request.targets == nullptr) return absl::OkStatus();
  if (request.targets->size() != request.inputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat(request.targets->size(), " labels do not match the ",
                                                   request.inputs.size(), " examples"));
  }
  return CheckLabels(request.model, objective, *request.targets, "labels");
}

}  // namespace

absl::StatusOr<Prediction> Predict(const PredictionRequest& request) {
  const nn::Model& model = request.model;
  // The replica needs an objective even without targets.
  const nn::Objective objective =
      request.targets != nullptr ? request.objective.value() : nn::Objective::ForAnyOutputs(model);
  CAIRN_RETURN_IF_ERROR(CheckRequest(request, objective));
  CAIRN_ASSIGN_OR_RETURN(const auto device, kernels::CreateCpuDevice(0, request.threads));
  CAIRN_ASSIGN_OR_RETURN(const auto network, nn::Replica::Create(NetworkOf(request), objective, *device));
  StoredRows rows(request.tables != nullptr ? request.tables->tables : absl::Span<const TrainedTable>());
  std::optional<TableReplica> with_tables;
  if (request.tables != nullptr)
    with_tables.emplace(request.tables->plan, *network, rows, TableReplica::Options{});
  nn::Replica& replica = with_tables.has_value() ? *with_tables : *network;

  const int64_t targets_each =
      request.targets != nullptr ? request.targets->per_example : objective.TargetsPerExample(model);
  data::InputRows inputs(InputSpecsOf(model, request.inputs), kBatch);
  AlignedBuffer targets(kBatch * targets_each);
  std::fill(targets.span().begin(), targets.span().end(), 0.0f);
  nn::MetricSet metrics(request.metrics);
  Prediction prediction;
  prediction.examples =
      request.limit > 0 ? std::min(request.limit, request.inputs.size()) : request.inputs.size();
  for (int64_t first = 0; first < prediction.examples; first += kBatch) {
    const int64_t count = std::min(kBatch, prediction.examples - first);
    for (int64_t i = 0; i < count; ++i) request.inputs.Read(first + i, inputs.Row(i));
    CAIRN_RETURN_IF_ERROR(request.inputs.status());
    if (request.targets != nullptr) {
      std::copy_n(request.targets->values.begin() + first * targets_each, count * targets_each,
                  targets.span().begin());
    }
    const nn::BatchView batch = {
        .examples = count,
        .inputs = inputs.First(count),
        .targets = targets.span().subspan(0, static_cast<size_t>(count * targets_each))};
    CAIRN_ASSIGN_OR_RETURN(const nn::BatchResult result, replica.Evaluate(request.parameters, batch));
    if (request.targets != nullptr) metrics.Update(batch, result);
    prediction.outputs.insert(prediction.outputs.end(), result.outputs.begin(), result.outputs.end());
  }
  if (request.targets != nullptr) prediction.metrics = metrics.Values();
  return prediction;
}

std::string NonFiniteOutputs(const Prediction& prediction, const data::RowSource& inputs) {
  constexpr size_t kMaxShown = 10;
  const auto is_finite = [](float value) { return std::isfinite(value); };
  std::vector<std::string> shown;
  size_t found = 0;
  std::vector<float> row(static_cast<size_t>(inputs.row_shape().num_elements()));
  const size_t width =
      prediction.outputs.size() / static_cast<size_t>(std::max<int64_t>(prediction.examples, 1));
  for (int64_t i = 0; i < prediction.examples; ++i) {
    const auto begin = prediction.outputs.begin() + i * static_cast<int64_t>(width);
    if (std::all_of(begin, begin + static_cast<int64_t>(width), is_finite)) continue;
    if (++found > kMaxShown) continue;
    inputs.Read(i, {MutableTensorView::OfFloats(inputs.row_shape(), absl::MakeSpan(row))});
    const auto bad = std::find_if_not(row.begin(), row.end(), is_finite);
    shown.push_back(bad == row.end() ? absl::StrCat(i)
                                     : absl::StrCat(i, " (input ", bad - row.begin(), " is ", *bad, ")"));
  }
  if (found == 0) return "";
  return absl::StrCat("the outputs of ", found, " of ", prediction.examples,
                      " examples are not finite numbers: ", absl::StrJoin(shown, ", "),
                      found > kMaxShown ? ", ..." : "");
}

void ToProbabilities(const nn::LossSpec& loss, int64_t width, absl::Span<float> outputs) {
  if (!loss.from_logits || !nn::IsClassification(loss.kind)) return;
  if (kernels::IsBinary(loss.kind)) {
    for (float& output : outputs) output = kernels::Sigmoid(output);
    return;
  }
  const auto row_floats = static_cast<size_t>(width);
  for (size_t row = 0; row + row_floats <= outputs.size(); row += row_floats) {
    const absl::Span<float> scores = outputs.subspan(row, row_floats);
    const float largest = *std::max_element(scores.begin(), scores.end());
    float sum = 0;
    for (float& score : scores) sum += score = std::exp(score - largest);
    for (float& score : scores) score /= sum;
  }
}

}  // namespace cairn::worker
