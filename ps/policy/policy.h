// Which gradients become an update, and when. One class per policy, one row in the table of policy.cc.
//
// A policy is told events (a worker joins, leaves, has a gradient staged on all servers) and answers with
// decisions that the caller carries out in the given order. It owns no tensors, no locks and no clock; one
// per job, made by the server that decides, which also serialises the calls. So a table of events tests it.
//
//   OnJoin ──► member ──OnGradient──► staged ──► Apply   version + 1 ──held──► Release
//                │                      │
//                └──────OnLeave─────────┴──────► Refuse  the worker is told why
//
// Every gradient is answered by exactly one decision, at once or by a later event: Refuse, Apply or, where
// the Apply says that the answer is held, the Release that follows. The exception is a repeat (a worker,
// incarnation and step seen before): it is counted and has no decision, the first one's stands.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ps/policy/work_queue.h"

namespace cairn::ps {

// Names one push. The steps of one incarnation rise; they reach the policy in that order.
struct PushKey {
  int worker = 0;            // index in the list of trainers
  uint64_t incarnation = 0;  // one life of the worker's process
  int64_t step = 0;          // the worker's own count of pushes

  friend auto operator<=>(const PushKey&, const PushKey&) = default;
};

// "push of worker 1 (incarnation 7), step 12"
std::string Describe(const PushKey& key);

struct Gradient {
  PushKey key = {};
  int64_t base_version = 0;  // the version of the variables that it was computed from
  int64_t examples = 0;      // how many examples it is the mean of
  // Batches of its part of the data that the worker has behind it with this one; of data that is handed out,
  // the number of its ticket's first example through all epochs.
  int64_t position = 0;

  friend bool operator==(const Gradient&, const Gradient&) = default;
};

// Apply the mean of these to all variables on all servers: the version rises by one.
struct Apply {
  int64_t version = 0;                 // after this update
  std::vector<Gradient> contributors;  // one per worker, in worker order; not empty
  int64_t staleness = 0;  // updates between the oldest contributor's base version and this update
  bool held = false;      // the contributors are not told yet: a Release follows for each
  bool last = false;      // `version` is the job's last

  friend bool operator==(const Apply&, const Apply&) = default;
};

// Drop this gradient and tell its worker.
struct Refuse {
  enum class Reason {
    kStale,           // computed from a version that is too old: pull and compute again
    kAhead,           // computed from a version that these servers have not reached: they were set back
    kNotAMember,      // the worker never joined, or has left; its staged gradient when it leaves
    kOldIncarnation,  // a restarted worker has taken this one's place
    kSecondInRound,   // this worker already contributes to the open round, or its answer is held
    kFinished,        // the job's last update has been applied
  };
  PushKey key;
  Reason reason = Reason::kStale;
  int64_t staleness = 0;  // version - base_version for kStale, else 0

  friend bool operator==(const Refuse&, const Refuse&) = default;
};

// Answer this push now: its gradient is in an update that was made before, and held its answer.
struct Release {
  PushKey key;

  friend bool operator==(const Release&, const Release&) = default;
};

using Decision = std::variant<Apply, Refuse, Release>;

struct UpdateCounters {
  int64_t accepted = 0;       // gradients that went into an update
  int64_t examples = 0;       // in those
  int64_t stale = 0;          // refused as kStale
  int64_t refused_other = 0;  // refused for any other reason
  int64_t duplicate = 0;      // repeats, counted here alone
  int64_t staleness_max = 0;  // over the accepted ones
  // Accepted gradients by staleness; the last entry counts that and more.
  std::array<int64_t, 16> staleness_histogram{};  // [staleness]

  void Add(const Decision& decision);
  // Those of another part of the same job.
  void Add(const UpdateCounters& other);
};

// What a worker has to do, of a job whose data is handed out.
struct Work {
  std::vector<Ticket> tickets;  // its current one, and one ahead; none: it waits for one, or the job is over
  int members = 0;              // workers that take part
  bool over = false;            // there will be no more
};

// All that a policy knows beside its configuration: another one of the same mode goes on with it.
struct PolicyState {
  struct Worker {
    uint64_t incarnation = 0;
    int64_t last_step = std::numeric_limits<int64_t>::min();  // of this incarnation
    bool live = false;
  };
  int64_t version = 0;
  std::optional<int64_t> final_version{};
  std::map<int, Worker> roster{};   // [worker]
  std::vector<Gradient> staged{};   // sync: for the open round, in order of arrival
  std::map<int, int64_t> clocks{};  // ssp: [worker]
  int64_t slowest = 0;              // ssp
  std::map<int, PushKey> held{};    // ssp: [worker]
  // Where data is handed out, and where it is counted.
  struct Queue {
    struct Member {
      uint64_t incarnation = 0;
      int64_t last_step = 0;
      bool idle = false;  // was answered, and has no ticket
    };
    WorkQueue::State work{};
    std::map<int, Member> members{};  // [worker]
    bool ended = false;
  };
  std::optional<Queue> queue{};
  std::optional<WorkPosition> tally{};
  UpdateCounters counters{};
};

class UpdatePolicy {
 public:
  virtual ~UpdatePolicy() = default;

  // `worker` now lives as `incarnation`. Whatever an earlier incarnation has staged is refused. Which
  // incarnation is the current one is the caller's knowledge: the policy believes the latest call. Repeats
  // change nothing.
  virtual std::vector<Decision> OnJoin(int worker, uint64_t incarnation) = 0;
  // A dead or finished worker: its staged gradient is refused, and nobody waits for it any more, also when it
  // never joined. Ignored when `worker` now lives as another incarnation. To let a round wait for a worker's
  // return instead, do not call this.
  virtual std::vector<Decision> OnLeave(int worker, uint64_t incarnation) = 0;
  // `gradient` is complete on all servers.
  virtual std::vector<Decision> OnGradient(const Gradient& gradient) = 0;

  // The version now is the job's last: what is staged is refused, and so is all that comes. Repeats change
  // nothing.
  virtual std::vector<Decision> OnEnd() = 0;

  // Updates decided so far, those before a restart included.
  virtual int64_t version() const = 0;
  // The workers that the next update waits for, ascending; for messages. Empty when it waits for none in
  // particular.
  virtual std::vector<int> WaitingFor() const = 0;
  // How many of the worker's gradients have been applied, or counted so since it joined later; 0 where the
  // policy does not ask.
  virtual int64_t ClockOf(int /*worker*/) const { return 0; }
  // Where data is handed out by this policy.
  virtual std::optional<Work> WorkOf(int /*worker*/) const { return std::nullopt; }
  // Which examples are in updates that this policy decided; where it is told.
  virtual std::optional<WorkPosition> position() const { return std::nullopt; }
  virtual const UpdateCounters& counters() const = 0;

  virtual PolicyState Save() const = 0;
  // Goes on from there: the same events then have the same decisions.
  virtual void Restore(const PolicyState& state) = 0;
};

// Data that is handed out.
struct HandedOut {
  WorkQueue::Config queue{};
  WorkPosition resumed{};
  int min_workers = 1;  // while there are fewer nobody gets a ticket
  // Other workers than the expected ones may come: tickets are for those who are there, and rounds wait for
  // worker 0 alone before they begin.
  bool elastic = false;
  // Another server hands it out: this one counts what its updates are made of.
  bool elsewhere = false;
};

struct PolicyConfig {
  std::string mode;  // "sync", "async" or "ssp"
  // >= 1; sync: no round closes before each has joined once (or left); ssp: one that has not is at clock 0.
  int expected_workers = 1;
  int replicas_to_aggregate = 0;  // sync: gradients per round, 0 for one of every live worker
  // async: a gradient more updates behind than this is refused; none for no limit. ssp: how many clocks a
  // worker may be ahead of the slowest and go on; must be given.
  std::optional<int64_t> max_staleness = std::nullopt;
  int64_t initial_version = 0;              // of restored variables
  std::map<int, int64_t> initial_clocks{};  // ssp: [worker], of a restored job; 0 where there is none
  // The version of the job's last update; a job restored there, or beyond, applies nothing. None for no end.
  std::optional<int64_t> final_version = std::nullopt;
  std::optional<HandedOut> data = std::nullopt;  // none: each worker has its part
};

// INVALID_ARGUMENT naming the field, or the mode and the supported ones.
absl::StatusOr<std::unique_ptr<UpdatePolicy>> MakePolicy(const PolicyConfig& config);

}  // namespace cairn::ps
