#include "ps/rpc/session.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/gradient/codec.h"
#include "common/net/wire/codec.h"
#include "common/net/wire/row_frame.h"
#include "ps/log/work_proto.h"
#include "ps/policy/policy_proto.h"

namespace cairn::ps {
namespace {

constexpr auto kElementBytes = static_cast<int64_t>(sizeof(float));

// Sends the answer to one request. Refers to neither the session nor the job, so a waiting request keeps
// neither alive.
class Answer {
 public:
  // `unanswered`: counts the answers that a session still owes.
  Answer(std::shared_ptr<SessionSink> sink, uint64_t request_id,
         std::shared_ptr<const std::monostate> unanswered = nullptr)
      : sink_(std::move(sink)), unanswered_(std::move(unanswered)) {
    header_.set_request_id(request_id);
  }

  // Sends elements [begin, end) of `data` in chunks, with `shift` added to their offsets.
  void SendElements(const std::shared_ptr<const AlignedBuffer>& data, int64_t begin, int64_t end,
                    int64_t shift = 0) {
    for (int64_t offset = begin; offset < end; offset += net::kMaxPayloadFloats) {
      const int64_t count = std::min(net::kMaxPayloadFloats, end - offset);
      header_.mutable_chunk()->set_offset(shift + offset);
      const absl::Span<const float> chunk(data->data() + offset, static_cast<size_t>(count));
      SendChunk(chunk, data);
    }
  }
  // Sends all of `values` in chunks, encoded; returns the number of bytes. RESOURCE_EXHAUSTED
  // as EncodedValues.
  absl::StatusOr<int64_t> SendValues(const std::shared_ptr<const AlignedBuffer>& values,
                                     v1::Encoding encoding, optim::EncodedValues& encoded) {
    if (encoding == v1::ENCODING_FLOAT32) {
      SendElements(values, 0, values->size());
      return values->size() * kElementBytes;
    }
    CAIRN_ASSIGN_OR_RETURN(const auto data, encoded.Of(values, encoding));
    return SendEncoded(data, encoding, 0, values->size());
  }
  // Sends elements [begin, end) of the values before the answer is due.
  absl::StatusOr<int64_t> SendValues(const std::shared_ptr<const AlignedBuffer>& values,
                                     v1::Encoding encoding, optim::EncodedValues& encoded, int64_t begin,
                                     int64_t end) {
    piece_ = true;
    if (encoding == v1::ENCODING_FLOAT32) {
      SendElements(values, begin, end);
      return (end - begin) * kElementBytes;
    }
    CAIRN_ASSIGN_OR_RETURN(const auto data, encoded.OfPiece(values, encoding, begin, end));
    return SendEncoded(data, encoding, begin, end);
  }
  // Sends the state of a table; returns the number of bytes.
  int64_t SendTable(int table, absl::Span<const std::shared_ptr<const AlignedBuffer>> state) {
    header_.mutable_chunk()->set_table(table);
    int64_t shift = 0;
    for (const auto& buffer : state) {
      SendElements(buffer, 0, buffer->size(), shift);
      shift += buffer->size();
    }
    return shift * kElementBytes;
  }
  // Sends the rows of a table in frames.
  void SendRows(int table, const std::shared_ptr<const std::vector<int64_t>>& ids,
                const std::shared_ptr<const AlignedBuffer>& elements) {
    const auto owner = std::make_shared<
        const std::pair<std::shared_ptr<const std::vector<int64_t>>, std::shared_ptr<const AlignedBuffer>>>(
        ids, elements);
    const size_t row = static_cast<size_t>(elements->size()) / ids->size();
    const auto most =
        static_cast<size_t>(net::kMaxRowFrameFloats / net::RowFrameFloats(static_cast<int64_t>(row)));
    header_.mutable_rows()->set_table(table);
    for (size_t first = 0; first < ids->size(); first += most) {
      const size_t count = std::min(most, ids->size() - first);
      header_.mutable_rows()->set_count(static_cast<int64_t>(count));
      const absl::Span<const float> payload[] = {
          net::AsFloats(absl::MakeConstSpan(*ids).subspan(first, count)),
          elements->span().subspan(first * row, count * row)};
      sink_->Send(header_, payload, owner);
    }
  }
  void SendDone(v1::Done done) {
    *header_.mutable_done() = std::move(done);
    sink_->Send(header_, {}, nullptr);
  }
  void SendFailure(const absl::Status& failure) {
    v1::Done done;
    done.set_code(static_cast<int>(failure.code()));
    done.set_message(std::string(failure.message()));
    SendDone(std::move(done));
  }

 private:
  void SendChunk(absl::Span<const float> chunk, const std::shared_ptr<const AlignedBuffer>& data) {
    if (piece_) {
      sink_->SendValues(header_, {&chunk, 1}, data);
    } else {
      sink_->Send(header_, {&chunk, 1}, data);
    }
  }
  // `data` has element i at byte 2 i; `begin` is even.
  int64_t SendEncoded(const std::shared_ptr<const AlignedBuffer>& data, v1::Encoding encoding, int64_t begin,
                      int64_t end) {
    int64_t floats = 0;
    header_.mutable_chunk()->set_encoding(encoding);
    for (int64_t offset = begin; offset < end; offset += net::kMaxPayloadFloats) {
      const int64_t count = std::min(net::kMaxPayloadFloats, end - offset);
      header_.mutable_chunk()->set_offset(offset);
      header_.mutable_chunk()->set_count(count);
      const absl::Span<const float> chunk(data->data() + offset / 2,
                                          static_cast<size_t>(net::Codec::Floats(count)));
      SendChunk(chunk, data);
      floats += net::Codec::Floats(count);
    }
    return floats * kElementBytes;
  }

  std::shared_ptr<SessionSink> sink_;
  std::shared_ptr<const std::monostate> unanswered_;
  v1::ServerHeader header_;
  bool piece_ = false;
};

// `size`: the number of elements of the server's values.
absl::Status CheckRead(const v1::ReadBegin& begin, int64_t size) {
  const int64_t first = begin.offset();
  if (first < 0 || first > size || begin.count() < 0 || begin.count() > size - first) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read ", begin.count(), " elements at ", first, ": this server has ", size));
  }
  const bool whole = first == 0 && begin.count() == 0;
  if (begin.state() && (begin.marker().empty() || !whole)) {
    return absl::InvalidArgumentError("a state can only be read as a whole, at the marker of a snapshot");
  }
  CAIRN_RETURN_IF_ERROR(net::CheckEncoding(begin.encoding()));
  if (begin.encoding() != v1::ENCODING_FLOAT32 && (begin.state() || !whole)) {
    return absl::InvalidArgumentError("a part of the values, or a state, can only be read as float32");
  }
  if (begin.state() && begin.known_edition() != 0)
    return absl::InvalidArgumentError("a state has no edition");
  if (begin.marker().size() > kMaxMarkerLength) {
    return absl::InvalidArgumentError(absl::StrCat("a marker's name cannot have ", begin.marker().size(),
                                                   " bytes, at most ", kMaxMarkerLength));
  }
  return absl::OkStatus();
}

Gradient GradientOf(const v1::PushBegin& begin) {
  return {.key = {.worker = begin.worker(), .incarnation = begin.incarnation(), .step = begin.step()},
          .base_version = begin.base_version(),
          .examples = begin.examples(),
          .position = begin.position(),
          .groups = FromProto(begin.groups())};
}

absl::Status CheckNumberOfGroups(const v1::PushBegin& begin, const v1::Job& job) {
  const int groups = begin.groups_size();
  if (groups == 0 || groups == job.variable_groups_size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "settings for ", groups, " groups of variables, but the job has ", job.variable_groups_size()));
}

}  // namespace

absl::Status Session::OnFrame(const v1::ClientHeader& header, net::Payload payload) {
  CAIRN_RETURN_IF_ERROR(BeginFrame(header, 0).status());
  return CompleteFrame(payload);
}

absl::StatusOr<absl::Span<char>> Session::BeginFrame(const v1::ClientHeader& header, size_t bytes) {
  frame_ = &header;
  if (!header.has_chunk() && !header.has_rows()) return absl::Span<char>();
  const auto found = open_.find(header.request_id());
  if (found == open_.end()) {
    return absl::InvalidArgumentError(absl::StrCat("frame: ", header.has_chunk() ? "chunk" : "rows",
                                                   " of request ", header.request_id(),
                                                   ", which is not open"));
  }
  frame_request_ = &found->second;
  const Open& open = *frame_request_;
  if (!header.has_chunk() || bytes == 0 || bytes % sizeof(float) != 0 || !open.failure.ok() ||
      open.push == nullptr) {
    return absl::Span<char>();
  }
  const auto count = static_cast<int64_t>(bytes / sizeof(float));
  const absl::Span<float> destination = open.push->DestinationFor(header.chunk(), count);
  return absl::MakeSpan(reinterpret_cast<char*>(destination.data()), destination.size() * sizeof(float));
}

absl::Status Session::CompleteFrame(net::Payload payload) {
  const v1::ClientHeader& header = *frame_;
  const uint64_t id = header.request_id();
  if (header.has_chunk() || header.has_rows()) {
    AddPayload(*frame_request_, header, payload);
    return absl::OkStatus();
  }
  if (!payload.empty()) return absl::InvalidArgumentError("frame: only chunks and rows carry a payload");

  if (header.kind_case() == v1::ClientHeader::kEnd) {
    auto node = open_.extract(id);
    if (node.empty())
      return absl::InvalidArgumentError(absl::StrCat("frame: end of request ", id, ", which is not open"));
    End(id, std::move(node.mapped()));
    return absl::OkStatus();
  }
  if (open_.count(id) > 0)
    return absl::InvalidArgumentError(absl::StrCat("frame: request ", id, " begins twice"));
  if (open_.size() >= kMaxOpen) {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", kMaxOpen, " requests open in one session"));
  }
  if (unanswered_.use_count() > kMaxUnanswered) {  // the session itself holds one reference
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", kMaxUnanswered, " requests of one session wait for their answer"));
  }
  switch (header.kind_case()) {
    case v1::ClientHeader::kPush:
      BeginPush(id, header.push());
      return absl::OkStatus();
    case v1::ClientHeader::kWrite:
      BeginWrite(id, header.write());
      return absl::OkStatus();
    case v1::ClientHeader::kRead:
      Read(id, header.read());
      return absl::OkStatus();
    case v1::ClientHeader::kReadRows:
      BeginRowRead(id, header.read_rows());
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError("frame: unknown kind of header");
  }
}

Session::~Session() {
  // Cairn's workers use one stream for all their pushes. If a client uses one stream per push, the end of a
  // stream means nothing.
  if (pusher_.pushes > 1) server_.PushStreamBroke(pusher_.worker, pusher_.incarnation);
}

void Session::NotePusher(const v1::PushBegin& begin) {
  if (pusher_.worker != begin.worker() || pusher_.incarnation != begin.incarnation()) {
    pusher_ = {.worker = begin.worker(), .incarnation = begin.incarnation()};
  }
  ++pusher_.pushes;
}

void Session::BeginPush(uint64_t request_id, const v1::PushBegin& begin) {
  Open& open = open_[request_id];
  auto job = server_.JobForLayout(begin.layout());
  if (!job.ok()) {
    open.failure = job.status();
    return;
  }
  if ((*job)->job().mode() == v1::MODE_VARIABLES) {
    open.failure = absl::FailedPreconditionError("cannot accept a push: nothing is trained on this server");
    return;
  }
  if (!server_.ready()) {
    open.failure = absl::AbortedError("cannot accept a push: no training job is ready");
    return;
  }
  PushRequest request = {.gradient = GradientOf(begin), .read_values = begin.read_values()};
  open.failure = CheckGradient(request.gradient);
  open.values_encoding = begin.values_encoding();
  if (open.failure.ok()) open.failure = net::CheckEncoding(open.values_encoding);
  if (open.failure.ok() && begin.worker() >= (*job)->most_workers()) {
    open.failure = absl::InvalidArgumentError(absl::StrCat(
        "push of worker ", begin.worker(), ", but the number of workers is ", (*job)->most_workers()));
  }
  if (open.failure.ok()) open.failure = CheckNumberOfGroups(begin, (*job)->job());
  if (open.failure.ok()) open.failure = permissions_.CheckPush(begin.worker(), server_);
  if (open.failure.ok()) open.failure = server_.CheckIncarnationGiven(begin.worker(), begin.incarnation());
  if (!open.failure.ok()) return;
  NotePusher(begin);
  open.job = *std::move(job);
  if (Wants(server_.trace())) {
    open.received = {.lane = TraceLane::kReceive,
                     .index = begin.worker(),
                     .name = "receive",
                     .begin = TraceNanos(std::chrono::steady_clock::now()),
                     .step = begin.base_version() + 1};
  }
  if (request.read_values) {
    request.send_values =
        [sink = sink_, request_id, encoding = open.values_encoding,
         encoded = open.job->shard().store().encoded(), &sent = server_.metrics().sent_bytes](
            const std::shared_ptr<const AlignedBuffer>& values, int64_t first, int64_t end) {
          const auto bytes = Answer(sink, request_id).SendValues(values, encoding, *encoded, first, end);
          if (bytes.ok()) sent.Add(*bytes);
          return bytes.ok();
        };
  }
  request.allow = [sink = sink_](uint64_t bytes) { sink->Allow(bytes); };
  open.push = open.job->shard().BeginPush(request);
  open.worker = begin.worker();
}

void Session::BeginWrite(uint64_t request_id, const v1::WriteBegin& begin) {
  if (const absl::Status allowed = permissions_.CheckWrite(); !allowed.ok()) {
    open_[request_id].failure = allowed;
    return;
  }
  Open& open = open_[request_id];
  open.initialise = begin.initialise();
  auto job = server_.JobForLayout(begin.layout());
  if (!job.ok()) {
    open.failure = job.status();
    return;
  }
  open.job = *std::move(job);
  open.state = open.initialise && open.job->job().has_resumed();
  optim::VariableStore& store = open.job->shard().store();
  open.write = std::make_unique<Accumulator>(open.state ? store.state_pool() : store.pool());
  const size_t num_tables = open.job->shard().tables().size();
  if (static_cast<size_t>(begin.table_states_size()) >= num_tables) {
    open.failure = NoSuchTable(begin.table_states_size(), num_tables);
    return;
  }
  for (int i = 0; open.state && i < begin.table_states_size(); ++i) {
    auto table = ReceivedState::Create(begin.table_states(i), store.budget());
    if (!table.ok()) {
      open.failure = table.status();
      return;
    }
    open.tables.push_back(*std::move(table));
  }
}

void Session::Read(uint64_t request_id, const v1::ReadBegin& begin) {
  auto job = server_.JobForLayout(begin.layout());
  if (!job.ok()) {
    Answer(sink_, request_id).SendFailure(job.status());
    return;
  }
  const int64_t size = (*job)->shard().store().size();
  if (const absl::Status status = CheckRead(begin, size); !status.ok()) {
    Answer(sink_, request_id).SendFailure(status);
    return;
  }
  const int64_t first = begin.offset();
  const int64_t end = begin.count() == 0 ? size : first + begin.count();
  (*job)->shard().Read(
      begin.marker(), [answer = Answer(sink_, request_id, unanswered_), first, end, size,
                       state = begin.state(), encoding = begin.encoding(),
                       known_edition = begin.known_edition(), encoded = (*job)->shard().store().encoded(),
                       &sent = server_.metrics().sent_bytes](absl::StatusOr<ReadResult> result) mutable {
        if (!result.ok()) {
          answer.SendFailure(result.status());
          return;
        }
        v1::Done done;
        const uint64_t edition = result->values.edition;
        if (edition == known_edition) {
          // The reader already has these values.
        } else if (encoding == v1::ENCODING_FLOAT32) {
          answer.SendElements(result->values.data, first, end);
          sent.Add((end - first) * kElementBytes);
        } else if (const auto bytes = answer.SendValues(result->values.data, encoding, *encoded);
                   bytes.ok()) {
          sent.Add(*bytes);
        } else {
          answer.SendFailure(bytes.status());
          return;
        }
        if (state && result->slots != nullptr) {
          answer.SendElements(result->slots, 0, result->slots->size(), size);
          sent.Add(result->slots->size() * kElementBytes);
        }
        for (size_t i = 0; state && i < result->tables.size(); ++i) {
          sent.Add(answer.SendTable(static_cast<int>(i) + 1, result->tables[i]));
        }
        if (state && result->learning_rate.has_value()) done.set_learning_rate(*result->learning_rate);
        for (size_t i = 0; state && i < result->groups.size(); ++i)
          *done.add_groups() = ToProto(result->groups[i]);
        done.set_version(result->values.version);
        done.set_edition(edition);
        done.set_has_values(true);
        done.set_finished(result->finished);
        answer.SendDone(std::move(done));
      });
}

void Session::BeginRowRead(uint64_t request_id, const v1::RowReadBegin& begin) {
  Open& open = open_[request_id];
  auto job = server_.JobForLayout(begin.layout());
  if (!job.ok()) {
    open.failure = job.status();
    return;
  }
  open.job = *std::move(job);
  open.rows = std::make_unique<RowRead>(RowRead{.table = begin.table()});
}

void Session::AddPayload(Open& open, const v1::ClientHeader& header, net::Payload payload) {
  server_.metrics().received_bytes.Add(net::PayloadBytes(payload));
  open.received.bytes += net::PayloadBytes(payload);
  if (!open.failure.ok()) return;
  open.failure =
      header.has_chunk() ? AddChunk(open, header.chunk(), payload) : AddRows(open, header.rows(), payload);
  if (absl::IsInvalidArgument(open.failure)) server_.metrics().malformed_chunks.Add();
}

absl::Status Session::AddChunk(Open& open, const v1::Chunk& chunk, net::Payload payload) {
  if (open.push != nullptr) return open.push->AddChunk(chunk, payload);
  if (open.write == nullptr) return absl::InvalidArgumentError("a read of rows has no chunks");
  if (net::GradientCodecOf(chunk.encoding()) != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("values cannot be sent in ", net::EncodingName(chunk.encoding())));
  }
  if (chunk.table() == 0) return open.write->Add(chunk, payload);
  if (chunk.table() < 0 || static_cast<size_t>(chunk.table()) > open.tables.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a chunk of table ", chunk.table(), ", whose state is not being written"));
  }
  return open.tables[static_cast<size_t>(chunk.table()) - 1]->Add(chunk, payload);
}

absl::Status Session::AddRows(Open& open, const v1::Rows& rows, net::Payload payload) {
  if (open.push != nullptr) return open.push->AddRows(rows, payload);
  if (open.rows == nullptr) return absl::InvalidArgumentError("a write has no rows");
  if (rows.table() != open.rows->table) {
    return absl::InvalidArgumentError(
        absl::StrCat("a read of table ", open.rows->table, " asks for rows of table ", rows.table()));
  }
  CAIRN_ASSIGN_OR_RETURN(const auto received, net::ReceivedRows::Of(rows, payload, /*row_elements=*/0));
  std::vector<int64_t>& ids = open.rows->ids;
  if (ids.size() + received.ids().size() > kMaxRowsRead) {
    return absl::InvalidArgumentError(absl::StrCat("a read of more than ", kMaxRowsRead, " rows"));
  }
  ids.insert(ids.end(), received.ids().begin(), received.ids().end());
  return absl::OkStatus();
}

void Session::End(uint64_t request_id, Open open) {
  if (!open.failure.ok()) {
    Answer(sink_, request_id).SendFailure(open.failure);
    return;
  }
  if (open.write != nullptr) {
    FinishWrite(request_id, std::move(open));
    return;
  }
  if (open.rows != nullptr) {
    FinishRowRead(request_id, std::move(open));
    return;
  }
  if (*open.received.name != '\0') {
    open.received.end = TraceNanos(std::chrono::steady_clock::now());
    server_.trace()->Record(open.received);
  }
  // The answer, even to a repeated push, contains the worker's current assignment.
  WorkSource work;
  if (open.job->hands_out_data()) {
    work = [job = std::weak_ptr<ActiveJob>(open.job), worker = open.worker]() -> std::optional<Work> {
      const auto current = job.lock();
      return current == nullptr ? std::nullopt : current->sequencer()->WorkOf(worker);
    };
  }
  open.job->shard().FinishPush(
      std::move(open.push),
      [answer = Answer(sink_, request_id, unanswered_), &sent = server_.metrics().sent_bytes,
       encoding = open.values_encoding,
       encoded = open.job->shard().store().encoded()](absl::StatusOr<PushResult> result) mutable {
        if (!result.ok()) {
          answer.SendFailure(result.status());
          return;
        }
        v1::Done done;
        done.set_version(result->version);
        done.set_outcome(result->outcome);
        done.set_duplicate(result->duplicate);
        done.set_staleness(result->staleness);
        done.set_finished(result->finished);
        done.set_has_values(result->sent_early);
        if (result->work.has_value()) *done.mutable_work() = ToProto(*result->work);
        // If there is no room for encoded values, the worker reads the values later.
        if (result->values.data != nullptr) {
          const auto bytes = answer.SendValues(result->values.data, encoding, *encoded);
          if (bytes.ok()) sent.Add(*bytes);
          done.set_has_values(bytes.ok());
        }
        answer.SendDone(std::move(done));
      },
      std::move(work));
}

void Session::FinishRowRead(uint64_t request_id, Open open) {
  const int table = open.rows->table;
  const auto ids = std::make_shared<const std::vector<int64_t>>(std::move(open.rows->ids));
  open.job->shard().ReadRows(table, *ids,
                             [answer = Answer(sink_, request_id, unanswered_), table, ids,
                              &sent = server_.metrics().sent_bytes](absl::StatusOr<TableRows> rows) mutable {
                               if (!rows.ok()) {
                                 answer.SendFailure(rows.status());
                                 return;
                               }
                               if (!ids->empty()) {
                                 answer.SendRows(table, ids, rows->elements);
                                 sent.Add(rows->elements->size() * kElementBytes);
                               }
                               v1::Done done;
                               done.set_version(rows->version);
                               done.set_has_values(true);
                               answer.SendDone(std::move(done));
                             });
}

void Session::FinishWrite(uint64_t request_id, Open open) {
  optim::VariableStore& store = open.job->shard().store();
  const int64_t size = open.state ? store.state_pool().buffer_size() : store.size();
  if (open.initialise && !open.write->complete()) {
    Answer(sink_, request_id)
        .SendFailure(absl::InvalidArgumentError(
            absl::StrCat("initial values: ", open.write->received(), " of ", size, " elements received")));
    return;
  }
  ReceivedTables tables;
  for (const auto& table : open.tables) {
    if (!table->complete()) {
      Answer(sink_, request_id)
          .SendFailure(absl::InvalidArgumentError(absl::StrCat("state of table ", tables.size() + 1, ": ",
                                                               table->received(), " of ", table->size(),
                                                               " elements received")));
      return;
    }
    tables.push_back(table->Take());
  }
  WriteReply written = [answer = Answer(sink_, request_id, unanswered_), &server = server_,
                        layout = open.job->layout(),
                        initialise = open.initialise](absl::StatusOr<int64_t> version) mutable {
    if (!version.ok()) {
      answer.SendFailure(version.status());
      return;
    }
    if (initialise) server.OnInitialised(layout);
    // If variables were added meanwhile, the job's values may have been copied before this write. Then the
    // client must repeat the write.
    if (auto job = server.JobForLayout(layout); !job.ok()) {
      answer.SendFailure(job.status());
      return;
    }
    v1::Done done;
    done.set_version(*version);
    answer.SendDone(std::move(done));
  };
  if (open.state) {
    open.job->shard().WriteState(std::move(open.write), std::move(tables), std::move(written));
  } else {
    open.job->shard().Write(std::move(open.write), std::move(written));
  }
}

}  // namespace cairn::ps
