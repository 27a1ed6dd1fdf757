// A push while its chunks arrive, and the answer that it gets.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/session.pb.h"
#include "common/net/wire/frame.h"
#include "optim/store/variable_store.h"
#include "ps/policy/policy.h"
#include "ps/shard/accumulator.h"
#include "ps/shard/speculative_update.h"

namespace cairn::ps {

struct PushRequest {
  Gradient gradient;
  bool read_values = false;  // answer with the values after the decision
  // Sends chunks of these values to the client before the decision. The chunks are valid only if
  // PushResult::sent_early is set. Null: the client wants no early values.
  SpeculativeUpdate::SendValues send_values{};
  // Flow control: grants the worker credit for more bytes of this push. Null: the transport has no flow
  // control.
  SpeculativeUpdate::Allow allow{};
};

struct PushResult {
  v1::Outcome outcome = v1::OUTCOME_UNSPECIFIED;
  bool duplicate = false;
  int64_t staleness = 0;
  int64_t version = 0;  // the version after the decision
  bool finished = false;
  optim::Values values{};  // data is null unless requested
  // `values` is null, because all of the values have already been passed to send_values().
  bool sent_early = false;
  std::optional<Work> work{};  // from the WorkSource, if there is one
};

// Returns the work items of the worker that pushes.
using WorkSource = absl::AnyInvocable<std::optional<Work>()>;
using PushReply = absl::AnyInvocable<void(absl::StatusOr<PushResult>)>;

// Owned by the session; one thread. The shard outlives it.
class OpenPush {
 public:
  // `discard`: the push is a repeat, or has no examples, so its chunks are not stored. `speculative`: receives
  // the elements for a speculative update; may be null.
  OpenPush(const PushRequest& request, optim::BufferPool& pool, bool discard, SpeculativeUpdate* speculative)
      : request_(request),
        accumulator_(pool, Accumulator::Borrowed::kKept),
        discard_(discard),
        speculative_(speculative) {}
  ~OpenPush() {
    if (speculative_ != nullptr) speculative_->Abandon(request_.gradient.key);
  }
  OpenPush(const OpenPush&) = delete;
  OpenPush& operator=(const OpenPush&) = delete;

  // As Accumulator::Add(). Chunks of a repeated push are discarded.
  absl::Status AddChunk(const v1::Chunk& chunk, net::Payload payload);
  // As Accumulator::DestinationFor().
  absl::Span<float> DestinationFor(const v1::Chunk& chunk, int64_t count);

  const PushRequest& request() const { return request_; }
  // INVALID_ARGUMENT if chunks are missing.
  absl::Status CheckComplete() const;
  // As Accumulator::Take().
  GradientView Take() { return accumulator_.Take(); }
  // Whether chunks of the new values may have been sent for this push.
  bool MaySendEarly() const { return speculative_ != nullptr && request_.send_values != nullptr; }
  // The push has been staged: its end no longer abandons its speculative update.
  void Keep() { speculative_ = nullptr; }

 private:
  const PushRequest request_;
  Accumulator accumulator_;
  const bool discard_;
  SpeculativeUpdate* speculative_;
};

}  // namespace cairn::ps
