// Who takes part in a job: leases kept by heartbeats.
//
//                 Join                 Leave
//   (unknown) ──────────► live ─────────────────► left
//                          │ ▲                      │
//         lease runs out   ▼ │ Join (new            │ Join
//                       expired  incarnation)  ◄────┘
//
// Not thread-safe: the server's lock guards it. Time is passed in.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/core/clock.h"

namespace cairn::ps {

class Membership {
 public:
  // `tasks` [worker]: the names of those that are expected. Incarnations that are drawn here are above
  // `incarnations_above`.
  explicit Membership(std::vector<std::string> tasks, uint64_t incarnations_above = 0)
      : tasks_(std::move(tasks)), incarnations_above_(incarnations_above) {}

  // A new life of `worker`. `incarnation` 0 draws one: larger than any before. Returns the incarnation, or 0
  // when the one given is older than what is known.
  uint64_t Join(int worker, uint64_t incarnation, TimePoint now);
  // False when this incarnation is no live member.
  bool Heartbeat(int worker, uint64_t incarnation, int64_t step, TimePoint now);
  // False when this incarnation was no live member.
  bool Leave(int worker, uint64_t incarnation);
  // Makes members expired that were last heard of before `oldest`, and returns them.
  struct Expired {
    int worker;
    uint64_t incarnation;
  };
  std::vector<Expired> ExpireOlderThan(TimePoint oldest);
  // Likewise those expected that have not joined.
  std::vector<Expired> ExpireAbsent();

  // Every expected worker but `worker` has joined once and is live no more. Otherwise `missing` names who is
  // not: "worker/1 (step 312), worker/2 (never joined)".
  bool AllOthersLeft(int worker, std::string* missing) const;

  // --- The copy on another server ---
  struct Entry {
    int worker;
    uint64_t incarnation;
    bool live;
    int64_t step;
  };
  std::vector<Entry> All() const;
  void Put(const Entry& entry, TimePoint now);
  // Nobody's lease runs out for having been heard of elsewhere.
  void HearAll(TimePoint now);

  // "worker/1"
  std::string NameOf(int worker) const;

 private:
  enum class State { kLive, kLeft, kExpired };
  struct Member {
    uint64_t incarnation = 0;
    State state = State::kLive;
    TimePoint last_heard;
    int64_t step = 0;
  };
  std::vector<std::string> tasks_;  // [worker]
  uint64_t incarnations_above_;
  std::map<int, Member> members_;  // [worker]
};

}  // namespace cairn::ps
