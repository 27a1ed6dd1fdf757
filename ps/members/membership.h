// The workers that take part in a job. Each has a lease, which its heartbeats renew.
//
//                 Join                 Leave
//   (unknown) ──────────► live ─────────────────► left
//                          │ ▲                      │
//         lease runs out   ▼ │ Join (new            │ Join
//                       expired  incarnation)  ◄────┘
//
// Not thread-safe: guarded by the lock of JobMembers. The caller passes the time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "cairn/v1/job.pb.h"
#include "common/core/clock.h"

namespace cairn::ps {

class Membership {
 public:
  // `tasks` [worker]: the names of the expected workers. Incarnations drawn here are
  // above `incarnations_above`.
  explicit Membership(std::vector<std::string> tasks, uint64_t incarnations_above = 0, bool elastic = false)
      : tasks_(std::move(tasks)), incarnations_above_(incarnations_above), elastic_(elastic) {}

  // Whether `process` may become `worker` now. The process repeats the call until the answer is clear.
  //   kFree     `worker` has no live process, or `process` is already `worker`, or the live process has
  //             broken its stream of pushes, or has sent no heartbeat for `silence` since the first call.
  //   kTaken    The live process has sent a heartbeat since the first call.
  //   kUnclear  Neither is known yet.
  enum class Availability { kFree, kUnclear, kTaken };
  Availability CheckAvailability(int worker, uint64_t process, TimePoint now, Duration silence);

  // Starts a new life of `worker` in `process`. If `incarnation` is 0, draws one above all earlier
  // incarnations of the worker. Returns the incarnation, or 0 if the given one is older than the worker's
  // known incarnation.
  uint64_t Join(int worker, uint64_t incarnation, TimePoint now, const v1::Process& process = {});
  // A stream on which this incarnation pushed more than once has broken, so its process has probably ended. A
  // later heartbeat proves that it has not.
  void StreamBroke(int worker, uint64_t incarnation);
  // False if this incarnation is not a live member.
  bool Heartbeat(int worker, uint64_t incarnation, int64_t step, TimePoint now);
  // False if this incarnation was not a live member.
  bool Leave(int worker, uint64_t incarnation);
  // Expires the members whose last heartbeat was before `oldest`, and returns them.
  struct Expired {
    int worker;
    uint64_t incarnation;
  };
  std::vector<Expired> ExpireOlderThan(TimePoint oldest);
  // Expires the expected members that have not joined, and returns them.
  std::vector<Expired> ExpireAbsent();

  // For an elastic job: the number of this task. An expected task has its index; any other task gets a new
  // number. Returns -1 if that number would be `most` or above.
  int NumberOf(const std::string& task, int most);
  // Records the name of `worker`, whose number another server has assigned.
  void SetName(int worker, const std::string& task);
  // The number of live members other than `worker`. The chief, worker 0, counts even while it is absent.
  int TakenExcept(int worker) const;

  // True if every expected worker other than `worker` has joined once and is no longer live. In an elastic
  // job, workers that never joined do not count. Otherwise `missing` lists the workers that prevent it:
  // "worker/1 (step 312), worker/2 (never joined)".
  bool AllOthersLeft(int worker, std::string* missing) const;

  // --- Replication ---
  struct Entry {
    int worker;
    uint64_t incarnation;
    bool live;
    int64_t step;
    std::string task;  // the worker's name
    v1::Process process{};
  };
  std::vector<Entry> All() const;
  void Put(const Entry& entry, TimePoint now);
  // Sets the time of all members' last heartbeat to `when`, which may be in the future. After a promotion,
  // this keeps leases from expiring although the heartbeats went to another server.
  void HearAll(TimePoint when);

  // "worker/1"
  std::string NameOf(int worker) const;
  // Whether some task has this number.
  bool HasName(int worker) const;

  enum class State { kLive, kLeft, kExpired };
  struct Member {
    uint64_t incarnation = 0;
    State state = State::kLive;
    TimePoint last_heard;
    int64_t step = 0;
    v1::Process process{};  // the process of the worker's last life
    // The time when another process first asked to become this worker; empty while no process waits for an
    // answer.
    std::optional<TimePoint> contested_at{};
    bool heard_since = false;   // a heartbeat has arrived since contested_at
    bool stream_broke = false;  // the push stream has broken, and no heartbeat has arrived since
  };
  int num_expected() const { return static_cast<int>(tasks_.size()); }
  // Null if the worker has never joined.
  const Member* Find(int worker) const {
    const auto found = members_.find(worker);
    return found == members_.end() ? nullptr : &found->second;
  }

 private:
  std::vector<std::string> tasks_;  // names [worker]; an empty name if only the number is known
  uint64_t incarnations_above_;
  bool elastic_;
  std::map<int, Member> members_;  // [worker]
};

}  // namespace cairn::ps
