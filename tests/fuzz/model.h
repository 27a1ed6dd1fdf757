// Checks of an accepted model.
#pragma once

#include "absl/status/statusor.h"
#include "nn/metrics.h"
#include "nn/model.h"
#include "nn/objective.h"
#include "tests/fuzz/fuzz.h"

namespace cairn::fuzz {

inline void CheckModel(const absl::StatusOr<nn::Model>& model) {
  constexpr int64_t kMaxToInitialise = 1 << 16;
  if (!model.ok()) {
    FUZZ_CHECK(!model.status().message().empty());
    return;
  }
  FUZZ_CHECK(!model->inputs().empty());
  FUZZ_CHECK(!model->nodes().empty());
  FUZZ_CHECK(model->input_shape().num_elements() > 0);
  FUZZ_CHECK(model->output_shape().num_elements() > 0);
  int64_t next = 0;
  for (const nn::ModelVariable& variable : model->variables()) {
    FUZZ_CHECK(variable.offset == next);
    next += variable.shape.num_elements();
  }
  FUZZ_CHECK(next == model->num_parameters());
  FUZZ_CHECK(!nn::SummaryTable(*model).empty());
  if (model->num_parameters() <= kMaxToInitialise) model->InitialParameters(1);
  const nn::CompileConfig& compiled = model->compile_config();
  if (const auto objective = nn::ObjectiveOf(compiled, *model); objective.ok())
    static_cast<void>(nn::MetricsOf(compiled.metrics, *objective, *model));
  // Workers compare this.
  const auto again = nn::Model::FromJson(model->canonical_json(), "again");
  FUZZ_CHECK(again.ok() && again->canonical_json() == model->canonical_json());
}

}  // namespace cairn::fuzz
