#include "nn/objective.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"

namespace cairn::nn {
namespace {

std::string NamesOfOutputs(const Model& model) {
  const auto name = [](std::string* out, const ModelOutput& output) {
    absl::StrAppend(out, "'", output.name, "'");
  };
  return absl::StrJoin(model.outputs(), ", ", name);
}

// Annotates the faults of a model with several outputs.
absl::Status OfOutput(const absl::Status& status, const Model& model, size_t output) {
  if (status.ok() || model.outputs().size() == 1) return status;
  return Annotate(status, absl::StrCat("output '", model.outputs()[output].name, "'"));
}

}  // namespace

LossTotals& LossTotals::operator+=(const LossTotals& other) {
  loss += other.loss;
  examples += other.examples;
  of_outputs.resize(std::max(of_outputs.size(), other.of_outputs.size()));
  for (size_t i = 0; i < other.of_outputs.size(); ++i) of_outputs[i] += other.of_outputs[i];
  return *this;
}

absl::StatusOr<Objective> Objective::Create(const Model& model,
                                            absl::Span<const std::optional<LossSpec>> losses,
                                            absl::Span<const double> weights) {
  Objective objective({}, model.outputs().size() > 1);
  for (size_t i = 0; i < losses.size(); ++i) {
    if (!losses[i].has_value()) continue;
    if (!std::isfinite(weights[i]) || weights[i] < 0) {
      return OfOutput(absl::InvalidArgumentError(
                          absl::StrCat("loss_weights: ", weights[i], " is not a number of at least 0")),
                      model, i);
    }
    objective.losses_.push_back({.output = i, .loss = *losses[i], .weight = weights[i]});
  }
  if (objective.losses_.empty()) return absl::InvalidArgumentError("loss: no output has a loss");
  CAIRN_RETURN_IF_ERROR(objective.CheckOutputs(model));
  return objective;
}

Objective Objective::ForAnyOutputs(const Model& model) {
  const std::vector<std::optional<LossSpec>> losses(model.outputs().size(),
                                                    LossSpec{.kind = kernels::LossKind::kMeanSquaredError});
  return Create(model, losses, std::vector<double>(losses.size(), 1.0)).value();
}

kernels::LossParams Objective::ParamsOf(size_t index, const Model& model, int64_t batch) const {
  const OutputLoss& part = losses_[index];
  kernels::LossParams params = MakeLossParams(part.loss, model.outputs()[part.output].shape, batch);
  params.weight = part.weight;
  params.row_weights = weighted_rows_[weighs_each_loss() ? index : 0];
  params.masked = model.outputs()[part.output].masked;
  if (model.joining_nodes() > 0) {
    params.output_stride = model.output_shape().num_elements();
    params.target_stride = TargetsPerExample(model);
  }
  if (weighs_each_loss()) params.weight_stride = WeightsPerExample(model);
  return params;
}

absl::Status Objective::SetWeights(const Model& model, WeightedRows rows) {
  CAIRN_CHECK(rows.size() == 1 || rows.size() == losses_.size());
  weighted_rows_ = std::move(rows);
  return CheckWeights(model);
}

absl::Status Objective::CheckWeights(const Model& model) const {
  if (weighs_each_loss() || !weighted_rows_[0]) return absl::OkStatus();
  const auto rows_of = [&](size_t index) { return RowsOf(index, model); };
  for (size_t i = 1; i < losses_.size(); ++i) {
    if (rows_of(i) == rows_of(0)) continue;
    return absl::InvalidArgumentError(absl::StrCat("output '", model.outputs()[losses_[0].output].name,
                                                   "' has ", rows_of(0), " rows, output '",
                                                   model.outputs()[losses_[i].output].name, "' ", rows_of(i),
                                                   ": one array cannot weigh the rows of both"));
  }
  return absl::OkStatus();
}

int64_t Objective::RowsOf(size_t index, const Model& model) const {
  const OutputLoss& part = losses_[index];
  return MakeLossParams(part.loss, model.outputs()[part.output].shape, 1).rows_per_example;
}

int64_t Objective::FirstWeight(size_t index, const Model& model) const {
  if (!weighs_each_loss()) return 0;
  int64_t first = 0;
  for (size_t i = 0; i < index; ++i) first += weighted_rows_[i] ? RowsOf(i, model) : 1;
  return first;
}

int64_t Objective::WeightsPerExample(const Model& model) const {
  if (weighs_each_loss()) return FirstWeight(losses_.size(), model);
  return weighted_rows_[0] ? RowsOf(0, model) : 1;
}

int64_t Objective::FirstTarget(size_t index, const Model& model) const {
  int64_t first = 0;
  for (size_t i = 0; i < index; ++i) {
    const OutputLoss& part = losses_[i];
    first += MakeLossParams(part.loss, model.outputs()[part.output].shape, 1).targets_per_example();
  }
  return first;
}

absl::Status Objective::CheckOutputs(const Model& model) const {
  if (several_outputs_ != (model.outputs().size() > 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("one loss does not fit a model with the outputs ", NamesOfOutputs(model)));
  }
  for (size_t i = 0; i < losses_.size(); ++i) {
    const OutputLoss& part = losses_[i];
    absl::Status status = CheckOutput(part.loss, model.outputs()[part.output].shape);
    if (status.ok()) status = Annotate(Validate(ParamsOf(i, model, 1)), ClassName(part.loss.kind));
    CAIRN_RETURN_IF_ERROR(OfOutput(status, model, part.output));
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> IndexOfOutput(const OutputKey& key, const Model& model, absl::string_view what) {
  for (size_t i = 0; i < model.outputs().size(); ++i) {
    if (key.name.empty() ? key.position == static_cast<int>(i) : key.name == model.outputs()[i].name)
      return i;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      what, ": ", key.name.empty() ? absl::StrCat("entry ", key.position) : absl::StrCat("'", key.name, "'"),
      " is for no output of the model, whose outputs are ", NamesOfOutputs(model)));
}

absl::StatusOr<Objective> ObjectiveOf(const CompileConfig& compiled, const Model& model) {
  if (compiled.losses.empty()) return absl::NotFoundError("the model file names no loss");
  std::vector<std::optional<LossSpec>> losses(model.outputs().size());
  std::vector<double> weights(losses.size(), 1.0);
  for (const CompiledLoss& entry : compiled.losses) {
    CAIRN_ASSIGN_OR_RETURN(const LossSpec loss, ParseLoss(entry.loss));
    if (entry.output.all()) {
      losses.assign(losses.size(), loss);
      continue;
    }
    CAIRN_ASSIGN_OR_RETURN(const size_t index, IndexOfOutput(entry.output, model, "loss"));
    losses[index] = loss;
  }
  for (const CompiledWeight& entry : compiled.loss_weights) {
    CAIRN_ASSIGN_OR_RETURN(const size_t index, IndexOfOutput(entry.output, model, "loss_weights"));
    weights[index] = entry.weight;
  }
  return Objective::Create(model, losses, weights);
}

}  // namespace cairn::nn
