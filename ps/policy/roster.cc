#include "ps/policy/roster.h"

#include <utility>

#include "common/core/status.h"
#include "ps/policy/policy_proto.h"

namespace cairn::ps {

void Roster::Join(int worker, uint64_t incarnation) {
  Worker& entry = workers_[worker];
  if (entry.incarnation != incarnation) {
    entry.incarnation = incarnation;
    entry.last_step = std::numeric_limits<int64_t>::min();
  }
  if (!entry.live) ++num_live_;
  entry.live = true;
}

bool Roster::Leave(int worker, uint64_t incarnation) {
  Worker& entry = workers_[worker];
  if (!entry.live) return true;
  if (entry.incarnation != incarnation) return false;
  entry.live = false;
  --num_live_;
  return true;
}

bool Roster::IsRepeat(const PushKey& key) const {
  const auto found = workers_.find(key.worker);
  return found != workers_.end() && found->second.incarnation == key.incarnation &&
         key.step <= found->second.last_step;
}

std::optional<Refuse> Roster::Admit(const Gradient& gradient, const VersionWindow& window) {
  const PushKey& key = gradient.key;
  const auto found = workers_.find(key.worker);
  if (found == workers_.end() || !found->second.live) return Refuse{key, Refuse::Reason::kNotAMember};
  if (found->second.incarnation != key.incarnation) return Refuse{key, Refuse::Reason::kOldIncarnation};
  found->second.last_step = key.step;

  if (window.Finished()) return Refuse{key, Refuse::Reason::kFinished};
  const int64_t staleness = window.version - gradient.base_version;
  if (staleness < 0) return Refuse{key, Refuse::Reason::kAhead};
  if (window.max_staleness.has_value() && staleness > *window.max_staleness) {
    return Refuse{key, Refuse::Reason::kStale, staleness};
  }
  return std::nullopt;
}

void Roster::Save(Saved& saved) const {
  for (const auto& [worker, entry] : workers_) {
    v1::RosterEntry& proto = *saved.Add();
    proto.set_worker(worker);
    proto.set_incarnation(entry.incarnation);
    proto.set_last_step(entry.last_step);
    proto.set_live(entry.live);
  }
}

absl::Status Roster::Load(const Saved& saved, int most_workers) {
  std::map<int, Worker> workers;
  for (const v1::RosterEntry& entry : saved) {
    CAIRN_RETURN_IF_ERROR(CheckWorker(entry.worker(), most_workers));
    workers[entry.worker()] = {
        .incarnation = entry.incarnation(), .last_step = entry.last_step(), .live = entry.live()};
  }
  workers_ = std::move(workers);
  num_live_ = static_cast<int>(LiveWorkers().size());
  return absl::OkStatus();
}

std::vector<int> Roster::LiveWorkers() const {
  std::vector<int> live;
  for (const auto& [worker, entry] : workers_) {
    if (entry.live) live.push_back(worker);
  }
  return live;
}

}  // namespace cairn::ps
