// Makes the updates of a shard's values: the mean of the gradients, its norms, and the optimizer's step, or a
// speculative update that has already been computed.
//
//   { Prepare ─► MeasureNorms }, for each of the optimizer's norms ─► Prepare ─► ApplyMean ─► End
//
// Owned by a Shard. Only speculative() is for other threads than the one that executes the log, so there is no
// lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "optim/store/variable_store.h"
#include "ps/log/log_entry.h"
#include "ps/shard/effect_sink.h"
#include "ps/shard/final_version.h"
#include "ps/shard/push_table.h"
#include "ps/shard/speculative_update.h"

namespace cairn::ps {

class Updater {
 public:
  using Contributions = std::vector<std::optional<PushTable::Contribution>>;  // [contributor]

  struct Options {
    // Divides the learning rate of each update by max(1, staleness of its oldest contributor).
    bool staleness_aware_learning_rate = false;
    std::unique_ptr<SpeculativeUpdate> speculative{};  // null: no update is speculative
  };
  // Both references must outlive the updater.
  Updater(optim::VariableStore& store, const FinalVersion& final_version, Options options)
      : store_(store), final_version_(final_version), options_(std::move(options)) {}

  // The gradients of an entry that measures or makes an update.
  struct Input {
    std::vector<optim::ContributedGradient> gradients;  // borrowed from the contributions, or from the mean
    float rate_divisor = 1;
    const UpdateMean* new_mean = nullptr;  // the mean, if Prepare() has computed it; valid until End()
  };
  // `compute_mean`: computes the mean into a buffer, unless the mean is known; its later entries use this
  // buffer. INTERNAL if the mean is unknown and a contributor's push is not staged, or has examples but no
  // values here.
  absl::StatusOr<Input> Prepare(const LogEntry& entry, const Contributions& contributions, bool compute_mean);
  absl::StatusOr<std::vector<optim::SliceSquares>> MeasureNorms(const LogEntry& entry, const Input& input);
  absl::Status ApplyMean(const LogEntry& entry, const Input& input);
  // The update has been made, by ApplyMean() or TakeSpeculative(): forgets its mean.
  void End();

  // Whether an update has been measured and not made.
  bool measuring() const { return measuring_; }
  // The mean of a coming update is known: it is used instead of the gradients.
  void SetMean(UpdateMean mean) { mean_ = std::move(mean); }
  bool HasMean(int64_t version) const { return mean_.has_value() && mean_->version == version; }

  // --- Speculative updates ---
  SpeculativeUpdate* speculative() { return options_.speculative.get(); }
  // Publishes the speculative update and returns true, if it matches `apply`.
  bool TakeSpeculative(const Apply& apply, const Contributions& contributions);
  // Discards the speculative update, because the values are about to change in another way.
  void DropSpeculative();
  // Predicts that the workers of `last` make the next update too.
  void ExpectAfter(const Apply& last);

 private:
  // Returns the mean in a new buffer, or the gradient itself if it is the only one.
  UpdateMean MeanOf(int64_t version, absl::Span<const optim::ContributedGradient> gradients,
                    const Contributions& contributions);
  optim::VariableStore::Mean MeanOf(const LogEntry& entry, const Input& input) const;

  optim::VariableStore& store_;
  const FinalVersion& final_version_;
  const Options options_;
  std::optional<UpdateMean> mean_;  // of the current update, if it is in a buffer
  bool measuring_ = false;
};

}  // namespace cairn::ps
