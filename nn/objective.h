// The quantity that training minimizes: the sum over the outputs of a model of their losses times weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/ops.h"
#include "nn/layer/compile_config.h"
#include "nn/loss.h"
#include "nn/model.h"

namespace cairn::nn {

// The loss of one output.
struct OutputLoss {
  size_t output = 0;  // index in Model::outputs()
  LossSpec loss{};
  double weight = 1;
};

// Whether each row of an output has a weight, as each token of a text; otherwise each example has one. One entry for
// all outputs, or [loss of the objective].
using WeightedRows = absl::InlinedVector<bool, 2>;

// The contribution of examples to mean losses.
struct LossTotals {
  double loss = 0;  // sum over the examples of their weights times the objective
  int64_t examples = 0;
  // [loss of the objective] The same for each loss, without its weight. Empty if the model has one output.
  absl::InlinedVector<double, 2> of_outputs{};

  LossTotals& operator+=(const LossTotals& other);
};

class Objective {
 public:
  // The loss of the only output of a model.
  Objective(const LossSpec& loss) : losses_({{.loss = loss}}) {}  // NOLINT(google-explicit-constructor)
  // The losses and the weights of the outputs of `model`, [output]. An output without a loss has no targets.
  // INVALID_ARGUMENT naming the output if a loss does not fit, or if there is none.
  static absl::StatusOr<Objective> Create(const Model& model,
                                          absl::Span<const std::optional<LossSpec>> losses,
                                          absl::Span<const double> weights);

  // An objective that accepts any outputs: the squared error of each.
  static Objective ForAnyOutputs(const Model& model);

  // In the order of the outputs; at least one.
  const std::vector<OutputLoss>& losses() const { return losses_; }
  // Whether the model has several outputs, so that losses and metrics are named by them.
  bool several_outputs() const { return several_outputs_; }

  // Sets which weights an example has: those of all outputs, or of one loss after another. INVALID_ARGUMENT, naming the
  // outputs of `model`, if the same weights are for the rows of outputs with different numbers of rows.
  absl::Status SetWeights(const Model& model, WeightedRows rows);
  // The error of SetWeights() for another model.
  absl::Status CheckWeights(const Model& model) const;
  // The number of weights of an example of `model`, if it has any.
  int64_t WeightsPerExample(const Model& model) const;
  // Whether each loss has weights of its own.
  bool weighs_each_loss() const { return weighted_rows_.size() > 1; }
  // The place of the first weight of this loss in those of an example.
  int64_t FirstWeight(size_t index, const Model& model) const;

  // The loss number `index` for `batch` examples of `model`.
  kernels::LossParams ParamsOf(size_t index, const Model& model, int64_t batch) const;
  // The place of the first target of this loss in those of an example: one loss after another.
  int64_t FirstTarget(size_t index, const Model& model) const;
  int64_t TargetsPerExample(const Model& model) const { return FirstTarget(losses_.size(), model); }
  // INVALID_ARGUMENT naming the loss and the output if a loss does not fit the output.
  absl::Status CheckOutputs(const Model& model) const;

 private:
  Objective(std::vector<OutputLoss> losses, bool several_outputs)
      : losses_(std::move(losses)), several_outputs_(several_outputs) {}

  int64_t RowsOf(size_t index, const Model& model) const;

  std::vector<OutputLoss> losses_;
  bool several_outputs_ = false;
  WeightedRows weighted_rows_ = {false};
};

// The index of the output that `key` of compile()'s argument `what` is for. INVALID_ARGUMENT naming both if there is
// none.
absl::StatusOr<size_t> IndexOfOutput(const OutputKey& key, const Model& model, absl::string_view what);

// The objective that compile() was given. NOT_FOUND if it has no loss; INVALID_ARGUMENT naming the output and the
// fault.
absl::StatusOr<Objective> ObjectiveOf(const CompileConfig& compiled, const Model& model);

}  // namespace cairn::nn
