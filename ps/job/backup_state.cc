#include "ps/job/backup_state.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "ps/log/follow_proto.h"
#include "ps/replication/shard_backup.h"

namespace cairn::ps {
namespace {

constexpr auto kBeat = std::chrono::milliseconds(200);
// Limit on heartbeats without an echo: an echo of a heartbeat older than kRight does not extend the right.
constexpr size_t kMaxBeats = kRight / kBeat + 1;

std::string Milliseconds(Duration duration) {
  return absl::StrCat(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count(), " ms");
}

}  // namespace

void BackupState::Open(std::shared_ptr<ReplicationSink> sink, int64_t epoch, TimePoint now) {
  Reset();
  sink_ = std::move(sink);
  epoch_ = epoch;
  heard_ = now;
}

std::shared_ptr<ReplicationSink> BackupState::Reset() {
  has_shard_ = has_sequencer_ = in_sync_ = false;
  epoch_ = 0;
  last_beat_ = 0;
  beats_.clear();
  heard_ = {};
  return EndStream();
}

bool BackupState::primary_is_heard(TimePoint now) const {
  return sink_ != nullptr && now - heard_ < kSilent;
}

absl::Status BackupState::CheckMayPromote(TimePoint now) const {
  const Duration silent = now - heard_;
  if (sink_ != nullptr && silent <= kSilent) {
    return absl::UnavailableError(
        absl::StrCat(shard_, " is alive: ", host_, " heard from it ", Milliseconds(silent), " ago"));
  }
  if (silent > kRight) {
    return absl::AbortedError(absl::StrCat(host_, " has not heard from ", shard_, " for ",
                                           Milliseconds(silent),
                                           ": it may have continued without its backup"));
  }
  return absl::OkStatus();
}

absl::Status BackupState::Restore(const v1::ReplicationBody& body, const ReplicatedFloats& floats,
                                  ActiveJob& job, TimePoint now) {
  switch (body.what_case()) {
    case v1::ReplicationBody::kShard:
      CAIRN_RETURN_IF_ERROR(job.shard().Restore(body.shard(), floats.variables, floats.tables));
      has_shard_ = true;
      return absl::OkStatus();
    case v1::ReplicationBody::kSequencer:
      if (job.sequencer() == nullptr) break;
      CAIRN_RETURN_IF_ERROR(Annotate(job.sequencer()->Load(body.sequencer()), "replicated"));
      has_sequencer_ = true;
      return absl::OkStatus();
    case v1::ReplicationBody::kMembers:
      for (const v1::ReplicatedMember& member : body.members().members()) {
        CAIRN_RETURN_IF_ERROR(job.members().Put(member, now));
      }
      return absl::OkStatus();
    case v1::ReplicationBody::kInSync:
      return BecomeInSync(job.sequencer() != nullptr);
    case v1::ReplicationBody::kEntry:
      return AppendReplicated(body.entry(), floats.variables, job.shard(), floats.tables);
    case v1::ReplicationBody::kInput: {
      if (job.sequencer() == nullptr) break;
      CAIRN_ASSIGN_OR_RETURN(SequencerInput input, FromProto(body.input()));
      return job.sequencer()->Step(std::move(input));
    }
    case v1::ReplicationBody::kMember:
      return job.members().Put(body.member(), now);
    case v1::ReplicationBody::kWritten:
      return WriteReplicated(floats.variables, floats.tables, job.shard());
    case v1::ReplicationBody::kEcho:
      OnEcho(body.echo());
      return absl::OkStatus();
    default:  // an item of a component that has no state here
      return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(shard_, " has no sequencer to replicate"));
}

absl::Status BackupState::BecomeInSync(bool has_sequencer) {
  if (!has_shard_ || (has_sequencer && !has_sequencer_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the backup of ", shard_, "'s shard is incomplete, but its primary reports it in sync"));
  }
  in_sync_ = true;
  LogInfo("the backup of ", shard_, "'s shard is in sync");
  return absl::OkStatus();
}

void BackupState::OnEcho(uint64_t echo) {
  while (!beats_.empty() && beats_.front().first <= echo) {
    heard_ = beats_.front().second;
    beats_.pop_front();
  }
}

void BackupState::Acknowledge(uint64_t number) {
  v1::ReplicationAck answer;
  answer.set_replicated(number);
  sink_->Answer(answer);
}

void BackupState::Beat(TimePoint now) {
  if (sink_ == nullptr || (!beats_.empty() && now - beats_.back().second < kBeat)) return;
  beats_.emplace_back(++last_beat_, now);
  if (beats_.size() > kMaxBeats) beats_.pop_front();
  v1::ReplicationAck answer;
  answer.set_beat(last_beat_);
  sink_->Answer(answer);
}

}  // namespace cairn::ps
