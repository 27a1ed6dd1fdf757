#include "worker/allreduce/agreement.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn::allreduce {
namespace {

bool Offers(const v1::RingState& state) {
  return !state.device_sums().library().empty();
}

// Why the devices cannot sum the gradients although at least one worker offers its device; empty: they can.
std::string WhyRing(const std::vector<v1::RingState>& states, absl::Span<const std::string> names) {
  std::map<std::string, size_t> workers;  // [device]
  size_t offer = 0;                       // the first worker that offers its device
  while (!Offers(states[offer])) ++offer;
  for (size_t worker = 0; worker < states.size(); ++worker) {
    const v1::DeviceSums& sums = states[worker].device_sums();
    const std::string& library = states[offer].device_sums().library();
    if (!Offers(states[worker])) {
      return absl::StrCat(names[offer], " has ", library, ", but ", names[worker],
                          " has no GPU that can sum with others'");
    }
    if (sums.library() != library) {
      return absl::StrCat(names[offer], " has ", library, ", but ", names[worker], " has ", sums.library());
    }
    const auto [other, first] = workers.emplace(sums.device(), worker);
    if (!first) return absl::StrCat(names[other->second], " and ", names[worker], " share a GPU");
  }
  return "";
}

}  // namespace

bool Agreement::Needs(int worker) const {
  const v1::RingState& state = states[static_cast<size_t>(worker)];
  const v1::RingState& best = states[static_cast<size_t>(source)];
  return worker != source && (!state.trained() || state.progress().version() < best.progress().version());
}

absl::StatusOr<Agreement> Agree(std::vector<v1::RingState> states, absl::Span<const std::string> names) {
  Agreement agreement = {.ring = nullptr, .states = std::move(states)};
  const auto rank = [&](int worker) {
    const v1::RingState& state = agreement.states[static_cast<size_t>(worker)];
    return std::pair(state.trained() ? 2 : state.has_values() ? 1 : 0, state.progress().version());
  };
  const int workers = static_cast<int>(names.size());
  for (int worker = 1; worker < workers; ++worker) {
    if (rank(worker) > rank(agreement.source)) agreement.source = worker;
  }
  const v1::RingState& best = agreement.states[static_cast<size_t>(agreement.source)];
  if (!best.has_values()) return absl::FailedPreconditionError("ring: no worker has values");
  for (int worker = 0; worker < workers; ++worker) {
    const v1::RingState& state = agreement.states[static_cast<size_t>(worker)];
    if (state.trained() && state.run_id() != best.run_id()) {
      return absl::FailedPreconditionError(
          absl::StrCat(names[static_cast<size_t>(worker)], " belongs to run ", state.run_id(), ", and ",
                       names[static_cast<size_t>(agreement.source)], " to run ", best.run_id()));
    }
    agreement.passes = agreement.passes || agreement.Needs(worker);
  }
  if (std::any_of(agreement.states.begin(), agreement.states.end(), Offers)) {
    agreement.why_ring = WhyRing(agreement.states, names);
    if (agreement.why_ring.empty()) agreement.library = agreement.states[0].device_sums().library();
  }
  return agreement;
}

}  // namespace cairn::allreduce
