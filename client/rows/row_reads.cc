#include "client/rows/row_reads.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/rows/outgoing_rows.h"
#include "common/core/status.h"

namespace cairn::client {

absl::Status RowReads::Read(const LearntJob& job, const RowTables& tables, absl::Span<const RowValues> rows) {
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<Request> request, Send(job, tables, rows));
  return Await(*request);
}

absl::Status RowReads::Begin(const LearntJob& job, const RowTables& tables,
                             absl::Span<const RowValues> rows) {
  CAIRN_ASSIGN_OR_RETURN(begun_.emplace_back(), Send(job, tables, rows));
  return absl::OkStatus();
}

std::vector<RowValues> RowReads::oldest() const {
  CAIRN_CHECK(!begun_.empty());
  return begun_.front()->rows;
}

absl::Status RowReads::Finish() {
  CAIRN_CHECK(!begun_.empty());
  const std::unique_ptr<Request> request = std::move(begun_.front());
  begun_.pop_front();
  return Await(*request);
}

absl::StatusOr<std::unique_ptr<RowReads::Request>> RowReads::Send(const LearntJob& job,
                                                                  const RowTables& tables,
                                                                  absl::Span<const RowValues> rows) {
  auto request = std::make_unique<Request>();
  if (AnyStreamBroke()) CloseStreams();
  request->generation = generation_;
  request->rows.assign(rows.begin(), rows.end());
  CAIRN_ASSIGN_OR_RETURN(request->divided, request->arriving.Expect(tables, rows));
  for (int server = 0; server < connection_.num_servers() && request->begun.ok(); ++server) {
    const bool any = std::any_of(
        request->divided.begin(), request->divided.end(),
        [server](const DividedRows& of_table) { return !of_table.partition->keys_on(server).empty(); });
    if (any) request->begun = SendTo(server, job, tables.encoding(), *request);
  }
  return request;
}

absl::Status RowReads::SendTo(int server, const LearntJob& job, v1::Encoding encoding, Request& request) {
  Stream& stream = streams_[static_cast<size_t>(server)];
  if (stream.session == nullptr) {
    stream.moves = connection_.moves(server);
    stream.session =
        std::make_unique<ServerSession>(connection_.stub(server).streams(), connection_.options().stop);
  }
  Part& part = *request.parts.emplace_back(std::make_unique<Part>());
  part.server = server;
  v1::ClientHeader header;
  header.mutable_read_rows()->set_layout(job.layout_ids[static_cast<size_t>(server)]);
  header.mutable_read_rows()->set_encoding(encoding);
  CAIRN_ASSIGN_OR_RETURN(
      const uint64_t id,
      stream.session->Begin(std::move(header), std::make_unique<RowSink>(request.arriving, server, wire_),
                            part.done.Callback()));
  for (const DividedRows& of_table : request.divided) {
    v1::Rows rows;
    rows.set_table(of_table.table);
    const int64_t bytes = SendKeys(*stream.session, id, rows, of_table.partition->keys_on(server));
    if (wire_ == nullptr) continue;
    wire_->push_bytes.Add(bytes);
    wire_->push_float32_bytes.Add(bytes);
    wire_->row_push_bytes.Add(bytes);
  }
  stream.session->SendEnd(id);
  return absl::OkStatus();
}

absl::Status RowReads::Await(Request& request) {
  absl::Status status = AwaitParts(request);
  if (status.ok() && !request.arriving.complete(connection_.num_servers())) {
    status = absl::InternalError("reading rows: the servers have not sent all of them");
  }
  if (!status.ok() && request.generation == generation_) CloseStreams();
  return status;
}

absl::Status RowReads::AwaitParts(Request& request) {
  CAIRN_RETURN_IF_ERROR(request.begun);
  for (const std::unique_ptr<Part>& part : request.parts) {
    const std::string what = absl::StrCat("reading rows from ", connection_.NameOf(part->server));
    if (request.generation != generation_)
      return absl::UnavailableError(absl::StrCat(what, ": the stream has been closed"));
    const auto done = part->done.Wait(*streams_[static_cast<size_t>(part->server)].session,
                                      std::chrono::duration_cast<std::chrono::milliseconds>(timeout_),
                                      [this] { return connection_.stopped(); });
    CAIRN_RETURN_IF_ERROR(Annotate(done.status(), what));
  }
  return absl::OkStatus();
}

bool RowReads::AnyStreamBroke() const {
  for (size_t server = 0; server < streams_.size(); ++server) {
    const Stream& stream = streams_[server];
    if (stream.session == nullptr) continue;
    if (!stream.session->status().ok() || stream.moves != connection_.moves(static_cast<int>(server)))
      return true;
  }
  return false;
}

void RowReads::CloseStreams() {
  for (Stream& stream : streams_) stream.session.reset();
  ++generation_;
}

void RowReads::Drop() {
  CloseStreams();
  begun_.clear();
}

}  // namespace cairn::client
