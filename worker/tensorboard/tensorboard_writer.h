// Writes the record of a run in --train_dir for TensorBoard and plotting scripts: event files in train/ and
// validation/ with the tags of Keras' TensorBoard callback, the hyperparameters, and log.csv.
//
//   epoch_<metric>, epoch_learning_rate, epoch_steps_per_second     at each epoch's number, from 0
//   evaluation_<metric>_vs_iterations                               validation/, at the version evaluated
//   batch_<metric>, batch_steps_per_second                          every --update_freq versions
//   <variable>/histogram, <variable>/gradient_histogram             every --histogram_freq epochs
//   epoch_examples_per_second, epoch_gradients_stale, ...           of the whole cluster; specific to Cairn
//
// A resumed run appends to the files of the earlier run. Before its first step it removes the records of the
// steps that it will train again, so every step is recorded once. If the disk is full or fails, writing ends
// with a warning and training continues. Owned by WorkerTask and used by Chief; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/clock.h"
#include "nn/model.h"
#include "worker/tensorboard/csv_log.h"
#include "worker/tensorboard/event_file.h"

namespace cairn::worker {

// "learning_rate": 0.001, "optimizer": "adam"
using Hyperparameters = std::map<std::string, std::variant<double, std::string, bool>>;
using NamedValues = std::vector<std::pair<std::string, double>>;

class TensorBoardWriter {
 public:
  struct Options {
    std::string directory{};     // --train_dir
    int64_t histogram_freq = 0;  // in epochs; 0: no histograms
    int64_t update_freq = 0;     // in steps; 0: at the end of epochs only
  };
  // `model` and `clock` must outlive this object.
  TensorBoardWriter(Options options, const nn::Model& model, Hyperparameters hyperparameters,
                    const Clock& clock);

  // Records that training begins or resumes at `epoch` (from 0) and `version`, after updates with `examples`
  // examples. Only the first call has an effect.
  void Begin(int64_t epoch, int64_t version, int64_t examples);

  // Whether the metrics of the step that made `version` are to be passed to OnStep().
  bool WantsStep(int64_t version) const {
    return options_.update_freq > 0 && version >= last_step_ + options_.update_freq;
  }
  void OnStep(int64_t version, const NamedValues& metrics);

  struct Epoch {
    int64_t epoch = 0;  // from 0
    int64_t version = 0;
    int64_t examples = 0;  // number of examples in the cluster's updates so far
    int64_t gradients_stale = 0, gradients_rejected = 0, staleness_max = 0;
    std::optional<double> learning_rate{};
    NamedValues metrics{};                 // validation metrics are named "val_..."
    absl::Span<const float> parameters{};  // at `version`, in the order of the model's variables
    // Parallel to `parameters`: the gradients of the chief's last batch or, if the workers' devices sum
    // gradients, the mean of all workers' gradients.
    absl::Span<const float> last_gradients{};
  };
  void OnEpochEnd(const Epoch& epoch);

  // Whether an earlier process of this run trained `epoch` (from 0) and ended before its validation was
  // written.
  bool LacksValidation(int64_t epoch) const;
  // Adds the validation metrics of the parameters at `version` to the record of `epoch`.
  void AddValidation(int64_t epoch, int64_t version, const NamedValues& metrics);

  // Records that the run has ended, and whether it succeeded. Must be called once. A killed process does not
  // call it.
  void End(bool success);

 private:
  absl::Status TryBegin(int64_t epoch, int64_t version);
  absl::Status TryEpochEnd(const Epoch& epoch);
  absl::Status TryAddValidation(int64_t epoch, int64_t version, const NamedValues& metrics);
  // `name` without its "val_".
  absl::Status AddValidationScalar(absl::string_view name, double value, int64_t epoch, int64_t version);
  std::string log_path() const { return options_.directory + "/log.csv"; }
  absl::Status Flush();
  void AddHistograms(const Epoch& epoch);
  // Stops all writing at the first error.
  void Note(const absl::Status& status);

  const Options options_;
  const nn::Model& model_;
  const Hyperparameters hyperparameters_;
  const Clock& clock_;

  bool begun_ = false, failed_ = false;
  std::unique_ptr<EventFile> train_, validation_, session_;  // validation_ is created on first use
  std::optional<CsvLog> log_;
  // The state when scalars were last written. Rates are computed over the time since then.
  int64_t last_step_ = 0, epoch_version_ = 0, epoch_examples_ = 0;
  TimePoint last_step_at_, epoch_at_;
};

}  // namespace cairn::worker
