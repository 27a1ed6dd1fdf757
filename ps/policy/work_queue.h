// The examples of a job's epochs, assigned to workers as work items: which worker computes with which
// examples.
//
// An item is a run of positions in the order of one epoch, at most a batch. Each example of the epochs is in
// exactly one of these states:
//
//   queue ──Give──► ahead ──► current ──Done──► done
//     ▲                │         │
//     └────Return──────┴─────────┘
//
// A worker's next push is made from its current item. The items ahead let its loader prepare the following
// batches. Until an item is current, it may be assigned to another worker, because each answer contains the
// worker's whole assignment. The queue assigns items in the order of the epochs, so returned items come
// before new ones.
//
// Owned by a policy, whose caller serialises all calls. Owns no lock, and knows no membership.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cairn/v1/policy.pb.h"

namespace cairn::ps {

// Positions [first, first + count) in the order of `epoch`. An item without examples lets a worker
// take part in a round when the epoch has no examples left for it.
struct WorkItem {
  int64_t epoch = 0;
  int64_t first = 0;
  int64_t count = 0;

  friend auto operator<=>(const WorkItem&, const WorkItem&) = default;
};

// Which examples are done. Examples are numbered through all epochs.
struct WorkPosition {
  struct Run {
    int64_t begin = 0, count = 0;
    friend bool operator==(const Run&, const Run&) = default;
  };
  int64_t next = 0;       // no example from here on is done
  std::vector<Run> open;  // runs before `next` that are not done; ascending
  int64_t repeated = 0;   // examples that were used again; always 0 for a queue

  int64_t num_open() const;
  friend bool operator==(const WorkPosition&, const WorkPosition&) = default;
};

class WorkQueue {
 public:
  struct Config {
    int64_t num_examples = 1;  // the examples of one epoch
    int64_t batch_size = 1;    // maximum number of examples in an item
    int64_t epochs = 0;        // 0: no end
    int items_ahead = 1;       // how many items a worker has ahead, if the queue has enough; above 0
  };
  // The open runs of `resumed` are queued again. They need not have the bounds of work items.
  explicit WorkQueue(const Config& config, const WorkPosition& resumed = {});

  // --- Workers at their own speed ---
  // Gives a worker without a current item one: its own first item ahead, else the first item of the queue,
  // else the last item ahead of another worker. Then gives it items ahead, as far as the queue has them.
  // Returns whether the worker has a current item.
  bool Give(int worker);

  // --- Rounds ---
  // Gives all of `workers` (ascending) a current item of one epoch; workers that have no item get one in this
  // order. An item is empty if that epoch has no examples left. No worker gets an item if all epochs are
  // done. The items ahead are those of the following rounds, if they have the same workers.
  void GiveRound(absl::Span<const int> workers);

  // The worker's current item has been used.
  void Done(int worker);
  // Returns the worker's items to the queue.
  void Return(int worker);

  // The current item, then those ahead; empty if the worker has none.
  std::vector<WorkItem> WorkItemsOf(int worker) const;
  // Whether no example is left, in the queue or with a worker.
  bool exhausted() const;
  WorkPosition position() const;
  // As UpdatePolicy::Save() and Load(), for the queue's fields of the message.
  void Save(v1::QueuedPolicyState& state) const;
  absl::Status Load(const v1::QueuedPolicyState& state, int most_workers);
  // The number of the item's first example, counted through all epochs.
  int64_t BeginOf(const WorkItem& work_item) const {
    return work_item.epoch * config_.num_examples + work_item.first;
  }

 private:
  struct Holder {
    std::optional<WorkItem> current;
    std::deque<WorkItem> ahead;
  };

  // INVALID_ARGUMENT unless the item lies in an epoch. An item without examples may lie at the end of one.
  absl::Status CheckItem(const v1::WorkItem& work_item) const;
  // The first item of the queue; none if the queue is empty.
  std::optional<WorkItem> First() const;
  std::optional<WorkItem> Take();
  void PutBack(const WorkItem& work_item);
  void PutBackAhead(Holder& holder);
  // Takes the last item ahead of the worker that has the most of them; of several such items, the first one.
  std::optional<WorkItem> TakeFromAhead();

  Config config_;
  int64_t next_;                 // the first example that was never assigned, counted through all epochs
  std::set<WorkItem> returned_;  // items before `next_`
  std::map<int, Holder> holders_;
};

}  // namespace cairn::ps
