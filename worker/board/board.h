// What a run leaves in --train_dir for TensorBoard and for plotting scripts: event files under train/ and
// validation/ with the tags of Keras' TensorBoard callback, the hyperparameters beside them, and log.csv.
//
//   epoch_<metric>, epoch_learning_rate, epoch_steps_per_second     at each epoch's number, from 0
//   evaluation_<metric>_vs_iterations                               validation/, at the version evaluated
//   batch_<metric>, batch_steps_per_second                          every --update_freq versions
//   <variable>/histogram, <variable>/gradient_histogram             every --histogram_freq epochs
//   epoch_examples_per_second, epoch_gradients_stale, ...           of the whole cluster: ours
//
// A run that goes on where an earlier one stopped adds to what that one left; what it trains again is written
// once: it goes from the files before the first step. A disk that takes nothing more ends the writing with a
// warning, and not the training. Owned by the chief's main and used by its trainer; one thread.
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
#include "worker/board/csv_log.h"
#include "worker/board/event_file.h"
#include "worker/nn/model.h"

namespace cairn::worker {

// "learning_rate": 0.001, "optimizer": "adam"
using Hyperparameters = std::map<std::string, std::variant<double, std::string, bool>>;
using NamedValues = std::vector<std::pair<std::string, double>>;

class Board {
 public:
  struct Options {
    std::string directory{};     // --train_dir
    int64_t histogram_freq = 0;  // epochs; 0: none
    int64_t update_freq = 0;     // steps; 0: epochs alone
  };
  // `model` and `clock` outlive it.
  Board(Options options, const nn::Model& model, Hyperparameters hyperparameters, const Clock& clock);

  // Training begins, or goes on, with `epoch` (from 0) at `version`, after `examples` in updates. The first
  // call alone counts.
  void Begin(int64_t epoch, int64_t version, int64_t examples);

  // A step is done that left `version`.
  bool WantsStep(int64_t version) const {
    return options_.update_freq > 0 && version >= last_step_ + options_.update_freq;
  }
  void OnStep(int64_t version, const NamedValues& metrics);

  struct Epoch {
    int64_t epoch = 0;  // from 0
    int64_t version = 0;
    int64_t examples = 0;  // in updates so far, over the whole cluster
    int64_t gradients_stale = 0, gradients_rejected = 0, staleness_max = 0;
    std::optional<double> learning_rate{};
    NamedValues metrics{};                     // "val_..." are validation's
    absl::Span<const float> parameters{};      // at `version`, as the model's variables lie
    absl::Span<const float> last_gradients{};  // likewise: of the chief's last batch, or the mean of all
  };
  void OnEpochEnd(const Epoch& epoch);

  // Whether an earlier life of this run trained `epoch` (from 0) and ended before its validation was written.
  bool LacksValidation(int64_t epoch) const;
  // Adds what validation made of the parameters of `version` to that epoch.
  void AddValidation(int64_t epoch, int64_t version, const NamedValues& metrics);

  // The run has ended, well or not. To be called once, or never where the process is killed.
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
  // Writing ends with the first failure.
  void Note(const absl::Status& status);

  const Options options_;
  const nn::Model& model_;
  const Hyperparameters hyperparameters_;
  const Clock& clock_;

  bool begun_ = false, failed_ = false;
  std::unique_ptr<EventFile> train_, validation_, session_;  // validation's: when there is something
  std::optional<CsvLog> log_;
  // Of the last scalars: rates count from there.
  int64_t last_step_ = 0, epoch_version_ = 0, epoch_examples_ = 0;
  TimePoint last_step_at_, epoch_at_;
};

}  // namespace cairn::worker
