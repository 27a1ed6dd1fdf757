#include "worker/tables/snapshot_checkpoint.h"

#include <chrono>
#include <utility>
#include <vector>

#include "client/snapshot.h"
#include "common/core/status.h"
#include "worker/checkpoint/run_proto.h"
#include "worker/checkpoint/writer.h"
#include "worker/tables/checkpointed_tables.h"
#include "worker/tables/table_run.h"

namespace cairn::worker {
namespace {

constexpr auto kReadLimit = std::chrono::seconds(60);  // for a server's answer when its state is read

}  // namespace

absl::StatusOr<std::string> WriteCheckpoint(const client::TakenSnapshot& taken,
                                            const SnapshotCheckpoint& checkpoint) {
  CAIRN_ASSIGN_OR_RETURN(const auto writer, CheckpointWriter::Begin(checkpoint.directory, taken.version));
  TablesToCheckpoint tables(*writer);
  CAIRN_ASSIGN_OR_RETURN(const client::Snapshot snapshot, taken.read({.timeout = kReadLimit}, &tables));
  if (checkpoint.on_read) checkpoint.on_read();
  std::vector<ServerState> servers;
  for (const client::Snapshot::Server& server : snapshot.servers) {
    servers.push_back({.slices = server.slices, .state = server.state.span()});
  }
  CAIRN_ASSIGN_OR_RETURN(auto runs, TablesOf(snapshot.job));
  return writer->Finish(RunStateOf({.job = snapshot.job,
                                    .progress = snapshot.progress,
                                    .slots = snapshot.slots,
                                    .mode = checkpoint.mode,
                                    .tables = std::move(runs)}),
                        checkpoint.model_json, servers, {.max_to_keep = checkpoint.max_to_keep});
}

}  // namespace cairn::worker
