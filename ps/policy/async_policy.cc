#include "ps/policy/async_policy.h"

namespace cairn::ps {

std::vector<Decision> AsyncPolicy::OnJoin(int worker, uint64_t incarnation) {
  roster_.Join(worker, incarnation);
  return {};
}

std::vector<Decision> AsyncPolicy::OnLeave(int worker, uint64_t incarnation) {
  roster_.Leave(worker, incarnation);
  return {};
}

std::vector<Decision> AsyncPolicy::OnGradient(const Gradient& gradient) {
  if (roster_.IsRepeat(gradient.key)) {
    ++counters_.duplicate;
    return {};
  }
  Decision decision;
  if (std::optional<Refuse> refusal = roster_.Admit(gradient, Window())) {
    decision = *refusal;
  } else {
    const int64_t staleness = version_ - gradient.base_version;
    decision = Apply{++version_, {gradient}, staleness};
  }
  counters_.Add(decision);
  return {decision};
}

std::vector<Decision> AsyncPolicy::OnEnd() {
  if (!Window().Finished()) final_version_ = version_;
  return {};
}

PolicyState AsyncPolicy::Save() const {
  return {
      .version = version_, .final_version = final_version_, .roster = roster_.Save(), .counters = counters_};
}

void AsyncPolicy::Restore(const PolicyState& state) {
  version_ = state.version;
  final_version_ = state.final_version;
  roster_.Restore(state.roster);
  counters_ = state.counters;
}

}  // namespace cairn::ps
