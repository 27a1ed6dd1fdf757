// What a training run came to: the JSON object of --summary.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/progress.h"

namespace cairn::worker {

struct Summary {
  std::string mode;  // "sync", "async", "ssp"
  int ps = 0;
  int workers = 0;          // with dynamic sharding those that took part at the end
  int workers_max = 0;      // at one time
  int64_t batch_size = 0;   // per worker
  int64_t global_step = 0;  // updates made
  int64_t epochs = 0;
  int64_t examples = 0;  // in the gradients that made updates, over all workers
  // Those that the same epochs hold besides: of workers that were lost, or came too late. None where a number
  // of steps ends an asynchronous job somewhere in an epoch.
  // With dynamic sharding those that were handed out and are not in the updates of some server.
  std::optional<int64_t> examples_missed;
  // With dynamic sharding those that are in some server's updates a second time; otherwise none is.
  int64_t examples_repeated = 0;
  double seconds = 0;  // of training, evaluation included, on the chief's clock
  double examples_per_second = 0;
  // Training's running means over the chief's part of the last epoch; with a validation set also those of the
  // final parameters over it: "val_loss", ...
  ShownMetrics metrics;
  // As ps/0 counted them.
  int64_t gradients_accepted = 0, gradients_stale = 0, gradients_duplicate = 0, staleness_max = 0;
  // Of the chief's own steps: payloads of its gradients and of the values that they brought, and as float32;
  // and how much of the gradients did not travel, as a part of their length.
  int64_t push_bytes = 0, push_bytes_float32 = 0, pull_bytes = 0, pull_bytes_float32 = 0;
  double gradient_error = 0;
  std::vector<int64_t> staleness_histogram;  // [staleness]: accepted ones; the last counts that and more
  // From 1: the best one by --early_stopping's rules, else the one that --save_best wrote last.
  std::optional<int64_t> best_epoch;
  std::string device;
  int64_t parameters = 0;
  std::string parameters_sha256;

  // One of `metrics`, if it is there.
  std::optional<double> metric(absl::string_view name) const;
};

// All of it; `metrics` as an object, and its loss, accuracy, val_loss and val_accuracy, null where there are
// none, also beside it.
std::string ToJson(const Summary& summary);
// The same in one line, with "event": "result" before it: the last line of --log_format json.
std::string AsEvent(const Summary& summary);
// "9380 steps, 300000 examples in 12.3 s (24390 examples/s): val_accuracy 0.9901, val_loss 0.0312"
std::string OneLine(const Summary& summary);
absl::Status WriteSummary(const Summary& summary, const std::string& path);

}  // namespace cairn::worker
