#include "ps/policy/async_policy.h"

#include "common/core/status.h"
#include "ps/policy/policy_proto.h"

namespace cairn::ps {

std::vector<Decision> AsyncPolicy::OnJoin(int worker, uint64_t incarnation) {
  core_.roster.Join(worker, incarnation);
  return {};
}

std::vector<Decision> AsyncPolicy::OnLeave(int worker, uint64_t incarnation) {
  core_.roster.Leave(worker, incarnation);
  return {};
}

std::vector<Decision> AsyncPolicy::OnGradient(const Gradient& gradient) {
  if (core_.roster.IsRepeat(gradient.key)) {
    ++core_.counters.duplicate;
    return {};
  }
  Decision decision;
  if (std::optional<Refuse> refusal = core_.roster.Admit(gradient, core_.Window(config_.max_staleness))) {
    decision = *refusal;
  } else {
    const int64_t staleness = core_.version - gradient.base_version;
    decision = Apply{++core_.version, {gradient}, staleness};
  }
  core_.counters.Add(decision);
  return {decision};
}

std::vector<Decision> AsyncPolicy::OnEnd() {
  if (!core_.Finished()) core_.final_version = core_.version;
  return {};
}

google::protobuf::Any AsyncPolicy::Save() const {
  v1::AsyncPolicyState state;
  *state.mutable_core() = core_.Save();
  return Pack(state);
}

absl::Status AsyncPolicy::Load(const google::protobuf::Any& state) {
  v1::AsyncPolicyState saved;
  CAIRN_RETURN_IF_ERROR(Unpack(state, saved));
  return core_.Load(saved.core(), config_.most_workers);
}

}  // namespace cairn::ps
