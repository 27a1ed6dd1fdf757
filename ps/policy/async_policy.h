// Asynchronous updates: every gradient makes an update of its own, as soon as it is complete. The version
// that it was computed from may be up to max_staleness updates old.
#pragma once

#include <vector>

#include "ps/policy/policy.h"
#include "ps/policy/policy_core.h"

namespace cairn::ps {

class AsyncPolicy final : public UpdatePolicy {
 public:
  // `config` as MakePolicy() accepts it.
  explicit AsyncPolicy(const PolicyConfig& config) : config_(config), core_(config) {}

  std::vector<Decision> OnJoin(int worker, uint64_t incarnation) override;
  std::vector<Decision> OnLeave(int worker, uint64_t incarnation) override;
  std::vector<Decision> OnGradient(const Gradient& gradient) override;
  std::vector<Decision> OnEnd() override;
  int64_t version() const override { return core_.version; }
  const UpdateCounters& counters() const override { return core_.counters; }
  google::protobuf::Any Save() const override;
  absl::Status Load(const google::protobuf::Any& state) override;

 private:
  const PolicyConfig config_;
  PolicyCore core_;
};

}  // namespace cairn::ps
