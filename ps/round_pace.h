// Keeps the workers of a round in step while they send their gradients. TCP does not share a server's link
// evenly: of eight workers the first is done when the last has sent half, and no piece of the update can be
// made, and its values sent, before all have sent it. So nobody is to be far ahead of the one who is furthest
// behind: what the link carries is then what is needed next.
//
// A worker that begins late, or stands still, is no reason for the others to wait: with a server's link idle
// nobody comes sooner. Allowances are advice, whose keeping ends where they do not come for a while
// (net::Allowance): no round waits for what is decided here.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/net/ahead.h"

namespace cairn::ps {

class RoundPace {
 public:
  // Elements of all workers together that may be on their way to a server, but of each at least a piece: what
  // keeps a link busy, and far from what makes its queue drop packets.
  static constexpr int64_t kOnTheWay = int64_t{512} << 10;
  // Elements by which a worker is so far behind the first that nobody waits for it.
  static constexpr int64_t kStraggles = int64_t{1} << 20;

  // `size`: elements of a gradient.
  RoundPace(size_t members, int64_t size);

  // A member may send so many more elements than have come of its gradient.
  struct Allowance {
    size_t member = 0;
    int64_t more = 0;

    friend bool operator==(const Allowance&, const Allowance&) = default;
  };
  // Its push has begun: it may send so many elements.
  int64_t Begin(size_t member);
  // So many more of its elements are here: who may go further now.
  std::vector<Allowance> Advance(size_t member, int64_t elements);
  // Its push has begun, and not all of it is here.
  bool IsUnderWay(size_t member) const {
    return members_[member].received.has_value() && *members_[member].received < size_;
  }

 private:
  struct Member {
    std::optional<int64_t> received{};  // none: it has not begun
    int64_t allowed = 0;                // from the gradient's beginning
  };
  // The least that has come of a member for which others wait.
  int64_t Least() const;
  int64_t Most() const;

  int64_t size_;
  int64_t lead_;  // elements
  std::vector<Member> members_;
};

}  // namespace cairn::ps
