#include "ps/policy/policy_proto.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::ps {
namespace {

// The maximum that the weighted mean supports (WeightedGradient).
constexpr int64_t kMaxExamples = std::numeric_limits<uint32_t>::max();
// Low enough that adding examples to it does not overflow.
constexpr int64_t kMaxPosition = int64_t{1} << 62;

}  // namespace

v1::PushKey ToProto(const PushKey& key) {
  v1::PushKey proto;
  proto.set_worker(key.worker);
  proto.set_incarnation(key.incarnation);
  proto.set_step(key.step);
  return proto;
}

PushKey FromProto(const v1::PushKey& proto) {
  return {.worker = proto.worker(), .incarnation = proto.incarnation(), .step = proto.step()};
}

google::protobuf::RepeatedPtrField<v1::GroupSettings> ToProto(absl::Span<const optim::GroupSettings> groups) {
  google::protobuf::RepeatedPtrField<v1::GroupSettings> proto;
  for (size_t group = 0; group < groups.size(); ++group) {
    const optim::GroupSettings& settings = groups[group];
    if (group > 0 && settings == groups[group - 1]) {
      v1::GroupSettings& last = *proto.rbegin();
      last.set_count(std::max(last.count(), 1u) + 1);
      continue;
    }
    v1::GroupSettings& entry = *proto.Add();
    if (settings.learning_rate.has_value()) entry.set_learning_rate(*settings.learning_rate);
    entry.set_untouched(settings.untouched);
    entry.mutable_hyperparameters()->insert(settings.hyperparameters.begin(), settings.hyperparameters.end());
  }
  return proto;
}

std::vector<optim::GroupSettings> FromProto(
    const google::protobuf::RepeatedPtrField<v1::GroupSettings>& groups) {
  std::vector<optim::GroupSettings> all;
  for (const v1::GroupSettings& entry : groups) {
    optim::GroupSettings settings = {
        .untouched = entry.untouched(),
        .hyperparameters = {entry.hyperparameters().begin(), entry.hyperparameters().end()}};
    if (entry.has_learning_rate()) settings.learning_rate = entry.learning_rate();
    // CheckGroups() refuses more of either; until then they must not take much memory.
    const bool too_many = settings.hyperparameters.size() > kMaxHyperparameters;
    const size_t room = kMaxGroups + 1 - all.size();
    all.insert(all.end(), std::min<size_t>(room, too_many ? 1 : std::max(entry.count(), 1u)), settings);
  }
  return all;
}

v1::SkippedUpdates ToProto(const optim::SkippedUpdates& skipped) {
  v1::SkippedUpdates proto;
  proto.set_empty(skipped.empty);
  for (size_t group = 0; group < skipped.untouched.size(); ++group) {
    if (group > 0 && skipped.untouched[group] == skipped.untouched[group - 1]) {
      int64_t& run = *proto.mutable_untouched()->rbegin();
      ++run;
      continue;
    }
    proto.add_untouched(skipped.untouched[group]);
    proto.add_untouched(1);
  }
  return proto;
}

absl::StatusOr<optim::SkippedUpdates> FromProto(const v1::SkippedUpdates& proto) {
  optim::SkippedUpdates skipped = {.empty = proto.empty()};
  CAIRN_RETURN_IF_ERROR(CheckCount("the number of empty updates", proto.empty()));
  for (int i = 0; i + 1 < proto.untouched_size(); i += 2) {
    const int64_t updates = proto.untouched(i), groups = proto.untouched(i + 1);
    CAIRN_RETURN_IF_ERROR(CheckCount("the number of updates that left a group untouched", updates));
    if (groups < 1 || groups > kMaxGroups - static_cast<int64_t>(skipped.untouched.size())) {
      return absl::InvalidArgumentError(absl::StrCat("counts of updates of ", groups, " groups are invalid"));
    }
    skipped.untouched.insert(skipped.untouched.end(), static_cast<size_t>(groups), updates);
  }
  return skipped;
}

absl::Status CheckRate(float rate) {
  if (std::isfinite(rate) && rate >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a learning rate of ", rate, " is invalid"));
}

absl::Status CheckGroups(absl::Span<const optim::GroupSettings> groups) {
  for (size_t group = 0; group < groups.size(); ++group) {
    if (const size_t count = groups[group].hyperparameters.size(); count > kMaxHyperparameters) {
      return absl::InvalidArgumentError(
          absl::StrCat("group ", group, ": ", count, " hyperparameters, at most ", kMaxHyperparameters));
    }
    if (!groups[group].learning_rate.has_value()) continue;
    CAIRN_RETURN_IF_ERROR(Annotate(CheckRate(*groups[group].learning_rate), absl::StrCat("group ", group)));
  }
  return absl::OkStatus();
}

absl::Status CheckGradient(const Gradient& gradient) {
  const PushKey& key = gradient.key;
  if (!gradient.groups.empty() && key.worker != kChief) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(key), ": only the chief may set groups of variables"));
  }
  CAIRN_RETURN_IF_ERROR(Annotate(CheckGroups(gradient.groups), Describe(key)));
  if (key.worker >= 0 && key.incarnation != 0 && key.step >= 1 && gradient.base_version >= 0 &&
      gradient.examples >= 0 && gradient.examples <= kMaxExamples && gradient.position >= 0 &&
      gradient.position <= kMaxPosition) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("invalid gradient: worker ", key.worker, " (incarnation ",
                                                 key.incarnation, "), step ", key.step, ", from version ",
                                                 gradient.base_version, ", of ", gradient.examples,
                                                 " examples, at position ", gradient.position));
}

v1::StagedGradient ToProto(const Gradient& gradient) {
  v1::StagedGradient proto;
  *proto.mutable_key() = ToProto(gradient.key);
  proto.set_base_version(gradient.base_version);
  proto.set_examples(gradient.examples);
  proto.set_position(gradient.position);
  *proto.mutable_groups() = ToProto(gradient.groups);
  return proto;
}

absl::StatusOr<Gradient> FromProto(const v1::StagedGradient& proto) {
  const Gradient gradient = {.key = FromProto(proto.key()),
                             .base_version = proto.base_version(),
                             .examples = proto.examples(),
                             .position = proto.position(),
                             .groups = FromProto(proto.groups())};
  CAIRN_RETURN_IF_ERROR(CheckGradient(gradient));
  return gradient;
}

v1::WorkItem ToProto(const WorkItem& work_item) {
  v1::WorkItem proto;
  proto.set_epoch(work_item.epoch);
  proto.set_first(work_item.first);
  proto.set_count(work_item.count);
  return proto;
}

WorkItem FromProto(const v1::WorkItem& proto) {
  return {.epoch = proto.epoch(), .first = proto.first(), .count = proto.count()};
}

v1::DataPosition ToProto(const WorkPosition& position) {
  v1::DataPosition proto;
  proto.set_next(position.next);
  for (const WorkPosition::Run& run : position.open) {
    v1::DataPosition::Run& entry = *proto.add_open();
    entry.set_begin(run.begin);
    entry.set_count(run.count);
  }
  proto.set_repeated(position.repeated);
  return proto;
}

WorkPosition FromProto(const v1::DataPosition& proto) {
  WorkPosition position = {.next = proto.next(), .open = {}};
  for (const v1::DataPosition::Run& run : proto.open()) position.open.push_back({run.begin(), run.count()});
  return position;
}

v1::Outcome OutcomeOf(Refuse::Reason reason) {
  switch (reason) {
    case Refuse::Reason::kStale:
      return v1::OUTCOME_STALE;
    case Refuse::Reason::kFinished:
      return v1::OUTCOME_FINISHED;
    case Refuse::Reason::kAhead:
    case Refuse::Reason::kNotAMember:
    case Refuse::Reason::kOldIncarnation:
    case Refuse::Reason::kSecondInRound:
      return v1::OUTCOME_REJECTED;
  }
  return v1::OUTCOME_REJECTED;
}

google::protobuf::Any Pack(const google::protobuf::Message& state) {
  google::protobuf::Any packed;
  packed.PackFrom(state);
  return packed;
}

absl::Status Unpack(const google::protobuf::Any& packed, google::protobuf::Message& state) {
  if (packed.UnpackTo(&state)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the state of a policy is '", packed.type_url(), "', expected ", state.GetTypeName()));
}

absl::Status CheckCount(absl::string_view what, int64_t count) {
  if (count >= 0 && count <= kMaxCounted) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " cannot be ", count));
}

absl::Status CheckWorker(int worker, int most_workers) {
  if (worker >= 0 && worker < most_workers) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("worker ", worker, ", but the number of workers is ", most_workers));
}

}  // namespace cairn::ps
