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
// The share of the bodies that fits into the header of one frame.
constexpr size_t kTextOfFrame = size_t{32} << 10;
// The most items of one frame: what each of them adds to the bodies fits into the header too.
constexpr int kItemsOfFrame = 256;

v1::Chunk ChunkOf(const v1::ReplicationFloats& floats) {
  v1::Chunk chunk;
  chunk.set_offset(floats.offset());
  return chunk;
}

// Makes frames of items: as many small items in one frame as fit, and an item's last values with the item and
// the small items before it.
class Frames {
 public:
  explicit Frames(SendFrame send) : send_(send) {}

  void Add(const NumberedItem& numbered) {
    if (numbered.run.has_value()) {
      End();
      AddRun(*numbered.run);
      End();
      return;
    }
    const std::string text = numbered.item.body.SerializeAsString();
    // Text belongs to the first item of a frame.
    const bool first = text.size() > kTextOfFrame;
    if (first || text_bytes_ + text.size() > kTextOfFrame || header_.items_size() >= kItemsOfFrame) End();
    const int64_t floats = AddFloats(numbered.item);
    absl::string_view rest = text;
    for (; rest.size() > kTextOfFrame; rest.remove_prefix(kTextOfFrame)) {
      End();
      header_.set_text(std::string(rest.substr(0, kTextOfFrame)));
    }
    if (!header_.text().empty()) End();
    text_bytes_ += rest.size();
    v1::ReplicationItem& item = *header_.add_items();
    item.set_number(numbered.number);
    item.set_text(std::string(rest));
    item.set_floats(floats);
  }
  // Sends the last frame.
  void End() {
    if (!header_.has_floats() && header_.text().empty() && header_.items().empty()) return;
    send_(header_, payload_, owner_);
    header_.Clear();
    payload_ = {};
    owner_.reset();
    text_bytes_ = 0;
  }

 private:
  void AddRun(const MeanRun& of) {
    v1::ReplicationFloats run;
    run.set_version(of.version);
    for (int64_t begin = of.begin; begin < of.end; begin += net::kMaxPayloadFloats) {
      End();
      run.set_offset(begin);
      *header_.mutable_floats() = run;
      payload_ = of.mean->span().subspan(
          static_cast<size_t>(begin),
          static_cast<size_t>(std::min<int64_t>(of.end - begin, net::kMaxPayloadFloats)));
      owner_ = of.mean;
    }
  }
  // Returns the number of values. Their last frame has not been sent yet.
  int64_t AddFloats(const ReplicationItem& item) {
    v1::ReplicationFloats run;
    run.set_state(item.state);
    int64_t floats = AddBuffers(item.floats, run);
    for (size_t i = 0; i < item.tables.size(); ++i) {
      int64_t size = 0;
      for (const auto& buffer : item.tables[i]) size += buffer->size();
      run.set_table(static_cast<int>(i) + 1);
      run.set_size(size);
      floats += AddBuffers(item.tables[i], run);
    }
    return floats;
  }
  // Adds the buffers one after another, each run as `run` apart from its offset. Returns their size.
  int64_t AddBuffers(absl::Span<const std::shared_ptr<const AlignedBuffer>> buffers,
                     v1::ReplicationFloats run) {
    int64_t offset = 0;
    for (const auto& buffer : buffers) {
      for (int64_t begin = 0; begin < buffer->size(); begin += net::kMaxPayloadFloats) {
        if (header_.has_floats()) End();
        run.set_offset(offset + begin);
        *header_.mutable_floats() = run;
        payload_ = buffer->span().subspan(static_cast<size_t>(begin), net::kMaxPayloadFloats);
        owner_ = buffer;
      }
      offset += buffer->size();
    }
    return offset;
  }

  const SendFrame send_;
  // The frame that has not been sent.
  v1::ReplicationHeader header_;
  absl::Span<const float> payload_;
  std::shared_ptr<const void> owner_;
  size_t text_bytes_ = 0;  // of the items of header_
};

}  // namespace

absl::Status BackupSession::OnFrame(const v1::ReplicationHeader& header, net::Payload payload) {
  absl::Status status = Take(header, payload);
  if (status.ok() || absl::IsAborted(status) || absl::IsCancelled(status) || sender_is_gone_) return status;
  // When the sender receives this error, it continues without a backup. Therefore this backup must not be
  // promoted any more.
  hosted_.BackupClosed(sink_.get(), /*spoilt=*/true);
  return absl::FailedPreconditionError(status.message());
}

absl::Status BackupSession::Take(const v1::ReplicationHeader& header, net::Payload payload) {
  if (!header.has_floats() && header.text().empty() && header.items().empty()) {
    return absl::InvalidArgumentError("replication: an empty frame");
  }
  CAIRN_RETURN_IF_ERROR(TakeText(header.text()));
  if (header.has_floats()) CAIRN_RETURN_IF_ERROR(TakeFloats(header.floats(), payload));
  for (int i = 0; i < header.items_size(); ++i) {
    CAIRN_RETURN_IF_ERROR(OnItem(header.items(i), /*acknowledged=*/i + 1 == header.items_size()));
  }
  return absl::OkStatus();
}

absl::Status BackupSession::TakeText(const std::string& text) {
  const size_t most = job_ == nullptr ? kMaxOrigin : kMaxText;
  if (text_.size() + text.size() > most) {
    return absl::ResourceExhaustedError(
        absl::StrCat("replication: the body of a message exceeds ", most, " bytes"));
  }
  text_ += text;
  return absl::OkStatus();
}

absl::Status BackupSession::TakeFloats(const v1::ReplicationFloats& floats, net::Payload payload) {
  if (job_ == nullptr)
    return absl::InvalidArgumentError("replication: values arrived before the job's description (origin)");
  absl::Status added =
      floats.table() == 0 ? FloatsOf(floats).Add(ChunkOf(floats), payload) : AddToTable(floats, payload);
  sender_is_gone_ = absl::IsUnavailable(added);
  return added;
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
  return table->Add(ChunkOf(floats), payload);
}

Accumulator& BackupSession::FloatsOf(const v1::ReplicationFloats& floats) {
  optim::VariableStore& store = job_->shard().store();
  if (floats.version() != 0) {
    if (sent_mean_.version != floats.version() || sent_mean_.runs == nullptr) {
      sent_mean_ = {.version = floats.version(), .runs = std::make_unique<Accumulator>(store.pool())};
    }
    return *sent_mean_.runs;
  }
  if (floats_ == nullptr) {
    floats_ = std::make_unique<Accumulator>(floats.state() ? store.state_pool() : store.pool());
  }
  return *floats_;
}

absl::StatusOr<std::shared_ptr<const AlignedBuffer>> BackupSession::TakeSentMean(
    const v1::ReplicatedEntry& entry) {
  const int64_t version = entry.decision().apply().version();
  if (sent_mean_.runs == nullptr || sent_mean_.version != version || !sent_mean_.runs->complete()) {
    return absl::InvalidArgumentError(
        absl::StrCat("replication: the update to version ", version, " came without the runs of its mean"));
  }
  return std::exchange(sent_mean_, {}).runs->Take().buffer();
}

absl::Span<char> BackupSession::DestinationFor(const v1::ReplicationHeader& header, size_t bytes) {
  if (job_ == nullptr || !header.has_floats() || header.floats().table() != 0 || bytes == 0 ||
      bytes % sizeof(float) != 0)
    return {};
  const absl::Span<float> place =
      FloatsOf(header.floats())
          .DestinationFor(ChunkOf(header.floats()), static_cast<int64_t>(bytes / sizeof(float)));
  return {reinterpret_cast<char*>(place.data()), place.size() * sizeof(float)};
}

absl::Status BackupSession::OnItem(const v1::ReplicationItem& item, bool acknowledged) {
  v1::ReplicationBody body;
  const std::string text = absl::StrCat(std::exchange(text_, std::string()), item.text());
  std::unique_ptr<Accumulator> floats;
  std::vector<std::unique_ptr<ReceivedState>> tables;
  if (item.floats() != 0) {
    floats = std::move(floats_);
    tables = std::exchange(tables_, {});
  }
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
    if (body.entry().sent()) {
      CAIRN_ASSIGN_OR_RETURN(values.variables, TakeSentMean(body.entry()));
    } else if (body.entry().decision().has_apply()) {
      sent_mean_ = {};  // the update was made in another way
    }
    for (const auto& table : tables) values.tables.push_back(table == nullptr ? nullptr : table->Take());
    return hosted_.OnReplicated(sink_.get(), acknowledged ? item.number() : 0, body, values);
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

void PutIntoFrames(absl::Span<const NumberedItem> items, SendFrame send) {
  Frames frames(send);
  for (const NumberedItem& item : items) frames.Add(item);
  frames.End();
}

}  // namespace cairn::ps
