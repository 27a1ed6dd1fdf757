// The chunks of a speculative update (ps/table/speculative_update.h): a synchronous update that is computed and
// sent chunk by chunk while its gradients arrive. Used by servers, and by the estimates of `cairn plan`.
#pragma once

#include <cstdint>

namespace cairn::net {

// Elements of a chunk: enough that the cost of a message is small, and few enough that the return direction
// of the link is not idle while they arrive. Chunks that are complete at the same time are computed and sent
// together. Chunks end at page boundaries.
inline constexpr int64_t kUpdateChunk = int64_t{64} << 10;
// Below this many elements on a server, speculative updates gain nothing.
inline constexpr int64_t kMinSpeculativeUpdate = 4 * kUpdateChunk;

}  // namespace cairn::net
