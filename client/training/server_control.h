// The chief's control of a job on parameter servers.
//
// Owned by TrainingClient; used by the thread that makes the steps.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/parameter_server.pb.h"
#include "client/snapshot.h"
#include "client/table_states.h"
#include "client/training/job_control.h"
#include "client/training/joined_job.h"
#include "client/training/step_exchange.h"
#include "client/transport/connection.h"
#include "common/core/clock.h"

namespace cairn::client {

class ServerControl final : public JobControl {
 public:
  // `steps`: this worker's values, which follow EndTraining() and Write(). All arguments must outlive this
  // object.
  ServerControl(Connection& connection, JoinedJob& job, StepExchange& steps)
      : connection_(connection), job_(job), steps_(steps) {}

  // The rate on ps/0.
  absl::StatusOr<float> LearningRate() override;
  // All servers begin to use the rate at the same version. In an asynchronous job without norms (clipnorm,
  // LAMB), each server instead begins when it receives the call. INVALID_ARGUMENT if the job has a learning
  // rate schedule.
  absl::Status SetLearningRate(float rate) override;
  // All servers make their last update at the same version. In an asynchronous job without norms, each server
  // instead ends when it receives the call. Afterwards finished() is true and parameters() are the last values.
  absl::Status EndTraining() override;
  // Replaces the servers' values by `values`, parallel to parameters(), and pulls them; and their rows by those of
  // `tables`, if there are any. To be used while no other worker trains.
  absl::Status Write(absl::Span<const float> values, const TableOpener& tables) override;

  // Marks a snapshot at the current point, to be read with ReadSnapshot().
  absl::StatusOr<SnapshotMarker> PlaceSnapshotMarker(const StopCheck& stopped = {});
  absl::StatusOr<TakenSnapshot> TakeSnapshot(const StopCheck& stopped) override;
  // OK if, for example, a server with the marked snapshot failed and its backup has been promoted.
  absl::Status CheckSnapshotMayBeRetried(const absl::Status& failure) override;

  // Waits until all other workers have left or lost their lease.
  absl::Status WaitForOthers(Duration timeout) override;
  // Notifies every server that training is over.
  absl::Status Finish() override;
  // The counters of ps/0.
  absl::StatusOr<v1::Counters> ServerCounters() override;
  // Over all servers.
  absl::StatusOr<v1::DataPosition> UsedData() override;

 private:
  // The number of servers that sequence: one if all servers share a round log.
  int sequencers() const { return job_.learnt().one_log ? 1 : connection_.num_servers(); }
  // Connection::Describe(0); with backups, repeated until the step's time limit.
  absl::StatusOr<v1::ConnectResponse> DescribeLeader();
  // Sends a numbered config change to every server that sequences.
  absl::Status ChangeConfig(const v1::ConfigChange& config_change);

  Connection& connection_;
  JoinedJob& job_;
  StepExchange& steps_;
  int64_t config_changes_ = 0;
};

}  // namespace cairn::client
