// A table: one set of a shard's values, with its optimizer state. Table 0 of every job has the variables
// (DenseTable).
//
//   session     ─ BeginPush ─► TablePush ─ chunks or rows ─► TableGradient ─► staged in the PushTable
//               ─ ReadRows: rows as they are now
//   LogExecutor ─ Mean, Measure, Apply: the updates of the round log, one after another
//               ─ ReadRows: the rows that the answer to a push brings
//               ─ Save, Restore: the state, for a snapshot or another server
//
// The round log, the ledger and the policies do not know what a push contains: only the table that has made a
// TableGradient, a mean or a state looks inside.
//
// Owned by the Tables of a Shard. BeginPush(), ReadRows() and FillStatus() are for any thread, and a push for the one
// thread of its session. All other functions are called by one thread at a time, the one that executes the log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/inspector.pb.h"
#include "cairn/v1/session.pb.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/wire/frame.h"
#include "common/net/wire/row_frame.h"
#include "optim/optimizer.h"
#include "optim/store/squares.h"
#include "ps/policy/policy.h"
#include "ps/table/push_request.h"

namespace cairn::ps {

// The data of a push for one table. Immutable; any thread.
class TableGradient {
 public:
  virtual ~TableGradient() = default;
};

// The data of a push for each table [table]. A missing or null entry: the push brings nothing to that table.
using PushData = absl::InlinedVector<std::shared_ptr<const TableGradient>, 1>;

// The mean of the gradients of one update, in the table's own form: the update can be made from it alone.
// Null: no contributor has examples.
using TableMean = std::shared_ptr<const AlignedBuffer>;

// The state of a table at one version, values and optimizer state, in the table's own form. It is the contents of
// these buffers, one after another: where one ends and the next begins does not matter.
using TableState = std::vector<std::shared_ptr<const AlignedBuffer>>;

// Received means or states of the tables beside the variables [table - 1]. A missing or null entry: nothing came.
using ReceivedTables = std::vector<std::shared_ptr<const AlignedBuffer>>;

// A push to one table, while its frames arrive.
class TablePush {
 public:
  // Abandons the push, unless Keep() was called.
  virtual ~TablePush() = default;

  // INVALID_ARGUMENT, without effect, for a chunk that does not fit the table or repeats received elements;
  // RESOURCE_EXHAUSTED if there is no memory for it.
  virtual absl::Status AddChunk(const v1::Chunk& chunk, net::Payload payload) = 0;
  // As AddChunk(), for gradients of rows of the table's number of elements.
  virtual absl::Status AddRows(net::ReceivedRows rows) = 0;
  // Where the next AddChunk() will store the `count` elements of this chunk, as float32. The caller may
  // receive the payload there. Empty: in any memory.
  virtual absl::Span<float> DestinationFor(const v1::Chunk& chunk, int64_t count) = 0;
  // INVALID_ARGUMENT if the push lacks chunks.
  virtual absl::Status CheckComplete() const = 0;
  // Returns what has arrived; to be called once, at the end. Null: nothing.
  virtual std::shared_ptr<const TableGradient> Take() = 0;
  // The push has been staged.
  virtual void Keep() = 0;
  // Whether chunks of the new values may be sent for this push before it is decided.
  virtual bool MaySendEarly() const = 0;
};

// Rows of a table after some update.
struct TableRows {
  int64_t version = 0;                              // the version after that update
  std::shared_ptr<const AlignedBuffer> elements{};  // [row][element]; not null
};

// One update of one table. Borrowed for the duration of a call.
struct TableUpdate {
  struct Contribution {
    const Gradient* gradient = nullptr;
    std::shared_ptr<const TableGradient> data{};  // null: the push brought nothing to this table
  };
  int64_t version = 0;                                   // the version after the update
  absl::InlinedVector<Contribution, 4> contributions{};  // in the order of the sum
  const TableMean* mean = nullptr;                       // if set, replaces the contributions
  float rate_divisor = 1;                                // divides the learning rate
  std::optional<float> learning_rate{};                  // set if the chief has changed the rate of the job
  bool last = false;                                     // the job's last update
  const optim::VariableSquares* known = nullptr;         // the totals of the previous Measure(); not null
};

class Table {
 public:
  virtual ~Table() = default;

  // A push that is new. The table outlives it.
  virtual std::unique_ptr<TablePush> BeginPush(const PushRequest& request) = 0;

  // The rows with these ids, in their order, all after the same update. A row that does not exist has the values
  // that it would start from, and is not created. INVALID_ARGUMENT if the table is not read by rows;
  // RESOURCE_EXHAUSTED if the budget has no room for the answer, which counts there.
  virtual absl::StatusOr<TableRows> ReadRows(absl::Span<const int64_t> ids) const = 0;

  // The mean of the contributions, weighted by the examples of all contributors. INTERNAL if a contribution
  // lacks data that it must have.
  virtual absl::StatusOr<TableMean> Mean(const TableUpdate& update) = 0;
  // This table's contribution to one of the optimizer's norms; empty if the norms do not include it. Called
  // for each norm in order, before Apply() of the same update. INVALID_ARGUMENT as Apply().
  virtual absl::StatusOr<std::vector<optim::SliceSquares>> Measure(optim::Norms norms,
                                                                   const TableUpdate& update) = 0;
  // Makes the update. INVALID_ARGUMENT, naming the variable, if the mean is not finite or has another form: the
  // table may be partly updated then, so the caller must end the job. INTERNAL as Mean().
  virtual absl::Status Apply(const TableUpdate& update) = 0;

  // The current state. RESOURCE_EXHAUSTED if there is no memory for the copy; never with `beyond_budget`.
  virtual absl::StatusOr<TableState> Save(bool beyond_budget) = 0;
  // INVALID_ARGUMENT if `state` is not a state of such a table. Any thread.
  virtual absl::Status CheckState(const TableState& state) const = 0;
  // Continues from a state that CheckState() accepts, at `version`.
  virtual void Restore(int64_t version, TableState state) = 0;

  // For traces; empty for the variables.
  virtual absl::string_view name() const = 0;
  // Fills in what is known of a table of rows. Does not wait for updates.
  virtual void FillStatus(v1::TableStatus& status) const = 0;
};

}  // namespace cairn::ps
