// Asynchronous updates: every gradient makes an update of its own, as soon as it is complete. The version
// that it was computed from may be up to max_staleness updates old.
#pragma once

#include <vector>

#include "ps/policy/policy.h"
#include "ps/policy/roster.h"

namespace cairn::ps {

class AsyncPolicy final : public UpdatePolicy {
 public:
  // `config` as MakePolicy() accepts it.
  explicit AsyncPolicy(const PolicyConfig& config)
      : config_(config), version_(config.initial_version), final_version_(config.final_version) {}

  std::vector<Decision> OnJoin(int worker, uint64_t incarnation) override;
  std::vector<Decision> OnLeave(int worker, uint64_t incarnation) override;
  std::vector<Decision> OnGradient(const Gradient& gradient) override;
  std::vector<Decision> OnEnd() override;
  int64_t version() const override { return version_; }
  std::vector<int> WaitingFor() const override { return {}; }
  const UpdateCounters& counters() const override { return counters_; }
  PolicyState Save() const override;
  void Restore(const PolicyState& state) override;

 private:
  VersionWindow Window() const { return {version_, final_version_, config_.max_staleness}; }

  const PolicyConfig config_;
  Roster roster_;
  int64_t version_;
  std::optional<int64_t> final_version_;  // from PolicyConfig; a config change may lower it
  UpdateCounters counters_;
};

}  // namespace cairn::ps
