#include "ps/policy/queued_policy.h"

#include <utility>

#include "common/core/status.h"
#include "ps/policy/policy_proto.h"

namespace cairn::ps {

QueuedPolicy::QueuedPolicy(std::unique_ptr<UpdatePolicy> policy, WorkQueue queue, const Config& config)
    : policy_(std::move(policy)), config_(config), queue_(std::move(queue)) {
  if (!config_.rounds) return;
  std::vector<int> expected;
  for (int worker = 0; worker < config_.expected_workers; ++worker) expected.push_back(worker);
  queue_.GiveRound(expected);
}

std::vector<Decision> QueuedPolicy::OnJoin(int worker, uint64_t incarnation) {
  const auto found = members_.find(worker);
  if (found != members_.end() && found->second.incarnation != incarnation) queue_.Return(worker);
  if (found == members_.end() || found->second.incarnation != incarnation) {
    members_[worker] = {.incarnation = incarnation};
  }
  std::vector<Decision> decisions = Followed(policy_->OnJoin(worker, incarnation));
  members_.at(worker).idle = queue_.WorkItemsOf(worker).empty();
  GiveToIdle();
  return decisions;
}

std::vector<Decision> QueuedPolicy::OnLeave(int worker, uint64_t incarnation) {
  const auto found = members_.find(worker);
  if (found != members_.end() && found->second.incarnation != incarnation) return {};
  if (found != members_.end()) members_.erase(found);
  queue_.Return(worker);
  std::vector<Decision> decisions = Followed(policy_->OnLeave(worker, incarnation));
  GiveToIdle();
  return decisions;
}

std::vector<Decision> QueuedPolicy::OnGradient(const Gradient& gradient) {
  const auto member = members_.find(gradient.key.worker);
  if (member != members_.end() && member->second.incarnation == gradient.key.incarnation &&
      gradient.key.step > member->second.last_step) {
    member->second.last_step = gradient.key.step;
    const std::vector<WorkItem> work_items = queue_.WorkItemsOf(gradient.key.worker);
    const bool of_work_item = !work_items.empty() &&
                              queue_.BeginOf(work_items.front()) == gradient.position &&
                              (work_items.front().count == gradient.examples || gradient.examples == 0);
    // A gradient of another version is left to the wrapped policy, which refuses it with a better reason.
    const bool current = !config_.rounds || gradient.base_version == version();
    if (!of_work_item && current && !over()) return {Refuse{gradient.key, Refuse::Reason::kNotAMember}};
  }
  return Followed(policy_->OnGradient(gradient));
}

std::vector<Decision> QueuedPolicy::OnEnd() {
  ended_ = true;
  return policy_->OnEnd();
}

std::vector<Decision> QueuedPolicy::Followed(std::vector<Decision> decisions) {
  std::vector<int> answered;
  const auto is_member = [this](const PushKey& key) {
    const auto found = members_.find(key.worker);
    return found != members_.end() && found->second.incarnation == key.incarnation;
  };
  for (Decision& decision : decisions) {
    if (auto* apply = std::get_if<Apply>(&decision)) {
      for (const Gradient& gradient : apply->contributors) {
        queue_.Done(gradient.key.worker);
        if (!apply->deferred && is_member(gradient.key)) answered.push_back(gradient.key.worker);
      }
      apply->last = queue_.exhausted();
    } else if (const auto* release = std::get_if<Release>(&decision)) {
      if (is_member(release->key)) answered.push_back(release->key.worker);
    }
  }
  if (answered.empty() && !queue_.exhausted()) return decisions;
  for (int worker : answered) members_.at(worker).idle = true;
  GiveToIdle();
  if (queue_.exhausted() && !ended_) {
    for (Decision& more : OnEnd()) decisions.push_back(std::move(more));
  }
  return decisions;
}

void QueuedPolicy::GiveToIdle() {
  if (over()) return;
  if (!enough()) {  // idle workers return their items, for the workers that continue
    for (const auto& [worker, member] : members_) {
      if (member.idle) queue_.Return(worker);
    }
    return;
  }
  std::vector<int> members;
  bool any = false;
  for (const auto& [worker, member] : members_) {
    members.push_back(worker);
    any |= member.idle;
  }
  if (!any) return;
  if (config_.rounds) queue_.GiveRound(members);
  for (auto& [worker, member] : members_) {
    if (!member.idle) continue;
    member.idle = config_.rounds ? queue_.WorkItemsOf(worker).empty() : !queue_.Give(worker);
  }
}

bool QueuedPolicy::over() const {
  return ended_ || queue_.exhausted() ||
         (config_.final_version.has_value() && version() >= *config_.final_version);
}

std::optional<Work> QueuedPolicy::WorkOf(int worker) const {
  Work work = {.work_items = {}, .members = static_cast<int>(members_.size()), .over = over()};
  if (members_.count(worker) != 0 && !work.over) work.work_items = queue_.WorkItemsOf(worker);
  return work;
}

google::protobuf::Any QueuedPolicy::Save() const {
  v1::QueuedPolicyState state;
  *state.mutable_policy() = policy_->Save();
  queue_.Save(state);
  for (const auto& [worker, member] : members_) {
    v1::QueuedPolicyState::Member& saved = *state.add_members();
    saved.set_worker(worker);
    saved.set_incarnation(member.incarnation);
    saved.set_last_step(member.last_step);
    saved.set_idle(member.idle);
  }
  state.set_ended(ended_);
  return Pack(state);
}

absl::Status QueuedPolicy::Load(const google::protobuf::Any& state) {
  v1::QueuedPolicyState saved;
  CAIRN_RETURN_IF_ERROR(Unpack(state, saved));
  std::map<int, Member> members;
  for (const v1::QueuedPolicyState::Member& member : saved.members()) {
    CAIRN_RETURN_IF_ERROR(CheckWorker(member.worker(), config_.most_workers));
    members[member.worker()] = {
        .incarnation = member.incarnation(), .last_step = member.last_step(), .idle = member.idle()};
  }
  WorkQueue queue = queue_;
  CAIRN_RETURN_IF_ERROR(queue.Load(saved, config_.most_workers));
  CAIRN_RETURN_IF_ERROR(policy_->Load(saved.policy()));
  queue_ = std::move(queue);
  members_ = std::move(members);
  ended_ = saved.ended();
  return absl::OkStatus();
}

}  // namespace cairn::ps
