#include "worker/report/hyperparameters.h"

#include "absl/strings/str_cat.h"

namespace cairn::worker {

Hyperparameters HyperparametersOf(const TrainOptions& options, const v1::Job& job, const nn::Model& model) {
  const auto number = [](auto value) { return static_cast<double>(value); };
  Hyperparameters all = {
      {"model", model.name()},
      {"mode", options.mode},
      {"optimizer", job.optimizer().name()},
      {"batch_size", number(job.batch_size())},
      {"epochs", number(job.epochs())},
      {"workers", number(job.workers_size())},
      {"ps", number(job.servers_size())},
      {"seed", number(job.seed())},
      {"shuffle", options.shuffle},
  };
  if (options.mode == "sync") all["replicas_to_aggregate"] = number(job.replicas_to_aggregate());
  if (job.has_max_staleness()) all["max_staleness"] = number(job.max_staleness());
  for (const auto& [name, value] : job.optimizer().hyperparameters()) all[name] = value;
  if (job.optimizer().has_learning_rate_schedule()) {
    const v1::LearningRateSchedule& schedule = job.optimizer().learning_rate_schedule();
    all["learning_rate"] = schedule.name();
    for (const auto& [name, value] : schedule.numbers()) all[absl::StrCat("learning_rate/", name)] = value;
  }
  return all;
}

}  // namespace cairn::worker
