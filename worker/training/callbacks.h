// The callbacks that the chief runs at the end of each epoch: Keras' EarlyStopping, ReduceLROnPlateau and
// ModelCheckpoint(save_best_only=True), as the flags request them.
//
// The rules are in monitor.h. This class selects the metric, keeps the best parameters and writes the file.
// It returns orders for everything that concerns the servers, and Chief carries them out. Created by
// WorkerTask on the chief; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/table_states.h"
#include "nn/metrics.h"
#include "nn/model.h"
#include "worker/embedding/table_rows.h"
#include "worker/embedding/table_states.h"
#include "worker/options/options.h"
#include "worker/report/progress.h"
#include "worker/training/monitor.h"

namespace cairn::worker {

class Callbacks {
 public:
  // `metrics`: the model's metrics. With `validation`, --monitor may also name a metric of the validation
  // set, such as "val_loss". INVALID_ARGUMENT if --monitor names no metric, or if the --save_best file cannot
  // be written. `model` must outlive the object.
  static absl::StatusOr<Callbacks> Create(const CallbackFlags& flags, const nn::Model& model,
                                          absl::Span<const nn::MetricSpec> metrics, bool validation);

  // For a job with embedding tables: their rows, for the --save_best file, and what takes them as they are, to be
  // restored later. Both block on the network.
  void SetTables(TableRows tables, TakeTables take) {
    tables_.emplace(std::move(tables));
    take_tables_ = std::move(take);
  }
  // Whether the callbacks may reduce the learning rate. If so, the caller must set the current rate.
  bool needs_learning_rate() const { return plateau_.has_value(); }
  void set_learning_rate(float rate) { learning_rate_ = rate; }
  // The learning rate for the progress line. As in Keras, it is shown only if it may be reduced.
  std::optional<float> learning_rate() const { return learning_rate_; }

  struct Orders {
    std::vector<std::string> messages;     // in Keras' words
    std::optional<float> learning_rate{};  // for the next updates; nullopt: unchanged
    bool stop = false;                     // end the job
  };
  // `epoch` counts from 0. `shown` must contain the monitored metric, measured with `parameters`. Fails if
  // the file cannot be written, or embedding tables cannot be taken.
  absl::StatusOr<Orders> OnEpochEnd(int64_t epoch, const ShownMetrics& shown,
                                    absl::Span<const float> parameters);

  // The parameters to restore when training has ended; empty: none.
  absl::Span<const float> best_parameters() const { return best_parameters_; }
  // Opens the embedding tables that belong to them; null: none.
  const client::TableOpener& best_tables() const { return best_tables_; }
  // The best epoch by early stopping's rules, counted from 1. Without early stopping: the epoch that was last
  // written to the --save_best file.
  std::optional<int64_t> best_epoch() const { return best_epoch_; }

 private:
  Callbacks(const CallbackFlags& flags, const nn::Model& model, nn::Better better);
  // Keeps the parameters and the embedding tables, to be restored at the end.
  absl::Status Keep(absl::Span<const float> parameters);
  absl::Status Save(int64_t epoch, double value, absl::Span<const float> parameters);

  const nn::Model* model_;
  std::optional<TableRows> tables_;  // empty: the job has none
  TakeTables take_tables_;           // null: the job has none
  std::string monitor_;
  bool restore_best_weights_;
  std::string save_best_;
  std::optional<EarlyStopping> early_stopping_;
  std::optional<ReduceOnPlateau> plateau_;
  std::optional<BestValue> saved_;
  std::optional<float> learning_rate_;
  std::vector<float> best_parameters_;
  client::TableOpener best_tables_;
  std::optional<int64_t> best_epoch_;
};

}  // namespace cairn::worker
