#include "worker/training/callbacks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "worker/export/model_files.h"

namespace cairn::worker {
namespace {

absl::StatusOr<nn::Better> DirectionOf(const CallbackFlags& flags, absl::Span<const nn::MetricSpec> metrics,
                                       bool validation) {
  std::vector<std::string> names = {"loss"};
  for (const nn::MetricSpec& metric : metrics) names.push_back(metric.name);
  std::sort(names.begin(), names.end());
  if (validation) {
    for (size_t i = 0, count = names.size(); i < count; ++i) names.push_back(absl::StrCat("val_", names[i]));
  }
  if (std::find(names.begin(), names.end(), flags.monitor) == names.end()) {
    return absl::InvalidArgumentError(absl::StrCat("--monitor: there is no metric '", flags.monitor,
                                                   "'; there are ", absl::StrJoin(names, ", "),
                                                   validation ? "" : "; no validation set is evaluated"));
  }
  if (flags.monitor_mode != "auto") {
    return flags.monitor_mode == "min" ? nn::Better::kLower : nn::Better::kHigher;
  }
  for (const nn::MetricSpec& metric : metrics) {
    if (metric.name == absl::StripPrefix(flags.monitor, "val_")) return metric.better;
  }
  return nn::Better::kLower;  // the loss
}

}  // namespace

absl::StatusOr<Callbacks> Callbacks::Create(const CallbackFlags& flags, const nn::Model& model,
                                            absl::Span<const nn::MetricSpec> metrics, bool validation) {
  const bool monitors = flags.early_stopping_patience.has_value() || flags.plateau_factor.has_value() ||
                        !flags.save_best.empty();
  nn::Better better = nn::Better::kLower;
  if (monitors) {
    CAIRN_ASSIGN_OR_RETURN(better, DirectionOf(flags, metrics, validation));
  }
  if (!flags.save_best.empty()) {
    if (const absl::Status status = CheckWritable(flags.save_best); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--save_best: ", status.message()));
    }
  }
  return Callbacks(flags, model, better);
}

Callbacks::Callbacks(const CallbackFlags& flags, const nn::Model& model, nn::Better better)
    : model_(&model),
      monitor_(flags.monitor),
      restore_best_weights_(flags.restore_best_weights),
      save_best_(flags.save_best) {
  if (flags.early_stopping_patience.has_value()) {
    early_stopping_.emplace(EarlyStopping::Options{.better = better,
                                                   .min_delta = flags.min_delta.value_or(0),
                                                   .patience = *flags.early_stopping_patience,
                                                   .baseline = flags.baseline,
                                                   .start_from_epoch = flags.start_from_epoch});
  }
  if (flags.plateau_factor.has_value()) {
    plateau_.emplace(ReduceOnPlateau::Options{.better = better,
                                              .factor = *flags.plateau_factor,
                                              .min_delta = flags.min_delta.value_or(1e-4),
                                              .patience = flags.plateau_patience,
                                              .cooldown = flags.plateau_cooldown,
                                              .min_rate = flags.min_learning_rate});
  }
  if (!save_best_.empty()) saved_.emplace(better);
}

absl::StatusOr<Callbacks::Orders> Callbacks::OnEpochEnd(int64_t epoch, const ShownMetrics& shown,
                                                        absl::Span<const float> parameters) {
  Orders orders;
  const auto found =
      std::find_if(shown.begin(), shown.end(), [&](const auto& metric) { return metric.first == monitor_; });
  if (found == shown.end()) return orders;  // nothing is monitored
  const double value = found->second;
  const std::string title = absl::StrCat("Epoch ", epoch + 1, ": ");

  if (saved_.has_value()) {
    const std::optional<double> before = saved_->best();
    if (saved_->Improve(value)) {
      CAIRN_RETURN_IF_ERROR(Save(epoch, value, parameters));
      orders.messages.push_back(absl::StrCat(
          title, monitor_, " improved from ", before.has_value() ? absl::StrFormat("%.5f", *before) : "None",
          " to ", absl::StrFormat("%.5f", value), ", saving model to ", save_best_));
    }
  }
  if (plateau_.has_value()) {
    orders.learning_rate = plateau_->OnEpochEnd(value, *learning_rate_);
    if (orders.learning_rate.has_value()) {
      learning_rate_ = orders.learning_rate;
      orders.messages.push_back(
          absl::StrCat(title, "ReduceLROnPlateau reducing learning rate to ", *learning_rate_, "."));
    }
  }
  if (early_stopping_.has_value()) {
    const EarlyStopping::Verdict verdict = early_stopping_->OnEpochEnd(epoch, value);
    if (verdict.best) {
      best_epoch_ = epoch + 1;
      if (restore_best_weights_) CAIRN_RETURN_IF_ERROR(Keep(parameters));
    }
    orders.stop = verdict.stop;
    if (verdict.stop) orders.messages.push_back(absl::StrCat(title, "early stopping"));
  }
  return orders;
}

absl::Status Callbacks::Keep(absl::Span<const float> parameters) {
  best_parameters_.assign(parameters.begin(), parameters.end());
  if (take_tables_ == nullptr) return absl::OkStatus();
  best_tables_ = nullptr;  // so that the memory has only one copy of them
  auto taken = take_tables_();
  if (!taken.ok()) return Annotate(taken.status(), "--restore_best_weights: the embedding tables");
  best_tables_ = *std::move(taken);
  return absl::OkStatus();
}

absl::Status Callbacks::Save(int64_t epoch, double value, absl::Span<const float> parameters) {
  const absl::Status status = WriteModelFile(
      save_best_, *model_, parameters, {{"epoch", absl::StrCat(epoch + 1)}, {monitor_, absl::StrCat(value)}},
      tables_.has_value() ? &*tables_ : nullptr);
  CAIRN_RETURN_IF_ERROR(Annotate(status, "--save_best"));
  if (!early_stopping_.has_value()) best_epoch_ = epoch + 1;
  return absl::OkStatus();
}

}  // namespace cairn::worker
