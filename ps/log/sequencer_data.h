// The data of a sequencer apart from its policy, also as a message (sequencer.proto). SequencerState changes
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/sequencer.pb.h"
#include "ps/log/log_entry.h"

namespace cairn::ps {

struct SequencerData {
  // A push that some servers have received, but not all.
  struct Partial {
    Gradient gradient;
    std::set<int> servers;
  };
  struct Worker {
    uint64_t incarnation = 0;
    bool member = false;
    int64_t last_step = 0;           // the last step passed to the policy
    int64_t last_config_change = 0;  // number of the chief's last config change
  };
  // The update whose Measure is the last entry of the log.
  struct Measuring {
    Apply apply;
    size_t norms = 0;            // index of the norm that is measured, among those of each update
    int64_t index = 0;           // the index of the Measure in the log
    std::map<int, Sums> sums{};  // [server]: the sums that it has reported
  };

  std::map<int, int64_t> positions{};  // [worker]
  std::map<PushKey, Partial> partials{};
  std::map<int, Worker> workers{};
  std::vector<int64_t> executed{};  // [server]: index of the last entry that it has executed
  std::deque<LogEntry> log{};       // entries that some server has not executed
  int64_t next_index = 1;
  std::optional<Measuring> measuring{};
  // Decisions that wait until the measured update has been applied.
  std::deque<LogEntry::Action> behind{};

  bool HasServer(int server) const { return server >= 0 && server < static_cast<int>(executed.size()); }
};

// The message lacks the policy's state.
v1::SequencerState ToProto(const SequencerData& data);
// INVALID_ARGUMENT for an impossible gradient, decision or sum, and for data that is inconsistent.
absl::StatusOr<SequencerData> FromProto(const v1::SequencerState& proto);

}  // namespace cairn::ps
