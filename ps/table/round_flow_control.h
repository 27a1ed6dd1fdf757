// Flow control of a round: keeps the workers in step while they send their gradients. TCP does not share a
// server's link evenly: of eight workers, the first finishes when the last has sent half. But no chunk of a
// speculative update can be computed and sent before all workers have sent it. Therefore no worker may be far
// ahead of the slowest one: the link then carries what is needed next.
//
// No worker waits for another one that begins late or stops sending, because an idle link would not make that
// worker faster. Credit is advice: it lapses if no more arrives for a while (net::CreditLimit), so no round
// depends on these decisions.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/net/wire/update_chunk.h"

namespace cairn::ps {

class RoundFlowControl {
 public:
  // Limit on the elements of all workers together that may be in flight to a server; each worker may have at
  // least one chunk in flight. The limit keeps a link busy, and is far below the load at which the link drops
  // packets.
  static constexpr int64_t kOnTheWay = int64_t{512} << 10;
  // A worker that is this many elements behind the first one no longer holds the others back.
  static constexpr int64_t kStraggles = int64_t{1} << 20;

  // `size`: the number of elements of a gradient.
  RoundFlowControl(size_t members, int64_t size);

  // The member may send `more` elements in addition to those that the server has received from it.
  struct Credit {
    size_t member = 0;
    int64_t more = 0;

    friend bool operator==(const Credit&, const Credit&) = default;
  };
  // The member's push has begun. Returns the number of elements that it may send.
  int64_t Begin(size_t member);
  // Another `elements` of its gradient have arrived. Returns the members that may now send more.
  std::vector<Credit> Advance(size_t member, int64_t elements);
  // Whether the member's push has begun and is incomplete.
  bool IsUnderWay(size_t member) const {
    return members_[member].received.has_value() && *members_[member].received < size_;
  }

 private:
  struct Member {
    std::optional<int64_t> received{};  // none: the push has not begun
    int64_t allowed = 0;  // elements that the member may send, from the beginning of its gradient
  };
  // The smallest number of elements received, among the members that the others wait for.
  int64_t Least() const;
  int64_t Most() const;

  int64_t size_;
  int64_t lead_;  // the number of elements by which a member may be ahead of Least()
  std::vector<Member> members_;
};

}  // namespace cairn::ps
