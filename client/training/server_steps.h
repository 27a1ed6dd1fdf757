// A worker's steps with parameter servers.
//
// A step takes one round trip per server. Gradients are sent while the backward pass still runs, and the
// answer brings the values after the update; in a synchronous job they begin to arrive while gradients are
// still being sent. The values arrive in a second buffer, which Step::Finish() swaps in, so parameters() never
// changes during a computation. A forward pass may begin with the values that have arrived (AwaitComing). Rows of
// tables travel with the pushes and their answers, or are read beside them.
//
// Owned by TrainingClient. All calls come from one thread, except Step::Announce() and Wake() (any thread).
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/session.pb.h"
#include "client/gradients/wire_metrics.h"
#include "client/rows/row_exchange.h"
#include "client/rows/row_reads.h"
#include "client/rows/row_tables.h"
#include "client/training/joined_job.h"
#include "client/training/server_values.h"
#include "client/training/step_exchange.h"
#include "client/training/step_pushes.h"
#include "client/transport/connection.h"
#include "common/net/cluster/placement.h"
#include "common/trace/trace.h"

namespace cairn::client {

class ServerSteps final : public StepExchange, public RowExchange {
 public:
  struct Options {
    MakePartitioner make_partitioner{};  // null: rows are not exchanged
    TraceRecorder* trace = nullptr;      // may be null; records pushes, pulls and reads of rows
    WireMetrics* wire = nullptr;         // may be null; counts bytes on the wire
  };
  // `variables`: the model's, with gapless offsets in a flat buffer. All references must outlive this object.
  ServerSteps(Connection& connection, JoinedJob& job, const std::vector<net::VariableInfo>& variables,
              const Options& options);

  // --- For TrainingClient ---

  // The servers have declared the job. INVALID_ARGUMENT if an encoding is unknown here or does not suit the
  // variables, or as RowTables::Create().
  absl::Status OnLearnt();
  // The worker has joined, and ps/0 has assigned `work`: pulls the values.
  absl::Status OnJoined(v1::Work work);
  // Closes the streams of the current step. Unless Step::Finish() was called, no server counts it.
  void Drop() {
    pushes_.Drop();
    row_reads_.Drop();
  }
  // The chief: sends the settings of all groups of variables (Job.variable_groups), [group], with the next step,
  // and with later ones until a step is in an update. Must be valid.
  void SetGroups(std::vector<v1::GroupSettings> groups) { unsent_groups_ = std::move(groups); }
  // Makes waiting calls query JoinedJob::failure() again.
  void Wake() { pushes_.Wake(); }

  // --- StepExchange ---

  // The values of one version, in the order of the variables. After a join or a step they have the precision
  // of the wire (Job.wire).
  absl::Span<const float> parameters() const override { return values_.current(); }
  std::array<absl::Span<const float>, 2> parameter_buffers() const override { return values_.buffers(); }
  // In an asynchronous job, where each server may count its own versions: the version on ps/0.
  int64_t version() const override { return values_.versions()[0]; }
  bool finished() const override { return finished_; }
  // The assigned work item, from ps/0's last answer to a join, a step or AwaitWork().
  const v1::Work& work() const override { return work_; }

  // `gradients` must stay valid until the step has been finished, or until Drop(). `position`: the
  // number of batches of its share of the data that the worker has finished, this one included; with dynamic
  // sharding, the number of the first example of the work item (PushBegin.position). Finish() reopens broken
  // streams and repeats their pushes until the step's time limit: StepPushes::Finish().
  StepPushes& BeginStep(absl::Span<const float> gradients, int64_t examples, int64_t position = 0) override;
  // Servers take gradients from the host only: must not be called.
  Step& BeginStepOnDevice(absl::Span<float> gradients, absl::Span<float> mean, int64_t examples) override;
  // Waits for a work item, or for the end of the job, and pulls the current values. UNAVAILABLE, with what is
  // missing, when the step's time limit is over.
  absl::Status AwaitWork() override;
  // Pulls the current values as float32, whatever the job's wire encoding is. They are of one version on all
  // servers, except in an asynchronous job whose optimizer takes no norms.
  absl::Status Pull() override;

  // --- RowExchange; the job's tables must be known (Options::make_partitioner) ---

  absl::Status ReadRows(absl::Span<const RowValues> rows) override;
  absl::Status BeginRead(absl::Span<const RowValues> rows) override {
    return row_reads_.Begin(job_.learnt(), tables_, rows);
  }
  absl::Status FinishRead() override;
  void DropReads() override {
    if (row_reads_.any_begun()) row_reads_.Drop();
  }
  absl::Status PushRows(absl::Span<const RowGradients> gradients) override {
    return pushes_.PushRows(gradients);
  }
  absl::Status WantRows(absl::Span<const RowValues> rows) override { return pushes_.WantRows(rows); }

 private:
  absl::Status Pull(v1::Encoding encoding);
  // UNAVAILABLE if a stream broke.
  absl::Status PullOnce(v1::Encoding encoding);
  // Makes the values after the servers' decision about the step's pushes the current ones, and reads the wanted rows
  // that the answers have not brought.
  absl::StatusOr<StepResult> Settle(absl::Span<const v1::Done> answers);

  Connection& connection_;
  JoinedJob& job_;
  const std::vector<net::VariableInfo>& variables_;
  TraceRecorder* const trace_;  // may be null
  ServerValues values_;
  bool finished_ = false;
  v1::Work work_;
  int64_t step_ = 0;
  std::vector<v1::GroupSettings> unsent_groups_;  // that no update contains yet; empty: none
  const MakePartitioner make_partitioner_;
  RowTables tables_;
  RowReads row_reads_;
  StepPushes pushes_;
};

}  // namespace cairn::client
