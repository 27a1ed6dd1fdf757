// In which pieces a synchronous update of a server's values is made, and sent, while its gradients arrive
// (ps/update_ahead.h): what servers do, and what `cairn plan` reckons with.
#pragma once

#include <cstdint>

namespace cairn::net {

// Elements of a piece: neither so few that a message costs more than it carries, nor so many that the way
// back stands still while they come. What comes together is made and sent together. Pieces end with pages.
inline constexpr int64_t kPieceAhead = int64_t{64} << 10;
// Of fewer elements on a server there is nothing to be gained.
inline constexpr int64_t kWorthAhead = 4 * kPieceAhead;

}  // namespace cairn::net
