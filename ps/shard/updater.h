// Makes the updates of a shard's tables: the means of the gradients, their norms, and the optimizer's step, or
// a speculative update that has already been computed.
//
//   { Prepare ─► MeasureNorms }, for each of the optimizer's norms ─► Prepare ─► MakeUpdate ─► End
//
// Owned by a Shard. Used by the thread that executes the log.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/trace/trace.h"
#include "optim/store/squares.h"
#include "ps/log/log_entry.h"
#include "ps/shard/effect_sink.h"
#include "ps/shard/final_version.h"
#include "ps/shard/push_table.h"
#include "ps/table/table.h"
#include "ps/table/tables.h"

namespace cairn::ps {

class Updater {
 public:
  using Contributions = std::vector<std::optional<PushTable::Contribution>>;  // [contributor]

  struct Options {
    // Divides the learning rate of each update by max(1, staleness of its oldest contributor).
    bool staleness_aware_learning_rate = false;
    TraceRecorder* trace =
        nullptr;  // outlives the updater; records the updates of tables beside the variables
  };
  // Both references must outlive the updater.
  Updater(const Tables& tables, const FinalVersion& final_version, const Options& options);

  // The input of an entry that measures or makes an update. Borrows from the entry and from the mean.
  struct Input {
    absl::InlinedVector<TableUpdate, 1> tables{};  // [table]
    const UpdateMean* new_mean = nullptr;  // the mean, if Prepare() has computed it; valid until End()
  };
  // `compute_mean`: computes the means into buffers, unless they are known; later entries about this update
  // use these buffers. INTERNAL if the means are unknown and a contributor's push is not staged, or as
  // Table::Mean().
  absl::StatusOr<Input> Prepare(const LogEntry& entry, const Contributions& contributions, bool compute_mean);
  absl::StatusOr<std::vector<optim::SliceSquares>> MeasureNorms(optim::Norms norms, const Input& input);
  // `speculative`: TakeSpeculative() has made the update of the variables, so only the other tables are left.
  absl::Status MakeUpdate(const Input& input, bool speculative);
  // The update has been made: forgets its means.
  void End();

  // Whether an update has been measured and not made.
  bool measuring() const { return measuring_; }
  // The mean of a coming update is known: it is used instead of the gradients.
  void SetMean(UpdateMean mean) { mean_ = std::move(mean); }
  bool HasMean(int64_t version) const { return mean_.has_value() && mean_->version == version; }

  // --- Speculative updates ---
  // Publishes the speculative update and returns true, if it matches `apply`.
  bool TakeSpeculative(const Apply& apply, const Contributions& contributions);
  // Discards the speculative update, because the values are about to change in another way.
  void DropSpeculative();
  // Predicts that the workers of `last` make the next update too.
  void ExpectAfter(const Apply& last);

 private:
  // Replaces the contributions of `input` by mean_.
  void UseMean(Input& input) const;
  SpeculativeUpdate* speculative() const { return tables_.dense().speculative(); }

  const Tables& tables_;
  const FinalVersion& final_version_;
  const Options options_;
  std::vector<const char*> span_names_;  // [table - 1] with a trace
  std::optional<UpdateMean> mean_;       // of the current update, if it is in buffers
  TableMean speculative_mean_;           // of the speculative update that has been published, if it was sent
  bool measuring_ = false;
};

}  // namespace cairn::ps
