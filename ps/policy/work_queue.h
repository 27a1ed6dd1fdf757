// The examples of a job's epochs, handed out in tickets: which worker computes with which of them.
//
// A ticket is a run of places in the order of one epoch, at most a batch. Each example of the epochs is in
// exactly one of these:
//
//   queue ──Give──► ahead ──► current ──Done──► done
//     ▲                │         │
//     └────Return──────┴─────────┘
//
// The current ticket is what a worker's next push is made of. One ahead lets its loader prepare the batch
// after that; until it is current it may be given to somebody else, since each answer tells the worker what
// it has. What comes back is handed out before what is new: always the first in the order of epochs.
//
// Owned by a policy, whose caller serialises all calls. Owns no lock, and knows no membership.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/types/span.h"

namespace cairn::ps {

// Places [first, first + count) in the order of `epoch`. Of no examples: a part in a round that has none
// left.
struct Ticket {
  int64_t epoch = 0;
  int64_t first = 0;
  int64_t count = 0;

  friend auto operator<=>(const Ticket&, const Ticket&) = default;
};

// How far the epochs are done. Examples are numbered through all epochs.
struct WorkPosition {
  struct Run {
    int64_t begin = 0, count = 0;
    friend bool operator==(const Run&, const Run&) = default;
  };
  int64_t next = 0;       // from here on nothing is done
  std::vector<Run> open;  // before it, and not done; ascending
  int64_t repeated = 0;   // examples that were used when they had been; never by a queue

  int64_t num_open() const;
  friend bool operator==(const WorkPosition&, const WorkPosition&) = default;
};

class WorkQueue {
 public:
  struct Holder {
    std::optional<Ticket> current, ahead;
  };
  // All that a queue knows beside its configuration.
  struct State {
    int64_t next = 0;                 // example that was never handed out, through all epochs
    std::set<Ticket> returned{};      // before it
    std::map<int, Holder> holders{};  // [worker]
  };
  struct Config {
    int64_t num_examples = 1;  // of each epoch
    int64_t batch_size = 1;    // a ticket's examples, fewer at an epoch's end
    int64_t epochs = 0;        // 0: without end
  };
  // `resumed`: what was open there is in the queue. Its runs may be cut otherwise than these tickets.
  explicit WorkQueue(const Config& config, const WorkPosition& resumed = {});

  // --- Each worker at its own pace ---
  // The worker has a current ticket afterwards, if there is any that is nobody else's current one: its own
  // ahead, else the first of the queue, else another worker's ahead. And one ahead, if the queue has more.
  bool Give(int worker);

  // --- Rounds ---
  // All of `workers`, ascending, have a current ticket of one epoch afterwards, those without one in this
  // order; an empty one when that epoch has no more. None when all is done. Tickets ahead are those of the
  // round after it, if the same workers make it.
  void GiveRound(absl::Span<const int> workers);

  // The worker's current ticket has been used.
  void Done(int worker);
  // What the worker has goes back.
  void Return(int worker);

  // The current ticket, and behind it the one ahead; empty when the worker has none.
  std::vector<Ticket> TicketsOf(int worker) const;
  // Nothing is left, in the queue or with anybody.
  bool exhausted() const;
  WorkPosition position() const;
  State Save() const { return {next_, returned_, holders_}; }
  void Restore(State state);
  // The number of a ticket's first example through all epochs.
  int64_t BeginOf(const Ticket& ticket) const { return ticket.epoch * config_.num_examples + ticket.first; }

 private:
  // The first of the queue; none when that is empty.
  std::optional<Ticket> First() const;
  std::optional<Ticket> Take();
  void PutBack(std::optional<Ticket>& ticket);
  std::optional<Ticket> TakeFromAhead();

  const Config config_;
  int64_t next_;               // example that was never handed out, through all epochs
  std::set<Ticket> returned_;  // before it
  std::map<int, Holder> holders_;
};

}  // namespace cairn::ps
