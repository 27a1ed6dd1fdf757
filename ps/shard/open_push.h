// A push while its chunks arrive, and the answer that it gets.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/session.pb.h"
#include "common/net/wire/frame.h"
#include "common/net/wire/row_frame.h"
#include "optim/store/variable_store.h"
#include "ps/policy/policy.h"
#include "ps/table/push_request.h"
#include "ps/table/table.h"
#include "ps/table/wanted_rows.h"

namespace cairn::ps {

struct PushResult {
  v1::Outcome outcome = v1::OUTCOME_UNSPECIFIED;
  bool duplicate = false;
  int64_t staleness = 0;
  int64_t version = 0;  // the version after the decision
  bool finished = false;
  optim::Values values{};  // data is null unless requested
  // `values` is null, because all of the values have already been passed to send_values().
  bool sent_early = false;
  AnsweredRows rows{};         // directly after the decision; none unless wanted
  std::optional<Work> work{};  // from the WorkSource, if there is one
};

// Returns the work items of the worker that pushes.
using WorkSource = absl::AnyInvocable<std::optional<Work>()>;
using PushReply = absl::AnyInvocable<void(absl::StatusOr<PushResult>)>;

// Owned by the session; one thread. The shard outlives it.
class OpenPush {
 public:
  // `tables` [table]: the push to each table. Empty for a repeat, whose chunks are discarded.
  OpenPush(PushRequest request, std::vector<std::unique_ptr<TablePush>> tables)
      : request_(std::move(request)), tables_(std::move(tables)) {}

  // As in TablePush.
  absl::Status AddChunk(const v1::Chunk& chunk, net::Payload payload);
  // `table` exists.
  absl::Status AddRows(size_t table, net::ReceivedRows rows);
  absl::Span<float> DestinationFor(const v1::Chunk& chunk, int64_t count);
  // The answer shall contain these rows.
  void Want(std::shared_ptr<const WantedRows> wanted) { wanted_ = std::move(wanted); }

  const PushRequest& request() const { return request_; }
  // Null: none.
  const std::shared_ptr<const WantedRows>& wanted() const { return wanted_; }
  // Whether the push is a repeat, whose chunks and rows are discarded.
  bool repeats() const { return tables_.empty(); }
  // As in TablePush, for all tables.
  absl::Status CheckComplete() const;
  PushData Take();
  void Keep();
  // Whether chunks of the new values may have been sent for this push.
  bool MaySendEarly() const;

 private:
  const PushRequest request_;
  const std::vector<std::unique_ptr<TablePush>> tables_;
  std::shared_ptr<const WantedRows> wanted_;
};

}  // namespace cairn::ps
