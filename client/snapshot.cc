#include "client/snapshot.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/data_position.h"
#include "client/transport/request.h"
#include "client/transport/server_session.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"
#include "common/net/grpc/call_limit.h"
#include "common/net/wire/received_elements.h"

namespace cairn::client {
namespace {

// Receives the state of a server: the variables into a buffer, the tables into memory that grows, since their number of
// rows is not known. The memory must outlive the request.
class StateSink final : public ChunkSink {
 public:
  StateSink(std::unique_ptr<ChunkSink> variables, absl::Span<FloatBlocks> tables,
            std::atomic<int64_t>& received)
      : variables_(std::move(variables)), tables_(tables), received_(received) {}

  absl::Status Add(const v1::Chunk& chunk, net::Payload payload) override {
    received_ += static_cast<int64_t>(net::PayloadBytes(payload));
    if (chunk.table() == 0) return variables_->Add(chunk, payload);
    if (chunk.table() < 0 || static_cast<size_t>(chunk.table()) > tables_.size()) {
      return absl::InvalidArgumentError(absl::StrCat("a chunk of the state of table ", chunk.table(),
                                                     ", but the job has ", tables_.size(), " tables"));
    }
    FloatBlocks& table = tables_[static_cast<size_t>(chunk.table()) - 1];
    if (chunk.offset() != table.size()) {
      return absl::InvalidArgumentError(absl::StrCat("the state of table ", chunk.table(), " continues at ",
                                                     chunk.offset(), ", not at ", table.size()));
    }
    CAIRN_ASSIGN_OR_RETURN(const auto elements, net::ReceivedElements::Of(chunk, payload));
    return CatchOutOfMemory("the state of a table",
                            [&] { return elements.Scatter(0, table.Extend(elements.count())); });
  }
  absl::Span<float> DestinationFor(const v1::Chunk& chunk, int64_t count) override {
    return chunk.table() == 0 ? variables_->DestinationFor(chunk, count) : absl::Span<float>();
  }

 private:
  const std::unique_ptr<ChunkSink> variables_;
  const absl::Span<FloatBlocks> tables_;
  std::atomic<int64_t>& received_;
};

}  // namespace

absl::StatusOr<SnapshotMarker> PlaceSnapshotMarker(Connection& connection, const LearntJob& job,
                                                   std::string marker) {
  v1::PlaceMarkerRequest request;
  request.set_token(marker);
  request.set_snapshot(true);
  v1::Progress progress;
  const int sequencers = job.one_log ? 1 : connection.num_servers();
  for (int server = 0; server < sequencers; ++server) {
    v1::PlaceMarkerResponse response;
    CAIRN_RETURN_IF_ERROR(Annotate(connection.stub(server).Call(request, &response, kCallTimeout),
                                   absl::StrCat("snapshot: ", connection.NameOf(server))));
    if (server == 0) {
      progress = response.progress();
      continue;
    }
    if (progress.has_data()) AddTorn(response.progress().data(), progress.mutable_data());
    // A push in progress may have reached only some of the servers. After a resume the worker must not repeat
    // it, so the worker's highest position on any server counts.
    const int positions = std::min(progress.positions_size(), response.progress().positions_size());
    for (int worker = 0; worker < positions; ++worker) {
      progress.set_positions(worker,
                             std::max(progress.positions(worker), response.progress().positions(worker)));
    }
  }
  progress.set_version_offset(job.job.resumed().version_offset());
  return SnapshotMarker{.job = job, .marker = std::move(marker), .progress = std::move(progress)};
}

absl::StatusOr<Snapshot> ReadSnapshot(Connection& connection, const SnapshotMarker& marked,
                                      Duration timeout) {
  Snapshot snapshot = {.job = marked.job.job,
                       .progress = marked.progress,
                       .slots = marked.job.slots,
                       .servers = std::vector<Snapshot::Server>(marked.job.slices.size())};
  const auto parts = static_cast<int64_t>(1 + marked.job.slots.size());
  const int tables = marked.job.job.tables_size();
  std::vector<net::Extent> whole;  // [server]
  std::vector<PendingDone> done(snapshot.servers.size());
  std::vector<std::atomic<int64_t>> received(snapshot.servers.size());  // [server] in bytes
  std::vector<std::unique_ptr<ServerSession>> sessions;
  auto limit = std::chrono::duration_cast<Timeout>(timeout);
  for (size_t i = 0; i < snapshot.servers.size(); ++i) {
    const int server = static_cast<int>(i);
    const int64_t elements = parts * marked.job.layout.arena_size(server);
    snapshot.servers[i] = {.slices = marked.job.slices[i],
                           .state = AlignedBuffer(elements),
                           .tables = std::vector<FloatBlocks>(static_cast<size_t>(tables))};
    whole.push_back({.server = server, .count = elements});
    limit += net::TimeForBytes(elements * static_cast<int64_t>(sizeof(float)));
  }
  for (size_t i = 0; i < snapshot.servers.size(); ++i) {
    sessions.push_back(std::make_unique<ServerSession>(connection.stub(static_cast<int>(i)).streams()));
    v1::ClientHeader header;
    header.mutable_read()->set_layout(marked.job.layout_ids[i]);
    header.mutable_read()->set_marker(marked.marker);
    header.mutable_read()->set_state(true);
    CAIRN_RETURN_IF_ERROR(
        sessions.back()
            ->Begin(std::move(header),
                    std::make_unique<StateSink>(ReceiveInto({&whole[i], 1}, snapshot.servers[i].state.span()),
                                                absl::MakeSpan(snapshot.servers[i].tables), received[i]),
                    done[i].Callback())
            .status());
  }
  for (size_t i = 0; i < snapshot.servers.size(); ++i) {
    const std::string name = connection.NameOf(static_cast<int>(i));
    // Tables may need more time, which the bytes that have arrived extend at the lowest rate of a network.
    absl::StatusOr<v1::Done> result;
    Timeout allowed = limit;
    int64_t counted = 0;
    do {
      result = done[i].Wait(*sessions[i], allowed);
      allowed = net::TimeForBytes(received[i] - counted);
      counted = received[i];
    } while (absl::IsDeadlineExceeded(result.status()) && allowed > Timeout::zero());
    if (!result.ok()) return Annotate(result.status(), absl::StrCat("snapshot from ", name));
    if (marked.job.one_log && result->version() != marked.progress.version()) {
      return absl::InternalError(absl::StrCat("snapshot: version ", result->version(), " on ", name,
                                              ", but it was marked at ", marked.progress.version()));
    }
    if (i > 0) continue;
    if (result->has_learning_rate()) snapshot.progress.set_learning_rate(result->learning_rate());
    *snapshot.progress.mutable_groups() = result->groups();
  }
  return snapshot;
}

}  // namespace cairn::client
