#include "worker/report/summary.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/core/files.h"
#include "common/flags/words.h"

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

std::optional<double> Summary::metric(absl::string_view name) const {
  for (const auto& [known, value] : metrics) {
    if (known == name) return value;
  }
  return std::nullopt;
}

namespace {

nlohmann::ordered_json JsonOf(const Summary& summary) {
  nlohmann::ordered_json metrics = nlohmann::ordered_json::object();
  for (const auto& [name, value] : summary.metrics) metrics[name] = Number(value);
  nlohmann::ordered_json examples_missed, best_epoch;  // null unless set below
  if (summary.examples_missed.has_value()) examples_missed = *summary.examples_missed;
  if (summary.best_epoch.has_value()) best_epoch = *summary.best_epoch;
  return {
      {"mode", summary.mode},
      {"ps", summary.ps},
      {"workers", summary.workers},
      {"workers_max", summary.workers_max},
      {"batch_size", summary.batch_size},
      {"global_step", summary.global_step},
      {"epochs", summary.epochs},
      {"examples", summary.examples},
      {"examples_missed", examples_missed},
      {"examples_repeated", summary.examples_repeated},
      {"seconds", Number(summary.seconds)},
      {"examples_per_second", Number(summary.examples_per_second)},
      {"loss", Number(summary.metric("loss"))},
      {"accuracy", Number(summary.metric("accuracy"))},
      {"val_loss", Number(summary.metric("val_loss"))},
      {"val_accuracy", Number(summary.metric("val_accuracy"))},
      {"metrics", metrics},
      {"gradients_accepted", summary.gradients_accepted},
      {"gradients_stale", summary.gradients_stale},
      {"gradients_duplicate", summary.gradients_duplicate},
      {"staleness_max", summary.staleness_max},
      {"staleness_histogram", summary.staleness_histogram},
      {"push_bytes", summary.push_bytes},
      {"push_bytes_float32", summary.push_bytes_float32},
      {"pull_bytes", summary.pull_bytes},
      {"pull_bytes_float32", summary.pull_bytes_float32},
      {"gradient_error", Number(summary.gradient_error)},
      {"row_push_bytes", summary.row_push_bytes},
      {"row_pull_bytes", summary.row_pull_bytes},
      {"pushed_rows", summary.pushed_rows},
      {"pulled_rows", summary.pulled_rows},
      {"lookups", summary.lookups},
      {"distinct_lookups", summary.distinct_lookups},
      {"best_epoch", best_epoch},
      {"device", summary.device},
      {"parameters", summary.parameters},
      {"parameters_sha256", summary.parameters_sha256},
  };
}

}  // namespace

std::string ToJson(const Summary& summary) {
  return JsonOf(summary).dump(2) + "\n";
}

std::string AsEvent(const Summary& summary) {
  nlohmann::ordered_json event = {{"event", "result"}};
  event.update(JsonOf(summary));
  return event.dump();
}

std::string OneLine(const Summary& summary) {
  std::string line =
      absl::StrCat(Counted(summary.global_step, "step"), ", ", Counted(summary.examples, "example"));
  if (summary.examples_per_second > 0) {
    absl::StrAppendFormat(&line, " in %.1f s (%.0f examples/s)", summary.seconds,
                          summary.examples_per_second);
  } else {
    absl::StrAppend(&line, ", all in earlier runs");
  }
  const char* separator = ": ";
  for (const auto& [name, value] : summary.metrics) {
    if (!absl::StartsWith(name, "val_")) continue;
    absl::StrAppendFormat(&line, "%s%s %.4f", separator, name, value);
    separator = ", ";
  }
  if (summary.push_bytes < summary.push_bytes_float32) {
    absl::StrAppendFormat(
        &line, "; gradients in %.3g %% of the bytes",
        100.0 * static_cast<double>(summary.push_bytes) / static_cast<double>(summary.push_bytes_float32));
  }
  return line;
}

absl::Status WriteSummary(const Summary& summary, const std::string& path) {
  return WriteFileAtomically(path, ToJson(summary));
}

}  // namespace cairn::worker
