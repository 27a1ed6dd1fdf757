// What happens before training: the chief declares the job and writes the first values, everybody learns it.
// And writing all values, then or later.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "common/core/clock.h"
#include "common/net/placement.h"
#include "worker/client/connection.h"

namespace cairn::client {

// The job as a task understands it from its own flags and model file.
struct IntendedJob {
  const std::string& task;  // "worker/0"
  const v1::Job& job;
  const std::vector<net::VariableInfo>& variables;
};

// What is understood otherwise elsewhere, "mode: sync here, async on the servers; ..."; empty when both mean
// the same job.
std::string DifferencesFrom(const IntendedJob& intended, const v1::Job& theirs, absl::string_view where);

// The job as the servers have it.
struct LearntJob {
  v1::Job job;
  net::Layout layout;
  std::vector<std::vector<net::Slice>> slices;  // [server]
  std::vector<std::string> slots;               // of the optimizer, in the order of a state
  std::vector<uint64_t> layout_ids;             // [server]
  bool one_log =
      false;  // of all servers, on ps/0: a version means the same on each, and marks can be read at
};

// Where a chief takes from what servers begin with, or are given back.
class StateSource {
 public:
  virtual ~StateSource() = default;

  // Where the job goes on, or none when it begins. `lost`: servers have trained it and lost their variables.
  virtual absl::StatusOr<std::optional<v1::Progress>> Find(bool lost) = 0;
  // After Find(): fills into[0] with the variables' values and, where the job goes on, into[1 + slot] with
  // the slots of these names; each [sum of the variables].
  virtual absl::Status Load(absl::Span<const std::string> slots,
                            absl::Span<const absl::Span<float>> into) = 0;
};

// The same first values whenever the job begins. What servers have lost it cannot give back.
class FirstValues final : public StateSource {
 public:
  explicit FirstValues(std::vector<float> values) : values_(std::move(values)) {}
  // ABORTED when `lost`.
  absl::StatusOr<std::optional<v1::Progress>> Find(bool lost) override;
  absl::Status Load(absl::Span<const std::string> slots, absl::Span<const absl::Span<float>> into) override;

 private:
  const std::vector<float> values_;
};

// The chief's: see TrainingClient::Initialise(). `begun`: the last generation that the caller has begun, -1
// before the first; each try begins a later one, whatever becomes of it.
absl::Status InitialiseServers(Connection& connection, const IntendedJob& intended, int64_t split_bytes,
                               StateSource& source, int64_t* begun);

// Waits until all servers have variables, of one generation of the job, within the connection's limit.
// FAILED_PRECONDITION naming what differs when their job is not the intended one.
absl::StatusOr<LearntJob> AwaitJob(Connection& connection, const IntendedJob& intended);

// Writes the values, parts[0], to the servers, as the first ones or in place of those they have. The first
// ones of a job that goes on have the optimizer's slots behind them. Each part is [sum of the variables]. A
// repetition does no harm.
struct WriteOptions {
  bool initialise = false;
  Duration timeout;  // for each server's answer, beside the time that the bytes take (net::TimeForBytes)
};
absl::Status WriteState(Connection& connection, const LearntJob& learnt,
                        absl::Span<const absl::Span<const float>> parts, const WriteOptions& options);

}  // namespace cairn::client
