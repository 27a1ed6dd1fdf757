#include "ps/log/sequencer_state.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "ps/log/follow_proto.h"

namespace cairn::ps {

SequencerState::SequencerState(std::unique_ptr<UpdatePolicy> policy, int num_servers,
                               absl::Span<const optim::Norms> norms, Progress resumed, int most_workers)
    : norms_(norms.begin(), norms.end()),
      counters_before_(resumed.counters),
      most_workers_(most_workers),
      policy_(std::move(policy)),
      data_({.positions = std::move(resumed.positions),
             .executed = std::vector<int64_t>(static_cast<size_t>(num_servers))}) {}

absl::Status SequencerState::Check(const SequencerInput& input) const {
  if (const auto server = ServerOf(input); server.has_value() && !data_.HasServer(*server)) {
    return absl::InvalidArgumentError(absl::StrCat("an input of the sequencer names ps/", *server,
                                                   ", but the number of servers is ", data_.executed.size()));
  }
  if (const auto worker = WorkerOf(input); worker.has_value()) {
    CAIRN_RETURN_IF_ERROR(Annotate(CheckWorker(*worker, most_workers_), "an input of the sequencer"));
  }
  if (std::holds_alternative<MarkerPlaced>(input)) return CheckLogHasRoom();
  if (const auto* staged = std::get_if<PushStaged>(&input)) {
    const PushKey& key = staged->gradient.key;
    const Worker worker = Find(key.worker);
    // A refusal takes an entry.
    if (key.incarnation != worker.incarnation || !worker.member) return CheckLogHasRoom();
  }
  if (const auto* changed = std::get_if<ConfigChanged>(&input)) {
    const Worker chief = Find(kChief);
    if (changed->incarnation != chief.incarnation || !chief.member) {
      return absl::AbortedError(
          absl::StrCat("incarnation ", changed->incarnation, " of the chief is not a member of the job"));
    }
    if (changed->number > chief.last_config_change) return CheckLogHasRoom();
  }
  return absl::OkStatus();
}

void SequencerState::Step(SequencerInput input) {
  std::visit([this](auto& what) { On(std::move(what)); }, input);
}

void SequencerState::On(const WorkerJoined& joined) {
  Worker& known = data_.workers[joined.worker];
  if (joined.incarnation <= known.incarnation) return;  // overtaken by a later incarnation
  DropPartials(joined.worker, Refuse::Reason::kOldIncarnation);
  known = {.incarnation = joined.incarnation, .member = true};
  Decide(policy_->OnJoin(joined.worker, joined.incarnation));
}

void SequencerState::On(const WorkerLeft& left) {
  Worker& known = data_.workers[left.worker];
  if (left.incarnation < known.incarnation) return;
  known.member = false;
  DropPartials(left.worker, Refuse::Reason::kNotAMember);
  Decide(policy_->OnLeave(left.worker, left.incarnation));
}

void SequencerState::On(const PushStaged& staged) {
  const Gradient& gradient = staged.gradient;
  Worker& worker = data_.workers[gradient.key.worker];
  if (gradient.key.incarnation != worker.incarnation || !worker.member) {
    const bool old = gradient.key.incarnation < worker.incarnation;
    Append(Refuse{.key = gradient.key,
                  .reason = old ? Refuse::Reason::kOldIncarnation : Refuse::Reason::kNotAMember,
                  .staleness = 0});
    return;
  }
  // Repeated by a server that reconnected: the decision is in the log.
  if (gradient.key.step <= worker.last_step) return;
  SequencerData::Partial& partial = data_.partials[gradient.key];
  // In asynchronous jobs, a worker may have read an older version from some servers than from others.
  const int64_t oldest = partial.servers.empty()
                             ? gradient.base_version
                             : std::min(gradient.base_version, partial.gradient.base_version);
  partial.gradient = gradient;
  partial.gradient.base_version = oldest;
  partial.servers.insert(staged.server);
  if (partial.servers.size() < data_.executed.size()) return;
  worker.last_step = gradient.key.step;
  const Gradient whole = partial.gradient;
  data_.partials.erase(gradient.key);
  Decide(policy_->OnGradient(whole));
}

void SequencerState::On(SumsReported&& reported) {
  if (!data_.measuring.has_value() || data_.measuring->index != reported.sums.index) return;
  if (!data_.measuring->sums.emplace(reported.server, std::move(reported.sums)).second) return;
  if (data_.measuring->sums.size() < data_.executed.size()) return;
  std::vector<optim::SliceSquares> slices;
  for (auto& [from, sums] : data_.measuring->sums) {
    std::move(sums.slices.begin(), sums.slices.end(), std::back_inserter(slices));
  }
  ++data_.measuring->norms;
  WriteMeasured(AddUp(std::move(slices)));
  while (!data_.measuring.has_value() && !data_.behind.empty()) {
    LogEntry::Action next = std::move(data_.behind.front());
    data_.behind.pop_front();
    Append(std::move(next));
  }
}

void SequencerState::On(const EntriesExecuted& executed) {
  int64_t& last = data_.executed[static_cast<size_t>(executed.server)];
  last = std::max(last, std::min(executed.index, data_.next_index - 1));
  const int64_t all = *std::min_element(data_.executed.begin(), data_.executed.end());
  while (!data_.log.empty() && data_.log.front().index <= all) data_.log.pop_front();
}

void SequencerState::On(const ConfigChanged& changed) {
  Worker& chief = data_.workers[kChief];
  if (changed.number <= chief.last_config_change) return;
  chief.last_config_change = changed.number;
  Append(changed.config_change);
  if (changed.config_change.end) Decide(policy_->OnEnd());
}

absl::Status SequencerState::CheckLogHasRoom() const {
  const size_t entries = data_.log.size() + data_.behind.size();
  if (entries < kMaxUnexecuted) return absl::OkStatus();
  const auto last = std::min_element(data_.executed.begin(), data_.executed.end());
  return absl::ResourceExhaustedError(absl::StrCat("the log holds ", entries, " entries that ps/",
                                                   last - data_.executed.begin(),
                                                   " has not executed; the limit is ", kMaxUnexecuted));
}

SequencerData::Worker SequencerState::Find(int worker) const {
  const auto found = data_.workers.find(worker);
  return found == data_.workers.end() ? Worker() : found->second;
}

UpdateCounters SequencerState::counters() const {
  UpdateCounters counters = counters_before_;
  counters.Add(policy_->counters());
  return counters;
}

Progress SequencerState::progress() const {
  return {.version = policy_->version(),
          .counters = counters(),
          .positions = data_.positions,
          .data = policy_->position()};
}

int64_t SequencerState::position(int worker) const {
  const auto found = data_.positions.find(worker);
  return found == data_.positions.end() ? 0 : found->second;
}

std::optional<SequencerState::Unmeasured> SequencerState::unmeasured() const {
  if (!data_.measuring.has_value()) return std::nullopt;
  Unmeasured unmeasured = {.index = data_.measuring->index, .version = data_.measuring->apply.version};
  for (int server = 0; data_.HasServer(server); ++server) {
    if (data_.measuring->sums.count(server) == 0) unmeasured.servers.push_back(server);
  }
  return unmeasured;
}

void SequencerState::Decide(std::vector<Decision> decisions) {
  for (Decision& decision : decisions) {
    if (auto* apply = std::get_if<Apply>(&decision)) {
      for (Gradient& gradient : apply->contributors) {
        int64_t& position = data_.positions[gradient.key.worker];
        position = std::max(position, gradient.position);
        if (!gradient.groups.empty()) Append(ConfigChange{.groups = std::exchange(gradient.groups, {})});
      }
    }
    std::visit([this](auto& decided) { Append(std::move(decided)); }, decision);
  }
}

void SequencerState::Append(LogEntry::Action action) {
  if (data_.measuring.has_value()) {
    data_.behind.push_back(std::move(action));
  } else if (auto* apply = std::get_if<Apply>(&action); apply != nullptr && !norms_.empty()) {
    data_.measuring = SequencerData::Measuring{.apply = std::move(*apply)};
    WriteMeasured({});
  } else {
    Write(std::move(action), {});
  }
}

void SequencerState::WriteMeasured(optim::VariableSquares known) {
  if (data_.measuring->norms == norms_.size()) {
    Write(std::move(data_.measuring->apply), std::move(known));
    data_.measuring.reset();
    return;
  }
  data_.measuring->index = data_.next_index;
  data_.measuring->sums.clear();
  Write(Measure{.version = data_.measuring->apply.version,
                .contributors = data_.measuring->apply.contributors,
                .norms = norms_[data_.measuring->norms]},
        std::move(known));
}

void SequencerState::Write(LogEntry::Action action, optim::VariableSquares known) {
  data_.log.push_back({data_.next_index++, std::move(action), std::move(known)});
}

void SequencerState::DropPartials(int worker, Refuse::Reason reason) {
  for (auto it = data_.partials.begin(); it != data_.partials.end();) {
    if (it->first.worker == worker) {
      Append(Refuse{.key = it->first, .reason = reason, .staleness = 0});
      it = data_.partials.erase(it);
    } else {
      ++it;
    }
  }
}

v1::SequencerState SequencerState::Save() const {
  v1::SequencerState saved = ToProto(data_);
  *saved.mutable_policy() = policy_->Save();
  return saved;
}

absl::Status SequencerState::Load(const v1::SequencerState& saved) {
  CAIRN_ASSIGN_OR_RETURN(SequencerData data, FromProto(saved));
  if (data.executed.size() != data_.executed.size() ||
      (data.measuring.has_value() && data.measuring->norms >= norms_.size())) {
    return absl::InvalidArgumentError("the replicated log does not fit the job");
  }
  for (const auto& [key, partial] : data.partials)
    CAIRN_RETURN_IF_ERROR(CheckWorker(key.worker, most_workers_));
  for (const auto& [worker, entry] : data.workers) CAIRN_RETURN_IF_ERROR(CheckWorker(worker, most_workers_));
  CAIRN_RETURN_IF_ERROR(policy_->Load(saved.policy()));
  data_ = std::move(data);
  return absl::OkStatus();
}

}  // namespace cairn::ps
