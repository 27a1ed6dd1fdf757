// The entries of the round log (docs/design/round-log.md), and what the servers report to its sequencer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "optim/optimizer.h"
#include "optim/store/group_settings.h"
#include "optim/store/squares.h"
#include "ps/policy/policy.h"

namespace cairn::ps {

// The maximum size of a marker's token, in bytes.
inline constexpr size_t kMaxMarkerLength = 256;

struct Marker {
  std::string token;
  bool snapshot = false;  // the slots are stored with the values
};

// The progress of the job at a point of the log.
struct Progress {
  int64_t version = 0;
  UpdateCounters counters{};
  // [worker]: the largest Gradient::position of its gradients in updates.
  std::map<int, int64_t> positions{};
  std::optional<WorkPosition> data{};  // replaces `positions` with dynamic sharding
};

// Asks every server for its sums for `norms`, over the mean of `contributors`. This mean will make the update
// to `version`.
struct Measure {
  int64_t version = 0;
  std::vector<Gradient> contributors;
  optim::Norms norms = optim::Norms::kGradient;
};

// A config change by the chief, from this point of the log on.
struct ConfigChange {
  std::optional<float> learning_rate{};        // for all later updates
  bool end = false;                            // the current version is the job's last
  std::vector<optim::GroupSettings> groups{};  // [group], for all later updates; empty: no change
};

struct LogEntry {
  using Action = std::variant<Apply, Refuse, Release, Marker, Measure, ConfigChange>;
  int64_t index = 0;  // the first entry has index 1
  Action action;
  // In an entry that follows a Measure: the totals of that Measure over all servers.
  optim::VariableSquares known{};
};

// One server's contribution to the sums of the Measure at `index` of the log.
struct Sums {
  int64_t index = 0;
  std::vector<optim::SliceSquares> slices;
};

}  // namespace cairn::ps
