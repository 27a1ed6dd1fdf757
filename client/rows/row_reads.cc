#include "client/rows/row_reads.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/rows/outgoing_rows.h"
#include "common/core/status.h"

namespace cairn::client {

absl::Status RowReads::Read(const LearntJob& job, const RowTables& tables, absl::Span<const RowValues> rows) {
  std::vector<Part> parts;
  ArrivingRows arriving;
  for (const RowValues& of_table : rows) {
    const auto of_row = static_cast<size_t>(tables.row_elements(of_table.table));
    CAIRN_CHECK(of_table.rows.size() == of_table.keys.size() * of_row);
    CAIRN_ASSIGN_OR_RETURN(RowPartition partition, tables.Divide(of_table.table, of_table.keys));
    parts.push_back(
        {.table = of_table.table, .partition = std::make_shared<const RowPartition>(std::move(partition))});
    arriving.Expect(of_table.table, parts.back().partition, of_table.rows);
  }
  std::vector<Reading> readings;
  absl::Status status = Exchange(job, tables.encoding(), parts, arriving, readings);
  if (status.ok() && !arriving.complete(connection_.num_servers())) {
    status = absl::InternalError("reading rows: the servers have not sent all of them");
  }
  if (!status.ok()) Drop();  // before `readings` and `arriving`, which the streams use
  return status;
}

absl::Status RowReads::Exchange(const LearntJob& job, v1::Encoding encoding, absl::Span<const Part> parts,
                                ArrivingRows& arriving, std::vector<Reading>& readings) {
  for (int server = 0; server < connection_.num_servers(); ++server) {
    const bool any = std::any_of(parts.begin(), parts.end(), [server](const Part& part) {
      return !part.partition->keys_on(server).empty();
    });
    if (!any) continue;
    readings.push_back({.server = server});
    CAIRN_RETURN_IF_ERROR(Begin(job, encoding, parts, arriving, readings.back()));
  }
  for (Reading& reading : readings) {
    const auto done = reading.done->Wait(SessionOf(reading.server),
                                         std::chrono::duration_cast<std::chrono::milliseconds>(timeout_));
    CAIRN_RETURN_IF_ERROR(
        Annotate(done.status(), absl::StrCat("reading rows from ", connection_.NameOf(reading.server))));
  }
  return absl::OkStatus();
}

absl::Status RowReads::Begin(const LearntJob& job, v1::Encoding encoding, absl::Span<const Part> parts,
                             ArrivingRows& arriving, Reading& reading) {
  const int server = reading.server;
  Stream& stream = streams_[static_cast<size_t>(server)];
  if (stream.session == nullptr || !stream.session->status().ok() ||
      stream.moves != connection_.moves(server)) {
    stream.session.reset();
    stream.moves = connection_.moves(server);
    stream.session = std::make_unique<ServerSession>(connection_.stub(server).streams());
  }
  v1::ClientHeader header;
  header.mutable_read_rows()->set_layout(job.layout_ids[static_cast<size_t>(server)]);
  header.mutable_read_rows()->set_encoding(encoding);
  CAIRN_ASSIGN_OR_RETURN(
      const uint64_t id,
      stream.session->Begin(std::move(header), std::make_unique<RowSink>(arriving, server, wire_),
                            reading.done->Callback()));
  for (const Part& part : parts) {
    v1::Rows rows;
    rows.set_table(part.table);
    const int64_t bytes = SendKeys(*stream.session, id, rows, part.partition->keys_on(server));
    if (wire_ == nullptr) continue;
    wire_->push_bytes.Add(bytes);
    wire_->push_float32_bytes.Add(bytes);
    wire_->row_push_bytes.Add(bytes);
  }
  stream.session->SendEnd(id);
  return absl::OkStatus();
}

ServerSession& RowReads::SessionOf(int server) {
  return *streams_[static_cast<size_t>(server)].session;
}

void RowReads::Drop() {
  for (Stream& stream : streams_) stream.session.reset();
}

}  // namespace cairn::client
