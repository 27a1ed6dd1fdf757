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
  // `tasks` [worker]: the names of those that are expected. Incarnations that are drawn here are above
  // `incarnations_above`.
  explicit Membership(std::vector<std::string> tasks, uint64_t incarnations_above = 0, bool elastic = false)
      : tasks_(std::move(tasks)), incarnations_above_(incarnations_above), elastic_(elastic) {}

  // Whether `process` may be `worker` from now on. Asked again and again by a process that waits for the
  // answer.
  //   kFree   nobody is; or it is this process; or the process that was has broken its stream of pushes, or
  //   has sent no
  //           heartbeat for `silence` since the first question
  //   kTaken  the process that is has sent a heartbeat since then: it lives
  enum class Place { kFree, kUnclear, kTaken };
  Place Ask(int worker, uint64_t process, TimePoint now, Duration silence);

  // A new life of `worker`, in this process. `incarnation` 0 draws one: larger than any before. Returns the
  // incarnation, or 0 when the one given is older than what is known.
  uint64_t Join(int worker, uint64_t incarnation, TimePoint now, const v1::Process& process = {});
  // A stream on which this incarnation has pushed more than once has broken: its process has probably ended.
  // A heartbeat that comes later says otherwise.
  void StreamBroke(int worker, uint64_t incarnation);
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

  // Of an elastic job: the number of this task, its place among those expected or else one of its own from
  // now on. -1 when that would be `most` or above.
  int NumberOf(const std::string& task, int most);
  // `worker`, whose number another server has found, is this task.
  void SetName(int worker, const std::string& task);
  // Live members but `worker`; the chief, number 0, has its place also while it is not there.
  int PlacesTakenBut(int worker) const;

  // Every expected worker but `worker` has joined once and is live no more; of an elastic job, those that
  // never joined do not count. Otherwise `missing` names who is not: "worker/1 (step 312), worker/2 (never
  // joined)".
  bool AllOthersLeft(int worker, std::string* missing) const;

  // --- The copy on another server ---
  struct Entry {
    int worker;
    uint64_t incarnation;
    bool live;
    int64_t step;
    std::string task;  // its name
    v1::Process process{};
  };
  std::vector<Entry> All() const;
  void Put(const Entry& entry, TimePoint now);
  // Nobody's lease runs out for having been heard of elsewhere. `when` may be to come.
  void HearAll(TimePoint when);

  // "worker/1"
  std::string NameOf(int worker) const;
  // Some task has this number.
  bool HasName(int worker) const;

  enum class State { kLive, kLeft, kExpired };
  struct Member {
    uint64_t incarnation = 0;
    State state = State::kLive;
    TimePoint last_heard;
    int64_t step = 0;
    v1::Process process{};  // that is this worker, or was
    std::optional<TimePoint>
        contested_at{};         // when another process first asked for the place, without an answer yet
    bool heard_since = false;   // a heartbeat has come since contested_at
    bool stream_broke = false;  // and no heartbeat has come since
  };
  int num_expected() const { return static_cast<int>(tasks_.size()); }
  // Null when it has never joined.
  const Member* Find(int worker) const {
    const auto found = members_.find(worker);
    return found == members_.end() ? nullptr : &found->second;
  }

 private:
  std::vector<std::string> tasks_;  // [worker]; empty where a number is known and the name not
  uint64_t incarnations_above_;
  bool elastic_;
  std::map<int, Member> members_;  // [worker]
};

}  // namespace cairn::ps
