#include "client/table_states.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/transport/request.h"
#include "common/core/status.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/grpc/call_limit.h"
#include "common/net/wire/received_elements.h"

namespace cairn::client {
namespace {

// The number of pieces in memory: one is transferred while the other one is read from a file or written to it.
constexpr size_t kPieces = 2;

// A server closes a session that is not used for some time (docs/design/memory.md), so each is used at least this
// often.
constexpr auto kKeepAlive = std::chrono::minutes(1);

// The size of the buffers for pieces of at most `most` floats: no larger than the largest state.
int64_t BufferFloats(const TableSizes& sizes, int64_t most) {
  int64_t largest = 0;
  for (const std::vector<int64_t>& of_server : sizes) {
    for (const int64_t size : of_server) largest = std::max(largest, size);
  }
  return std::min(most, largest);
}

// Visits the states of all servers in pieces; the servers take turns.
class Cursor {
 public:
  explicit Cursor(const TableSizes& sizes) : sizes_(sizes), at_(sizes.size()) {}

  struct Place {
    int server = 0, table = 0;
    int64_t offset = 0, count = 0;
  };
  // The next piece, of at most `most` floats; nullopt at the end of all states.
  std::optional<Place> Next(int64_t most) {
    for (size_t tried = 0; tried < at_.size(); ++tried) {
      const size_t server = next_;
      next_ = (next_ + 1) % at_.size();
      At& at = at_[server];
      while (at.table < sizes_[server].size() && at.offset == sizes_[server][at.table])
        ++at.table, at.offset = 0;
      if (at.table == sizes_[server].size()) continue;
      const Place place = {.server = static_cast<int>(server),
                           .table = static_cast<int>(at.table) + 1,
                           .offset = at.offset,
                           .count = std::min(most, sizes_[server][at.table] - at.offset)};
      at.offset += place.count;
      return place;
    }
    return std::nullopt;
  }

 private:
  struct At {
    size_t table = 0;  // from 0
    int64_t offset = 0;
  };
  const TableSizes& sizes_;
  std::vector<At> at_;  // [server]
  size_t next_ = 0;
};

}  // namespace

// Elements [offset, offset + count) of the state of a table, and the request that transfers them.
struct TableTransfer::Piece {
  int server = 0, table = 0;
  int64_t offset = 0, count = 0;
  int64_t received = 0;
  AlignedBuffer floats;  // at least `count`
  PendingDone done;

  absl::Span<float> span() { return floats.span().first(static_cast<size_t>(count)); }
};

// Receives a piece, which must outlive the request.
class TableTransfer::PieceSink final : public ChunkSink {
 public:
  explicit PieceSink(Piece& piece) : piece_(piece) {}

  absl::Status Add(const v1::Chunk& chunk, net::Payload payload) override {
    CAIRN_ASSIGN_OR_RETURN(const auto elements, net::ReceivedElements::Of(chunk, payload));
    const absl::Span<float> place = PlaceOf(chunk, elements.count());
    if (place.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          elements.count(), " elements at ", chunk.offset(), " of the state of table ", chunk.table(),
          ", but ", piece_.count, " at ", piece_.offset, " of table ", piece_.table, " were requested"));
    }
    piece_.received += elements.count();
    return elements.Scatter(0, {place});
  }
  absl::Span<float> DestinationFor(const v1::Chunk& chunk, int64_t count) override {
    return chunk.encoding() == v1::ENCODING_FLOAT32 ? PlaceOf(chunk, count) : absl::Span<float>();
  }

 private:
  absl::Span<float> PlaceOf(const v1::Chunk& chunk, int64_t count) {
    const int64_t first = chunk.offset() - piece_.offset;
    if (chunk.table() != piece_.table || first < 0 || count < 1 || count > piece_.count - first) return {};
    return piece_.span().subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  }

  Piece& piece_;
};

TableTransfer::TableTransfer(std::vector<Peer> servers) : servers_(std::move(servers)) {}

TableTransfer::~TableTransfer() = default;

absl::Status TableTransfer::BeginRead(Piece& piece) {
  const Peer& server = servers_[static_cast<size_t>(piece.server)];
  v1::ClientHeader header;
  v1::ReadBegin& read = *header.mutable_read();
  read.set_layout(server.layout);
  read.set_table(piece.table);
  read.set_offset(piece.offset);
  read.set_count(piece.count);
  return server.session->Begin(std::move(header), std::make_unique<PieceSink>(piece), piece.done.Callback())
      .status();
}

absl::Status TableTransfer::BeginWrite(absl::Span<const int64_t> sizes, Piece& piece) {
  const Peer& server = servers_[static_cast<size_t>(piece.server)];
  v1::ClientHeader header;
  v1::WriteBegin& write = *header.mutable_write();
  write.set_layout(server.layout);
  write.set_partial(true);
  write.mutable_table_states()->Add(sizes.begin(), sizes.end());
  CAIRN_ASSIGN_OR_RETURN(const uint64_t id,
                         server.session->Begin(std::move(header), nullptr, piece.done.Callback()));
  SendTableState(*server.session, id, {.table = piece.table, .offset = piece.offset}, piece.span());
  server.session->SendEnd(id);
  return absl::OkStatus();
}

absl::Status TableTransfer::Await(Piece& piece, const ReadLimit& limit) {
  const Peer& server = servers_[static_cast<size_t>(piece.server)];
  const Timeout timeout = std::chrono::duration_cast<Timeout>(limit.timeout) +
                          net::TimeForBytes(piece.count * static_cast<int64_t>(sizeof(float)));
  return Annotate(piece.done.Wait(*server.session, timeout, limit.stopped).status(), server.name);
}

absl::Status TableTransfer::Read(const TableSizes& sizes, TableSink& sink, const ReadLimit& limit) {
  Cursor cursor(sizes);
  const int64_t most = BufferFloats(sizes, sink.max_piece());
  std::vector<AlignedBuffer> memory;
  for (size_t i = 0; i < kPieces; ++i) memory.emplace_back(most);
  for (;;) {
    while (!memory.empty()) {
      const auto next = cursor.Next(most);
      if (!next.has_value()) break;
      Piece& piece = *pieces_.emplace_back(std::make_unique<Piece>());
      piece.server = next->server;
      piece.table = next->table;
      piece.offset = next->offset;
      piece.count = next->count;
      piece.floats = std::move(memory.back());
      memory.pop_back();
      CAIRN_RETURN_IF_ERROR(BeginRead(piece));
    }
    if (pieces_.empty()) return absl::OkStatus();
    Piece& piece = *pieces_.front();
    CAIRN_RETURN_IF_ERROR(Await(piece, limit));
    if (piece.received != piece.count) {
      return absl::InternalError(absl::StrCat(servers_[static_cast<size_t>(piece.server)].name, ": ",
                                              piece.received, " of ", piece.count,
                                              " elements of the state of table ", piece.table));
    }
    CAIRN_RETURN_IF_ERROR(sink.Add(piece.server, piece.table, piece.span()));
    memory.push_back(std::move(piece.floats));
    pieces_.pop_front();
  }
}

absl::Status TableTransfer::Write(TableSource& source, Duration timeout, int64_t max_piece) {
  const auto await_first = [&]() -> absl::StatusOr<AlignedBuffer> {
    CAIRN_RETURN_IF_ERROR(Await(*pieces_.front(), {.timeout = timeout}));
    AlignedBuffer floats = std::move(pieces_.front()->floats);
    pieces_.pop_front();
    return floats;
  };
  const int64_t most = BufferFloats(source.sizes(), max_piece);
  TimePoint used = std::chrono::steady_clock::now();
  for (size_t server = 0; server < servers_.size(); ++server) {
    const std::vector<int64_t>& sizes = source.sizes()[server];
    for (size_t table = 0; table < sizes.size(); ++table) {
      for (int64_t offset = 0; offset < sizes[table];) {
        auto piece = std::make_unique<Piece>();
        piece->server = static_cast<int>(server);
        piece->table = static_cast<int>(table) + 1;
        piece->offset = offset;
        if (pieces_.size() < kPieces) {
          piece->floats = AlignedBuffer(most);
        } else {
          CAIRN_ASSIGN_OR_RETURN(piece->floats, await_first());
        }
        CAIRN_ASSIGN_OR_RETURN(piece->count, source.Read(piece->server, piece->table, piece->floats.span()));
        offset += piece->count;
        CAIRN_RETURN_IF_ERROR(BeginWrite(sizes, *pieces_.emplace_back(std::move(piece))));
        if (std::chrono::steady_clock::now() - used < kKeepAlive) continue;
        CAIRN_RETURN_IF_ERROR(KeepAlive(source.sizes(), timeout));
        used = std::chrono::steady_clock::now();
      }
    }
  }
  while (!pieces_.empty()) CAIRN_RETURN_IF_ERROR(await_first().status());
  return absl::OkStatus();
}

absl::Status TableTransfer::KeepAlive(const TableSizes& sizes, Duration timeout) {
  while (!pieces_.empty()) {
    CAIRN_RETURN_IF_ERROR(Await(*pieces_.front(), {.timeout = timeout}));
    pieces_.pop_front();
  }
  for (size_t server = 0; server < servers_.size(); ++server) {
    Piece& empty = *pieces_.emplace_back(std::make_unique<Piece>());
    empty.server = static_cast<int>(server);
    CAIRN_RETURN_IF_ERROR(BeginWrite(sizes[server], empty));
    CAIRN_RETURN_IF_ERROR(Await(empty, {.timeout = timeout}));
    pieces_.pop_front();
  }
  return absl::OkStatus();
}

}  // namespace cairn::client
