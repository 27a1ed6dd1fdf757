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
#include "ps/rpc/answer.h"

namespace cairn::ps {
namespace {

TraceEvent Receiving(const v1::PushBegin& begin) {
  return {.lane = TraceLane::kReceive,
          .index = begin.worker(),
          .name = "receive",
          .begin = TraceNanos(std::chrono::steady_clock::now()),
          .step = begin.base_version() + 1};
}

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

absl::Status CheckGroupsOf(const Gradient& gradient, const ActiveJob& job) {
  const auto groups = static_cast<int>(gradient.groups.size());
  if (groups == 0) return absl::OkStatus();
  if (groups == job.job().variable_groups_size()) {
    return Annotate(job.shard().CheckGroups(gradient.groups), Describe(gradient.key));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "settings for ", groups, " groups of variables, but the job has ", job.job().variable_groups_size()));
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
  if (open.failure.ok()) open.failure = CheckGroupsOf(request.gradient, **job);
  if (open.failure.ok()) open.failure = permissions_.CheckPush(begin.worker(), server_);
  if (open.failure.ok()) open.failure = server_.CheckIncarnationGiven(begin.worker(), begin.incarnation());
  if (!open.failure.ok()) return;
  NotePusher(begin);
  open.job = *std::move(job);
  if (Wants(server_.trace())) open.received = Receiving(begin);
  if (request.read_values) {
    request.send_values =
        [sink = sink_, request_id, encoding = open.values_encoding,
         encoded = open.job->shard().store().encoded(), &sent = server_.metrics().sent_bytes](
            const std::shared_ptr<const AlignedBuffer>& values, int64_t first, int64_t end) {
          const auto bytes = Answer(sink, request_id).SendEarly(values, encoding, *encoded, first, end);
          if (bytes.ok()) sent.Add(*bytes);
          return bytes.ok();
        };
  }
  request.allow = [sink = sink_](uint64_t bytes) { sink->Allow(bytes); };
  open.known = known_rows_;
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
  if (begin.table_states_size() > 0) {
    auto tables = WrittenTables::For(begin, *open.job, std::move(written_tables_));
    open.failure = tables.status();
    if (tables.ok()) open.tables = written_tables_ = *std::move(tables);
  }
  open.partial = begin.partial();
  if (open.partial && open.tables == nullptr && open.failure.ok()) {
    open.failure = absl::InvalidArgumentError("only states of tables are written in parts");
  }
}

void Session::Read(uint64_t request_id, const v1::ReadBegin& begin) {
  auto job = server_.JobForLayout(begin.layout());
  if (!job.ok()) {
    Answer(sink_, request_id).SendFailure(job.status());
    return;
  }
  if (begin.table() != 0) {
    server_.metrics().sent_bytes.Add(kept_tables_->Read(begin, Answer(sink_, request_id)));
    return;
  }
  const int64_t size = (*job)->shard().store().size();
  if (const absl::Status status = CheckRead(begin, size); !status.ok()) {
    Answer(sink_, request_id).SendFailure(status);
    return;
  }
  const int64_t first = begin.offset();
  const int64_t end = begin.count() == 0 ? size : first + begin.count();
  (*job)->shard().Read(begin.marker(), [answer = Answer(sink_, request_id, unanswered_), first, end, size,
                                        state = begin.state(), encoding = begin.encoding(),
                                        known_edition = begin.known_edition(),
                                        encoded = (*job)->shard().store().encoded(), kept = kept_tables_,
                                        &sent = server_.metrics().sent_bytes](
                                           absl::StatusOr<ReadResult> result) mutable {
    if (!result.ok()) {
      answer.SendFailure(result.status());
      return;
    }
    v1::Done done;
    const uint64_t edition = result->values.edition;
    if (edition == known_edition) {
      // The reader already has these values.
    } else if (encoding == v1::ENCODING_FLOAT32) {
      sent.Add(answer.SendElements(result->values.data, first, end));
    } else if (const auto bytes = answer.SendValues(result->values.data, encoding, *encoded); bytes.ok()) {
      sent.Add(*bytes);
    } else {
      answer.SendFailure(bytes.status());
      return;
    }
    if (state && result->slots != nullptr) {
      sent.Add(answer.SendElements(result->slots, 0, result->slots->size(), size));
    }
    if (state) kept->Keep(std::move(result->tables), done);
    if (state && result->learning_rate.has_value()) done.set_learning_rate(*result->learning_rate);
    if (state) {
      *done.mutable_groups() = ToProto(result->groups);
      *done.mutable_skipped_updates() = ToProto(result->skipped);
    }
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
  if (!server_.ready()) {
    open.failure = absl::AbortedError("cannot read rows: no training job is ready");
    return;
  }
  open.failure = net::CheckEncoding(begin.encoding());
  open.values_encoding = begin.encoding();
  open.job = *std::move(job);
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
  if (chunk.table() != 0) return AddTo(open.tables.get(), chunk, payload);
  if (open.partial)
    return absl::InvalidArgumentError("a chunk of the values in a part of the states of tables");
  return open.write->Add(chunk, payload);
}

absl::Status Session::AddRows(Open& open, const v1::Rows& rows, net::Payload payload) {
  if (open.write != nullptr) return absl::InvalidArgumentError("a write has no rows");
  if (open.push != nullptr && !rows.wanted()) return AddRowGradients(open, rows, payload);
  if (open.leaves_rows_out) return absl::OkStatus();
  if (open.wanted == nullptr) {
    Shard& shard = open.job->shard();
    open.wanted = std::make_shared<WantedRows>(shard.tables().size(), shard.store().budget());
  }
  absl::Status added = open.wanted->Add(rows, payload);
  if (open.push == nullptr || !absl::IsResourceExhausted(added)) return added;
  open.leaves_rows_out = true;
  open.wanted.reset();
  return absl::OkStatus();
}

absl::Status Session::AddRowGradients(Open& open, const v1::Rows& rows, net::Payload payload) {
  const size_t num_tables = open.job->shard().tables().size();
  if (rows.table() < 0 || static_cast<size_t>(rows.table()) >= num_tables) {
    return NoSuchTable(rows.table(), num_tables);
  }
  if (rows.table() == 0) {
    return absl::InvalidArgumentError("the gradients of variables are pushed in chunks, not in rows");
  }
  if (open.push->repeats()) return absl::OkStatus();
  const auto table = static_cast<size_t>(rows.table());
  const int64_t row_elements = open.job->job().tables(rows.table() - 1).row_elements();
  if (!rows.has_known()) {
    CAIRN_ASSIGN_OR_RETURN(auto received, net::ReceivedRows::Of(rows, payload, row_elements));
    return open.push->AddRows(table, std::move(received));
  }
  const absl::Span<const int64_t> known =
      open.known == nullptr ? absl::Span<const int64_t>() : open.known->ids(rows.table());
  const auto num_known = static_cast<int64_t>(known.size());
  if (rows.known() < 0 || rows.known() > num_known || rows.count() < 1 ||
      rows.count() > num_known - rows.known()) {
    return absl::InvalidArgumentError(absl::StrCat("a push refers to ", rows.count(), " rows from ",
                                                   rows.known(), " on of table ", rows.table(),
                                                   ": the previous push of its stream wanted ", num_known));
  }
  CAIRN_ASSIGN_OR_RETURN(auto received,
                         net::ReceivedRows::OfKnown(rows, payload, row_elements,
                                                    known.subspan(static_cast<size_t>(rows.known()),
                                                                  static_cast<size_t>(rows.count()))));
  return open.push->AddRows(table, std::move(received));
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
  if (open.push == nullptr) {
    FinishRowRead(request_id, std::move(open));
    return;
  }
  open.push->Want(open.wanted);
  known_rows_ = std::move(open.wanted);
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
       encoding = open.values_encoding, encoded = open.job->shard().store().encoded(),
       budget = open.job->shard().store().budget()](absl::StatusOr<PushResult> result) mutable {
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
        // If there is no room for encoded values or rows, the worker reads them later.
        if (const auto bytes = answer.SendRows(result->rows, encoding, budget); bytes.ok()) sent.Add(*bytes);
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
  Shard& shard = open.job->shard();
  std::shared_ptr<const WantedRows> wanted = std::move(open.wanted);
  if (wanted == nullptr) wanted = std::make_shared<WantedRows>(shard.tables().size(), shard.store().budget());
  shard.ReadRows(
      std::move(wanted), [answer = Answer(sink_, request_id, unanswered_), encoding = open.values_encoding,
                          budget = shard.store().budget(),
                          &sent = server_.metrics().sent_bytes](absl::StatusOr<AnsweredRows> rows) mutable {
        const auto bytes =
            rows.ok() ? answer.SendRows(*rows, encoding, budget) : absl::StatusOr<int64_t>(rows.status());
        if (!bytes.ok()) {
          answer.SendFailure(bytes.status());
          return;
        }
        sent.Add(*bytes);
        v1::Done done;
        done.set_version(rows->version);
        done.set_has_values(true);
        answer.SendDone(std::move(done));
      });
}

void Session::FinishWrite(uint64_t request_id, Open open) {
  if (open.partial) {
    Answer(sink_, request_id).SendDone(v1::Done());
    return;
  }
  optim::VariableStore& store = open.job->shard().store();
  const int64_t size = open.state ? store.state_pool().buffer_size() : store.size();
  if (open.initialise && !open.write->complete()) {
    Answer(sink_, request_id)
        .SendFailure(absl::InvalidArgumentError(
            absl::StrCat("initial values: ", open.write->received(), " of ", size, " elements received")));
    return;
  }
  ReceivedTables tables;
  if (open.tables != nullptr) {
    if (open.tables == written_tables_) written_tables_.reset();
    auto taken = open.tables->Take();
    if (!taken.ok()) {
      Answer(sink_, request_id).SendFailure(taken.status());
      return;
    }
    tables = *std::move(taken);
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
    open.job->shard().Write(std::move(open.write), std::move(tables), std::move(written));
  }
}

}  // namespace cairn::ps
