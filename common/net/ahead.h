// In which pieces a synchronous update of a server's values is made, and sent, while its gradients arrive
// (ps/update_ahead.h): what servers do, and what `cairn plan` reckons with.
#pragma once

#include <algorithm>
#include <cstdint>

namespace cairn::net {

// Elements: neither so few that messages cost more than they carry, nor more than fit into one.
inline constexpr int64_t kLeastPiece = int64_t{64} << 10;
inline constexpr int64_t kLargestPiece = int64_t{256} << 10;
// Of fewer elements on a server there is nothing to be gained.
inline constexpr int64_t kWorthAhead = 4 * kLeastPiece;

// Elements that are made and sent together: a thirty-second of the values, within these bounds. Pieces end
// with pages.
inline int64_t PieceAhead(int64_t size) {
  constexpr int64_t kPage = 1024;
  const int64_t share = (size / 32 + kPage - 1) / kPage * kPage;
  return std::clamp(share, kLeastPiece, kLargestPiece);
}

}  // namespace cairn::net
