#include "ps/rpc/backup_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::ps {
namespace {

// Limits on the size of an origin and of other items. An origin describes a job, which the primary received
// in one message. The state of a sequencer with a full log takes some MiB.
constexpr size_t kMaxOrigin = size_t{16} << 20, kMaxText = size_t{256} << 20;
// The share of a body that fits into the header of one frame.
constexpr size_t kTextOfFrame = size_t{32} << 10;

}  // namespace

absl::Status BackupSession::OnFrame(const v1::ReplicationHeader& header, net::Payload payload) {
  absl::Status status = Take(header, payload);
  if (status.ok() || absl::IsAborted(status) || absl::IsCancelled(status)) return status;
  // When the sender receives this error, it continues without a backup. Therefore this backup must not be
  // promoted any more.
  hosted_.BackupClosed(sink_.get(), /*spoilt=*/true);
  return absl::FailedPreconditionError(status.message());
}

absl::Status BackupSession::Take(const v1::ReplicationHeader& header, net::Payload payload) {
  switch (header.kind_case()) {
    case v1::ReplicationHeader::kText: {
      const size_t most = job_ == nullptr ? kMaxOrigin : kMaxText;
      if (text_.size() + header.text().size() > most) {
        return absl::ResourceExhaustedError(
            absl::StrCat("replication: the body of a message exceeds ", most, " bytes"));
      }
      text_ += header.text();
      return absl::OkStatus();
    }
    case v1::ReplicationHeader::kFloats: {
      if (job_ == nullptr)
        return absl::InvalidArgumentError(
            "replication: values arrived before the job's description (origin)");
      if (header.floats().table() != 0) return AddToTable(header.floats(), payload);
      optim::VariableStore& store = job_->shard().store();
      if (floats_ == nullptr) {
        floats_ = std::make_unique<Accumulator>(header.floats().state() ? store.state_pool() : store.pool());
      }
      v1::Chunk chunk;
      chunk.set_offset(header.floats().offset());
      return floats_->Add(chunk, payload);
    }
    case v1::ReplicationHeader::kItem:
      return OnItem(header.item());
    default:
      return absl::InvalidArgumentError("replication: unknown kind of frame");
  }
}

absl::Status BackupSession::AddToTable(const v1::ReplicationFloats& floats, net::Payload payload) {
  const Shard& shard = job_->shard();
  tables_.resize(shard.tables().size() - 1);
  if (floats.table() < 1 || static_cast<size_t>(floats.table()) > tables_.size()) {
    return NoSuchTable(floats.table(), shard.tables().size());
  }
  std::unique_ptr<ReceivedState>& table = tables_[static_cast<size_t>(floats.table()) - 1];
  if (table == nullptr) {
    CAIRN_ASSIGN_OR_RETURN(table, ReceivedState::Create(floats.size(), shard.store().budget()));
  }
  v1::Chunk chunk;
  chunk.set_offset(floats.offset());
  return table->Add(chunk, payload);
}

absl::Status BackupSession::OnItem(const v1::ReplicationItem& item) {
  v1::ReplicationBody body;
  const std::string text = absl::StrCat(std::exchange(text_, std::string()), item.text());
  const std::unique_ptr<Accumulator> floats = std::move(floats_);
  const std::vector<std::unique_ptr<ReceivedState>> tables = std::exchange(tables_, {});
  int64_t received = floats == nullptr ? 0 : floats->received();
  bool complete = floats == nullptr || floats->complete();
  for (const auto& table : tables) {
    if (table == nullptr) continue;
    received += table->received();
    complete = complete && table->complete();
  }
  if (received != item.floats() || !complete || !body.ParseFromString(text)) {
    return absl::InvalidArgumentError(absl::StrCat("replication: item ", item.number(), " declares ",
                                                   item.floats(), " values and came with ", received,
                                                   ", or its body is malformed"));
  }
  if (!body.has_origin()) {
    if (job_ == nullptr)
      return absl::InvalidArgumentError("replication: the first message must describe the job (origin)");
    ReplicatedFloats values;
    if (floats != nullptr) values.variables = floats->Take().buffer();
    for (const auto& table : tables) values.tables.push_back(table == nullptr ? nullptr : table->Take());
    return hosted_.OnReplicated(sink_.get(), item.number(), body, values);
  }
  if (job_ != nullptr)
    return absl::InvalidArgumentError("replication: one stream described the job twice (origin)");
  CAIRN_ASSIGN_OR_RETURN(job_, hosted_.OpenBackup(body.origin(), sink_));
  v1::ReplicationAck answer;
  answer.set_replicated(item.number());
  answer.set_keeper(hosted_.process());
  sink_->Answer(answer);
  return absl::OkStatus();
}

void SplitIntoFrames(
    uint64_t number, const ReplicationItem& item,
    absl::FunctionRef<void(const v1::ReplicationHeader&, net::FloatSpans, const std::shared_ptr<const void>&)>
        send) {
  v1::ReplicationHeader header;
  // Sends the buffers one after another, and returns their size.
  const auto send_floats = [&](absl::Span<const std::shared_ptr<const AlignedBuffer>> buffers) {
    int64_t offset = 0;
    for (const auto& buffer : buffers) {
      for (int64_t begin = 0; begin < buffer->size(); begin += net::kMaxPayloadFloats) {
        const int64_t count = std::min(net::kMaxPayloadFloats, buffer->size() - begin);
        header.mutable_floats()->set_offset(offset + begin);
        const absl::Span<const float> chunk(buffer->data() + begin, static_cast<size_t>(count));
        send(header, {&chunk, 1}, buffer);
      }
      offset += buffer->size();
    }
    return offset;
  };
  header.mutable_floats()->set_state(item.state);
  int64_t floats = send_floats(item.floats);
  for (size_t i = 0; i < item.tables.size(); ++i) {
    int64_t size = 0;
    for (const auto& buffer : item.tables[i]) size += buffer->size();
    header.mutable_floats()->set_table(static_cast<int>(i) + 1);
    header.mutable_floats()->set_size(size);
    floats += send_floats(item.tables[i]);
  }
  const std::string text = item.body.SerializeAsString();
  absl::string_view rest = text;
  for (; rest.size() > kTextOfFrame; rest.remove_prefix(kTextOfFrame)) {
    header.set_text(std::string(rest.substr(0, kTextOfFrame)));
    send(header, {}, nullptr);
  }
  header.mutable_item()->set_number(number);
  header.mutable_item()->set_text(std::string(rest));
  header.mutable_item()->set_floats(floats);
  send(header, {}, nullptr);
}

}  // namespace cairn::ps
