#include "worker/summary.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "common/core/files.h"

namespace cairn::worker {
namespace {

// JSON has no NaN.
nlohmann::ordered_json Number(double value) {
  if (!std::isfinite(value)) return nullptr;
  return value;
}

nlohmann::ordered_json Number(const std::optional<double>& value) {
  return value.has_value() ? Number(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace

std::string ToJson(const Summary& summary) {
  const nlohmann::ordered_json json = {
      {"mode", summary.mode},
      {"ps", summary.ps},
      {"workers", summary.workers},
      {"batch_size", summary.batch_size},
      {"global_step", summary.global_step},
      {"epochs", summary.epochs},
      {"examples", summary.examples},
      {"seconds", Number(summary.seconds)},
      {"examples_per_second", Number(summary.examples_per_second)},
      {"loss", Number(summary.loss)},
      {"accuracy", Number(summary.accuracy)},
      {"val_loss", Number(summary.val_loss)},
      {"val_accuracy", Number(summary.val_accuracy)},
      {"gradients_accepted", summary.gradients_accepted},
      {"gradients_stale", summary.gradients_stale},
      {"gradients_duplicate", summary.gradients_duplicate},
      {"staleness_max", summary.staleness_max},
      {"device", summary.device},
      {"parameters", summary.parameters},
      {"parameters_sha256", summary.parameters_sha256},
  };
  return json.dump(2) + "\n";
}

std::string OneLine(const Summary& summary) {
  std::string line = absl::StrFormat("%d steps, %d examples in %.1f s (%.0f examples/s)", summary.global_step,
                                     summary.examples, summary.seconds, summary.examples_per_second);
  if (summary.val_accuracy.has_value() && summary.val_loss.has_value()) {
    absl::StrAppendFormat(&line, ": val_accuracy %.4f, val_loss %.4f", *summary.val_accuracy,
                          *summary.val_loss);
  }
  return line;
}

absl::Status WriteSummary(const Summary& summary, const std::string& path) {
  return WriteFileAtomically(path, ToJson(summary));
}

}  // namespace cairn::worker
