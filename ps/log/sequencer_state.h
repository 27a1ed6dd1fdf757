// The state machine of the sequencer: everything that its backup must know, and nothing else.
//
//   SequencerInput ──Step()──► policy ──► decisions ──► entries of the log
//
// Step() is the only way to change the state, and its result depends on the state and the input alone: no
// clock, no random number and no connection takes part. Therefore a backup that has loaded the state and takes
// the same inputs in the same order has the same log. What depends on time or on connections is in Sequencer.
//
// The log keeps the entries that some server has not executed.
//
// Owned by a Sequencer, whose lock guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cairn/v1/sequencer.pb.h"
#include "ps/log/log_entry.h"
#include "ps/log/sequencer_data.h"
#include "ps/log/sequencer_input.h"

namespace cairn::ps {

class SequencerState {
 public:
  // The limit on entries that some server has not executed, or that wait behind a Measure.
  static constexpr size_t kMaxUnexecuted = 16384;

  // `norms`: the norms that each update takes, in this order. `resumed`: the progress of the job so far, at
  // the version where the policy begins. All worker numbers are below `most_workers`.
  SequencerState(std::unique_ptr<UpdatePolicy> policy, int num_servers,
                 absl::Span<const optim::Norms> norms = {}, Progress resumed = {},
                 int most_workers = std::numeric_limits<int>::max());

  // Whether Step() may take `input`. INVALID_ARGUMENT: it names a server or a worker that the job lacks.
  // RESOURCE_EXHAUSTED, naming the server that lags: the log is full. ABORTED: a config change by an
  // incarnation that is not the chief.
  absl::Status Check(const SequencerInput& input) const;
  // Takes an input that Check() accepts. An input that is overtaken or repeated has no effect.
  void Step(SequencerInput input);

  v1::SequencerState Save() const;
  // INVALID_ARGUMENT, without effect, for a state that does not fit the job.
  absl::Status Load(const v1::SequencerState& saved);

  // --- The log: the entries from first_index() to next_index() - 1 ---
  int64_t first_index() const { return data_.log.empty() ? data_.next_index : data_.log.front().index; }
  int64_t next_index() const { return data_.next_index; }
  const LogEntry& EntryAt(int64_t index) const {
    return data_.log[static_cast<size_t>(index - data_.log.front().index)];
  }

  const UpdatePolicy& policy() const { return *policy_; }
  // Counts all decisions: each is in the log or will precede every later entry.
  Progress progress() const;
  UpdateCounters counters() const;
  // The largest position among the gradients of `worker` that are in updates; 0 if there is none.
  int64_t position(int worker) const;
  // The Measure that waits for sums: its index in the log, the version that its update makes, and the servers
  // whose sums are missing.
  struct Unmeasured {
    int64_t index = 0;
    int64_t version = 0;
    std::vector<int> servers{};
  };
  std::optional<Unmeasured> unmeasured() const;

 private:
  using Worker = SequencerData::Worker;

  void On(const WorkerJoined& joined);
  void On(const WorkerLeft& left);
  void On(const PushStaged& staged);
  void On(SumsReported&& reported);
  void On(const EntriesExecuted& executed);
  void On(const MarkerPlaced& placed) { Append(placed.marker); }
  void On(const ConfigChanged& changed);

  absl::Status CheckLogHasRoom() const;
  // The worker, as it was before it joined if it is unknown.
  Worker Find(int worker) const;
  void Decide(std::vector<Decision> decisions);
  // Appends a decision: at once or, while an update is being measured, after that update's Apply.
  void Append(LogEntry::Action action);
  void Write(LogEntry::Action action, optim::VariableSquares known);
  // Writes the next entry of the update that is being measured: a Measure, or finally the Apply.
  void WriteMeasured(optim::VariableSquares known);
  void DropPartials(int worker, Refuse::Reason reason);

  const std::vector<optim::Norms> norms_;
  const UpdateCounters counters_before_;
  const int most_workers_;

  const std::unique_ptr<UpdatePolicy> policy_;
  SequencerData data_;
};

}  // namespace cairn::ps
