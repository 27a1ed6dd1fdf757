// A worker's exchange of rows with the servers' embedding tables, beside its exchange of values (step_exchange.h).
//
//   ReadRows ─► { StepExchange::BeginStep ─► WantRows, PushRows ─► Step::Finish }...
//   { BeginRead: rows of a later batch ─► BeginStep ─► PushRows ─► Step::Finish ─► FinishRead }...
//
// A step pushes gradients of the rows that its batch has used, as a part of its push, which counts once. The
// answer brings the rows that the next batch needs, as they are after the step. Rows can also be read ahead, while the
// step computes: they lack the updates that are made meanwhile. Tables have the numbers of Job.tables, from 1.
//
// All calls come from one thread. The keys of a call are unique, and name each table at most once.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace cairn::client {

// Rows to be read, and where to.
struct RowValues {
  int table = 0;
  absl::Span<const int64_t> keys{};
  absl::Span<float> rows{};  // [key][element]
};

struct RowGradients {
  int table = 0;
  absl::Span<const int64_t> keys{};
  absl::Span<const float> gradients{};  // [key][element]
};

class RowExchange {
 public:
  virtual ~RowExchange() = default;

  // Reads the rows as they are now, in the precision of the wire (Job.wire). Blocks. A row that does not exist has
  // the values that it would start from, and is not created. Rows of two servers may be of different versions
  // if an update is made meanwhile; a step from the older version is then stale in a synchronous job.
  // INVALID_ARGUMENT for a key that the table cannot have; otherwise fails as StepExchange::Pull().
  virtual absl::Status ReadRows(absl::Span<const RowValues> rows) = 0;

  // As ReadRows(), but does not wait for the rows: FinishRead() waits for those of the oldest BeginRead(). The rows
  // contain at least the updates of the steps that had finished at BeginRead(). They must stay valid until FinishRead()
  // has returned or the reads have been dropped.
  virtual absl::Status BeginRead(absl::Span<const RowValues> rows) = 0;
  virtual absl::Status FinishRead() = 0;
  // Forgets the reads that have begun.
  virtual void DropReads() = 0;

  // The following calls are between BeginStep() and ComingParameters() or Finish(), once in a step each. What
  // the spans refer to must stay valid, and gradients unchanged, until Finish() has returned or the worker has
  // left. INVALID_ARGUMENT, without effect, for a key that no server stores.

  // The push of the step contains these gradients, unless the step has no examples.
  virtual absl::Status PushRows(absl::Span<const RowGradients> gradients) = 0;
  // When Finish() returns OK, it has filled `rows` with the rows after the step.
  virtual absl::Status WantRows(absl::Span<const RowValues> rows) = 0;
};

}  // namespace cairn::client
