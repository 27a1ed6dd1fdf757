#include "client/snapshot.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/data_position.h"
#include "client/transport/request.h"
#include "client/transport/server_session.h"
#include "common/core/status.h"
#include "common/net/grpc/call_limit.h"

namespace cairn::client {

absl::StatusOr<SnapshotMarker> PlaceSnapshotMarker(Connection& connection, const LearntJob& job,
                                                   std::string marker, const StopCheck& stopped) {
  v1::PlaceMarkerRequest request;
  request.set_token(marker);
  request.set_snapshot(true);
  v1::Progress progress;
  const int sequencers = job.one_log ? 1 : connection.num_servers();
  for (int server = 0; server < sequencers; ++server) {
    v1::PlaceMarkerResponse response;
    CAIRN_RETURN_IF_ERROR(Annotate(connection.stub(server).Call(request, &response, kCallTimeout, stopped),
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
                                      const ReadLimit& limit, TableSink* tables) {
  Snapshot snapshot = {.job = marked.job.job,
                       .progress = marked.progress,
                       .slots = marked.job.slots,
                       .servers = std::vector<Snapshot::Server>(marked.job.slices.size())};
  const auto parts = static_cast<int64_t>(1 + marked.job.slots.size());
  std::vector<net::Extent> whole;  // [server]
  std::vector<PendingDone> done(snapshot.servers.size());
  std::vector<TableTransfer::Peer> sessions;
  auto timeout = std::chrono::duration_cast<Timeout>(limit.timeout);
  const StopCheck stopped = Latched(limit.stopped);
  for (size_t i = 0; i < snapshot.servers.size(); ++i) {
    const int server = static_cast<int>(i);
    const int64_t elements = parts * marked.job.layout.arena_size(server);
    snapshot.servers[i] = {.slices = marked.job.slices[i], .state = AlignedBuffer(elements)};
    whole.push_back({.server = server, .count = elements});
    timeout += net::TimeForBytes(elements * static_cast<int64_t>(sizeof(float)));
    sessions.push_back(
        {.session = std::make_unique<ServerSession>(connection.stub(server).streams(), stopped),
         .layout = marked.job.layout_ids[i],
         .name = absl::StrCat("snapshot from ", connection.NameOf(server))});
  }
  TableTransfer transfer(std::move(sessions));
  for (size_t i = 0; i < snapshot.servers.size(); ++i) {
    v1::ClientHeader header;
    header.mutable_read()->set_layout(marked.job.layout_ids[i]);
    header.mutable_read()->set_marker(marked.marker);
    header.mutable_read()->set_state(true);
    CAIRN_RETURN_IF_ERROR(transfer.session(i)
                              .Begin(std::move(header),
                                     ReceiveInto({&whole[i], 1}, snapshot.servers[i].state.span()),
                                     done[i].Callback())
                              .status());
  }
  TableSizes sizes;
  for (size_t i = 0; i < snapshot.servers.size(); ++i) {
    const std::string name = connection.NameOf(static_cast<int>(i));
    const absl::StatusOr<v1::Done> result = done[i].Wait(transfer.session(i), timeout, stopped);
    if (!result.ok()) return Annotate(result.status(), absl::StrCat("snapshot from ", name));
    if (marked.job.one_log && result->version() != marked.progress.version()) {
      return absl::InternalError(absl::StrCat("snapshot: version ", result->version(), " on ", name,
                                              ", but it was marked at ", marked.progress.version()));
    }
    sizes.emplace_back(result->table_states().begin(), result->table_states().end());
    if (result->table_states_size() != snapshot.job.tables_size()) {
      return absl::InternalError(absl::StrCat("snapshot: ", result->table_states_size(), " tables on ", name,
                                              ", but the job has ", snapshot.job.tables_size()));
    }
    if (i > 0) continue;
    if (result->has_learning_rate()) snapshot.progress.set_learning_rate(result->learning_rate());
    *snapshot.progress.mutable_groups() = result->groups();
    *snapshot.progress.mutable_skipped_updates() = result->skipped_updates();
  }
  if (tables == nullptr) return snapshot;
  CAIRN_RETURN_IF_ERROR(tables->Begin(snapshot, sizes));
  CAIRN_RETURN_IF_ERROR(transfer.Read(sizes, *tables, {.timeout = limit.timeout, .stopped = stopped}));
  return snapshot;
}

}  // namespace cairn::client
