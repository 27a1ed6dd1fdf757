// The state that every policy has: the members, the version and the counters. Private to ps/policy.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "cairn/v1/policy.pb.h"
#include "ps/policy/policy.h"
#include "ps/policy/roster.h"

namespace cairn::ps {

struct PolicyCore {
  explicit PolicyCore(const PolicyConfig& config)
      : version(config.initial_version), final_version(config.final_version) {}

  VersionWindow Window(std::optional<int64_t> max_staleness) const {
    return {version, final_version, max_staleness};
  }
  bool Finished() const { return Window(std::nullopt).Finished(); }

  v1::PolicyCore Save() const;
  // INVALID_ARGUMENT, without effect, for an impossible state. All worker numbers are below `most_workers`.
  absl::Status Load(const v1::PolicyCore& saved, int most_workers);

  int64_t version;
  std::optional<int64_t> final_version;  // from PolicyConfig; a config change may lower it
  Roster roster{};
  UpdateCounters counters{};
};

}  // namespace cairn::ps
