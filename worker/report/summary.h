// The result of a training run: the JSON object of --summary.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/report/progress.h"

namespace cairn::worker {

struct Summary {
  std::string mode;  // "sync", "async", "ssp" or "allreduce"
  int ps = 0;
  int workers = 0;          // with dynamic sharding: members at the end
  int workers_max = 0;      // the most members at one time
  int64_t batch_size = 0;   // per worker
  int64_t global_step = 0;  // updates made
  int64_t epochs = 0;
  int64_t examples = 0;  // in the gradients of all updates, over all workers
  // The number of examples of the trained epochs that reached no update, because their worker was lost or
  // late. Nullopt for an asynchronous job that --train_steps or a callback ends. With dynamic sharding: the
  // number of assigned examples that are missing from the updates of at least one server.
  std::optional<int64_t> examples_missed;
  // With dynamic sharding: the number of examples that are in the updates of at least one server twice;
  // otherwise 0.
  int64_t examples_repeated = 0;
  double seconds = 0;  // duration of training and evaluation, on the chief's clock
  double examples_per_second = 0;
  // The running means of training over the chief's share of the last epoch; with a validation set, also
  // "val_loss", ... of the final parameters.
  ShownMetrics metrics;
  // As counted by ps/0.
  int64_t gradients_accepted = 0, gradients_stale = 0, gradients_duplicate = 0, staleness_max = 0;
  // The bytes of the gradients that the chief pushed and of the values that it pulled, each as sent and as it
  // would be in float32. `gradient_error`: the norm of the parts of the gradients that were not sent,
  // relative to the norm of the gradients.
  int64_t push_bytes = 0, push_bytes_float32 = 0, pull_bytes = 0, pull_bytes_float32 = 0;
  double gradient_error = 0;
  // The part of push_bytes and pull_bytes that belongs to rows of embedding tables, and the number of rows: those whose
  // gradients the chief pushed, and those that it received.
  int64_t row_push_bytes = 0, row_pull_bytes = 0, pushed_rows = 0, pulled_rows = 0;
  // Ids that the chief's batches looked up, and the distinct ones of each batch.
  int64_t lookups = 0, distinct_lookups = 0;
  // [staleness] The number of accepted gradients with this staleness. The last element also counts all
  // greater ones.
  std::vector<int64_t> staleness_histogram;
  // The best epoch by --early_stopping's rules, else the last epoch that --save_best wrote; counted from 1.
  std::optional<int64_t> best_epoch;
  std::string device;
  int64_t parameters = 0;
  std::string parameters_sha256;

  // The value of one of `metrics`, if it exists.
  std::optional<double> metric(absl::string_view name) const;
};

// A JSON object with all fields. `metrics` is an object; its loss, accuracy, val_loss and val_accuracy also
// appear at the top level, null if they do not exist.
std::string ToJson(const Summary& summary);
// The same object on one line, beginning with "event": "result": the last line of --log_format json.
std::string AsEvent(const Summary& summary);
// "9380 steps, 300000 examples in 12.3 s (24390 examples/s): val_accuracy 0.9901, val_loss 0.0312"
std::string OneLine(const Summary& summary);
absl::Status WriteSummary(const Summary& summary, const std::string& path);

}  // namespace cairn::worker
