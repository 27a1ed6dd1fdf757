// Setup before training: the chief declares the job and writes the first values; all workers learn the job.
// WriteState() can also replace all values later.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "client/table_states.h"
#include "client/transport/connection.h"
#include "common/core/clock.h"
#include "common/net/cluster/placement.h"

namespace cairn::client {

// The job as given by a task's own flags and model file.
struct IntendedJob {
  const std::string& task;  // "worker/0"
  const v1::Job& job;
  const std::vector<net::VariableInfo>& variables;
};

// Lists the settings in which the two jobs differ: "mode: sync here, async on the servers; ...". `where`
// names the other side. Empty if they are the same job.
std::string DifferencesFrom(const IntendedJob& intended, const v1::Job& theirs, absl::string_view where);

// The job as the servers describe it.
struct LearntJob {
  v1::Job job;
  net::Layout layout;
  std::vector<std::vector<net::Slice>> slices;  // [server]
  std::vector<std::string> slots;               // the optimizer's slots, in the order of the state
  std::vector<uint64_t> layout_ids;             // [server]
  // All servers share one log, on ps/0: a version means the same on each of them, and barriers can be read.
  bool one_log = false;
};

// Provides the state that servers begin with, or are restored to.
class StateSource {
 public:
  virtual ~StateSource() = default;

  // Returns the progress to resume from, or nullopt for a new job. `lost`: servers have trained the job and
  // have lost their variables.
  virtual absl::StatusOr<std::optional<v1::Progress>> Find(bool lost) = 0;
  // After Find(): fills into[0] with the values of the variables and, if the job is resumed, into[1 + i] with
  // the optimizer slot `slots[i]`. Each span is [total elements of all variables].
  virtual absl::Status Load(absl::Span<const std::string> slots,
                            absl::Span<const absl::Span<float>> into) = 0;
  // After Load(), if the job has tables: their states, divided among its servers. Returns null if the tables begin
  // without rows, never for a resumed job. The source is valid until the next Find(). By default null, or UNIMPLEMENTED
  // for a resumed job.
  virtual absl::StatusOr<std::unique_ptr<TableSource>> OpenTables(const v1::Job& job);
};

// Provides the same first values whenever a job begins. Cannot restore lost variables.
class FirstValues final : public StateSource {
 public:
  explicit FirstValues(std::vector<float> values) : values_(std::move(values)) {}
  // ABORTED if `lost`.
  absl::StatusOr<std::optional<v1::Progress>> Find(bool lost) override;
  absl::Status Load(absl::Span<const std::string> slots, absl::Span<const absl::Span<float>> into) override;

 private:
  const std::vector<float> values_;
};

// For the chief: see TrainingClient::Initialise(). `begun`: the last generation that the caller has begun, -1
// at first. Every attempt begins a later generation, whether it succeeds or not.
absl::Status InitialiseServers(Connection& connection, const IntendedJob& intended, int64_t split_bytes,
                               StateSource& source, int64_t* begun);

// Waits until all servers have the variables of one generation of the job, within the connection's time
// limit. FAILED_PRECONDITION, with the differences, if the servers train another job.
absl::StatusOr<LearntJob> AwaitJob(Connection& connection, const IntendedJob& intended);

// Writes values, parts[0], to the servers: as the first values, or in place of the current ones. For the
// first values of a resumed job, the optimizer's slots follow in parts[1...]. Each part is [total elements of
// all variables]. Repeating the call, with tables that are opened again, is harmless.
struct WriteOptions {
  bool initialise = false;
  // The states of the job's tables, from their beginning. Null leaves the tables unchanged; a resumed job needs them.
  TableSource* tables = nullptr;
  // The time limit of each server's answer, in addition to the transfer time (net::TimeForBytes).
  Duration timeout;
  int64_t max_table_piece = kTablePieceFloats;  // in floats
};
absl::Status WriteState(Connection& connection, const LearntJob& learnt,
                        absl::Span<const absl::Span<const float>> parts, const WriteOptions& options);

}  // namespace cairn::client
