// The request of a client that pushes, without its chunks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "common/memory/aligned_buffer.h"
#include "ps/policy/policy.h"

namespace cairn::ps {

// Sends elements [begin, end) of the values to the worker that pushes; false if there is no room for them.
// Any thread; must not block.
using SendValues =
    std::function<bool(const std::shared_ptr<const AlignedBuffer>& values, int64_t begin, int64_t end)>;

// Flow control: grants a worker credit for this many more bytes of its gradient, or, with
// SpeculativeUpdate::kNoLimit, for all of it. The bytes count elements as float32, so a worker with a shorter
// encoding may be further ahead. Any thread; must not block.
using AllowBytes = std::function<void(uint64_t bytes)>;

struct PushRequest {
  Gradient gradient;
  bool read_values = false;  // answer with the values after the decision
  // Sends chunks of these values to the client before the decision. The chunks are valid only if
  // PushResult::sent_early is set. Null: the client wants no early values.
  SendValues send_values{};
  // Flow control: grants the worker credit for more bytes of this push. Null: the transport has no flow
  // control.
  AllowBytes allow{};
};

}  // namespace cairn::ps
