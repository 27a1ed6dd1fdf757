// The states of a job's tables on their way between the servers and a file. They move in pieces, because the tables of
// a job may be larger than the memory of this process.
//
// A state has the form of the table's kind (for "embedding": embedding/store/table_state.h). Servers are counted from
// 0, tables from 1, as in Chunk.table.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/transport/server_session.h"
#include "common/core/clock.h"

namespace cairn::client {

struct Snapshot;

// The numbers of floats in the states: [server] [table - 1].
using TableSizes = std::vector<std::vector<int64_t>>;

// The default size of a piece, 16 MiB. Two of them are in memory at a time.
inline constexpr int64_t kTablePieceFloats = int64_t{1} << 22;

// The end of the wait for a piece of a state: a time, or the program.
struct ReadLimit {
  Duration timeout;     // and the transfer time of the piece (net::TimeForBytes)
  StopCheck stopped{};  // by the thread that reads
};

// Receives the states of a snapshot's tables. Called by one thread. An error ends the snapshot.
class TableSink {
 public:
  virtual ~TableSink() = default;
  // The first call, also if the job has no tables. All of `snapshot` is known.
  virtual absl::Status Begin(const Snapshot& snapshot, const TableSizes& sizes) = 0;
  // The next floats of a state. Those of a server come in the order of its tables, those of a table in their order; the
  // pieces of different servers alternate.
  virtual absl::Status Add(int server, int table, absl::Span<const float> piece) = 0;
  // The largest piece, in floats.
  virtual int64_t max_piece() const { return kTablePieceFloats; }
};

// Provides the states that servers are given. Called by one thread.
class TableSource {
 public:
  virtual ~TableSource() = default;
  virtual const TableSizes& sizes() const = 0;
  // Fills the front of `into` with the next floats of a state and returns their number, at least 1. The states of a
  // table are read in the order of the servers. Called until all floats have been read.
  virtual absl::StatusOr<int64_t> Read(int server, int table, absl::Span<float> into) = 0;
};

// Opens the states, from their beginning, at each call.
using TableOpener = std::function<absl::StatusOr<std::unique_ptr<TableSource>>()>;

// Transfers the states over sessions, which it owns. One thread.
class TableTransfer {
 public:
  struct Peer {
    std::unique_ptr<ServerSession> session;
    uint64_t layout = 0;  // of the server's values
    std::string name;     // for messages: "ps/0 at host:2222"
  };
  explicit TableTransfer(std::vector<Peer> servers);
  ~TableTransfer();

  ServerSession& session(size_t server) { return *servers_[server].session; }

  // Both return DEADLINE_EXCEEDED, naming the server, if a piece takes too long. After an error, only the destructor
  // may be called.
  //
  // Reads the states that earlier reads on these sessions have kept (ReadBegin.table).
  absl::Status Read(const TableSizes& sizes, TableSink& sink, const ReadLimit& limit);
  // Writes the states in partial writes (WriteBegin.partial).
  absl::Status Write(TableSource& source, Duration timeout, int64_t max_piece);

 private:
  struct Piece;
  class PieceSink;

  absl::Status BeginRead(Piece& piece);
  absl::Status BeginWrite(absl::Span<const int64_t> sizes, Piece& piece);
  absl::Status Await(Piece& piece, const ReadLimit& limit);
  // Shows all servers that this client exists.
  absl::Status KeepAlive(const TableSizes& sizes, Duration timeout);

  std::deque<std::unique_ptr<Piece>> pieces_;  // in transfer, in order; they outlive the sessions
  std::vector<Peer> servers_;
};

}  // namespace cairn::client
