// What the chief does at each epoch's end besides showing its metrics: Keras' EarlyStopping,
// ReduceLROnPlateau and ModelCheckpoint(save_best_only=True), as flags ask for them.
//
// The rules are those of monitor.h; this names the metric, keeps the best parameters and writes the file.
// What concerns the servers it orders, and the trainer carries out. Made by the chief's main; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/monitor.h"
#include "worker/nn/metrics.h"
#include "worker/nn/model.h"
#include "worker/options.h"
#include "worker/progress.h"

namespace cairn::worker {

class Callbacks {
 public:
  // `metrics` of the model, each as "val_..." too where there is a `validation` set that is evaluated.
  // INVALID_ARGUMENT for a --monitor that is none of them, and for a --save_best that cannot be written. The
  // model must outlive this.
  static absl::StatusOr<Callbacks> Create(const TrainOptions& options, const nn::Model& model,
                                          absl::Span<const nn::MetricSpec> metrics, bool validation);

  // Whether the learning rate is reduced, and so must be known.
  bool needs_learning_rate() const { return plateau_.has_value(); }
  void set_learning_rate(float rate) { learning_rate_ = rate; }
  // What the progress line shows of it: as Keras, only where it is reduced.
  std::optional<float> learning_rate() const { return learning_rate_; }

  struct Orders {
    std::vector<std::string> messages;     // in Keras' words
    std::optional<float> learning_rate{};  // of the updates that follow
    bool stop = false;                     // end the job
  };
  // `epoch` from 0; `shown` holds the monitored metric; `parameters` are those it is of. An error says that
  // the file could not be written.
  absl::StatusOr<Orders> OnEpochEnd(int64_t epoch, const ShownMetrics& shown,
                                    absl::Span<const float> parameters);

  // Those to put back when training has ended; empty: none.
  absl::Span<const float> best_parameters() const { return best_parameters_; }
  // From 1: the epoch that they are, or would be, of; without early stopping, of what was saved last.
  std::optional<int64_t> best_epoch() const { return best_epoch_; }

 private:
  Callbacks(const TrainOptions& options, const nn::Model& model, nn::Better better);
  absl::Status Save(int64_t epoch, double value, absl::Span<const float> parameters);

  const nn::Model* model_;
  std::string monitor_;
  bool restore_best_weights_;
  std::string save_best_;
  std::optional<EarlyStopping> early_stopping_;
  std::optional<ReduceOnPlateau> plateau_;
  std::optional<BestValue> saved_;
  std::optional<float> learning_rate_;
  std::vector<float> best_parameters_;
  std::optional<int64_t> best_epoch_;
};

}  // namespace cairn::worker
