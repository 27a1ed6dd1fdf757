#include "ps/log/sequencer_data.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "ps/log/follow_proto.h"

namespace cairn::ps {
namespace {

// A decision without an index in the log.
v1::Decision Unnumbered(const LogEntry::Action& action) {
  return ToProto(LogEntry{.index = 0, .action = action});
}

v1::SequencerState::Measuring Save(const SequencerData::Measuring& measuring) {
  v1::SequencerState::Measuring proto;
  *proto.mutable_apply() = Unnumbered(measuring.apply).apply();
  proto.set_norms(static_cast<int64_t>(measuring.norms));
  proto.set_index(measuring.index);
  for (const auto& [server, sums] : measuring.sums) (*proto.mutable_sums())[server] = ToProto(sums);
  return proto;
}

absl::StatusOr<SequencerData::Measuring> Read(const v1::SequencerState::Measuring& proto) {
  v1::Decision decision;
  *decision.mutable_apply() = proto.apply();
  CAIRN_ASSIGN_OR_RETURN(LogEntry entry, ps::FromProto(decision));
  SequencerData::Measuring measuring = {.apply = std::get<Apply>(std::move(entry.action)),
                                        .norms = static_cast<size_t>(proto.norms()),
                                        .index = proto.index()};
  for (const auto& [server, sums] : proto.sums()) {
    CAIRN_ASSIGN_OR_RETURN(measuring.sums[server], ps::FromProto(sums));
  }
  return measuring;
}

// The log ends at `next_index` and has no gap.
absl::StatusOr<std::deque<LogEntry>> ReadLog(
    const google::protobuf::RepeatedPtrField<v1::Decision>& decisions, int64_t next_index) {
  std::deque<LogEntry> log;
  for (const v1::Decision& decision : decisions) {
    CAIRN_ASSIGN_OR_RETURN(LogEntry entry, ps::FromProto(decision));
    if (entry.index != next_index - decisions.size() + static_cast<int64_t>(log.size())) {
      return absl::InvalidArgumentError(absl::StrCat("the replicated log has a gap at entry ", entry.index));
    }
    log.push_back(std::move(entry));
  }
  return log;
}

absl::Status CheckConsistent(const SequencerData& data) {
  const auto known = [&data](int server) { return data.HasServer(server); };
  bool fits = data.next_index >= 1 && data.next_index <= kMaxCounted;
  for (const int64_t index : data.executed) fits &= index >= 0 && index < data.next_index;
  for (const auto& [key, partial] : data.partials)
    fits &= std::all_of(partial.servers.begin(), partial.servers.end(), known);
  if (data.measuring.has_value()) {
    fits &=
        data.measuring->index == data.next_index - 1 && data.measuring->sums.size() < data.executed.size();
    for (const auto& [server, sums] : data.measuring->sums) fits &= known(server);
  }
  fits &= data.measuring.has_value() || data.behind.empty();
  return fits ? absl::OkStatus() : absl::InvalidArgumentError("the replicated log does not fit the job");
}

}  // namespace

v1::SequencerState ToProto(const SequencerData& data) {
  v1::SequencerState proto;
  proto.mutable_positions()->insert(data.positions.begin(), data.positions.end());
  for (const auto& [key, partial] : data.partials) {
    v1::SequencerState::Partial& entry = *proto.add_partials();
    *entry.mutable_gradient() = ToProto(partial.gradient);
    entry.mutable_servers()->Add(partial.servers.begin(), partial.servers.end());
  }
  for (const auto& [worker, known] : data.workers) {
    v1::SequencerState::Worker& entry = *proto.add_workers();
    entry.set_worker(worker);
    entry.set_incarnation(known.incarnation);
    entry.set_member(known.member);
    entry.set_last_step(known.last_step);
    entry.set_last_config_change(known.last_config_change);
  }
  proto.mutable_executed()->Add(data.executed.begin(), data.executed.end());
  for (const LogEntry& entry : data.log) *proto.add_log() = ToProto(entry);
  proto.set_next_index(data.next_index);
  if (data.measuring.has_value()) *proto.mutable_measuring() = Save(*data.measuring);
  for (const LogEntry::Action& action : data.behind) *proto.add_behind() = Unnumbered(action);
  return proto;
}

absl::StatusOr<SequencerData> FromProto(const v1::SequencerState& proto) {
  SequencerData data = {.positions = {proto.positions().begin(), proto.positions().end()},
                        .executed = {proto.executed().begin(), proto.executed().end()},
                        .next_index = proto.next_index()};
  for (const v1::SequencerState::Partial& entry : proto.partials()) {
    CAIRN_ASSIGN_OR_RETURN(const Gradient gradient, FromProto(entry.gradient()));
    data.partials[gradient.key] = {gradient, {entry.servers().begin(), entry.servers().end()}};
  }
  for (const v1::SequencerState::Worker& entry : proto.workers()) {
    data.workers[entry.worker()] = {.incarnation = entry.incarnation(),
                                    .member = entry.member(),
                                    .last_step = entry.last_step(),
                                    .last_config_change = entry.last_config_change()};
  }
  CAIRN_ASSIGN_OR_RETURN(data.log, ReadLog(proto.log(), proto.next_index()));
  if (proto.has_measuring()) {
    CAIRN_ASSIGN_OR_RETURN(data.measuring, Read(proto.measuring()));
  }
  for (const v1::Decision& decision : proto.behind()) {
    CAIRN_ASSIGN_OR_RETURN(LogEntry entry, ps::FromProto(decision));
    data.behind.push_back(std::move(entry.action));
  }
  CAIRN_RETURN_IF_ERROR(CheckConsistent(data));
  return data;
}

}  // namespace cairn::ps
