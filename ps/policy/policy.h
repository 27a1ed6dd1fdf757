// Decides which gradients become an update, and when. One class per policy, one row in the table of
// policy.cc.
//
// A policy receives events (a worker joins, leaves, has a gradient staged on all servers) and answers with
// decisions, which the caller carries out in the given order. It owns no tensors, no locks and no clock.
// One per job, created by the server that decides, which also serialises the calls. Its tests are tables
// of events.
//
//   OnJoin ──► member ──OnGradient──► staged ──► Apply   version + 1 ──deferred──► Release
//                │                      │
//                └──────OnLeave─────────┴──────► Refuse  the worker receives the reason
//
// Every gradient is answered by exactly one decision, at once or after a later event: Refuse, Apply or, if
// the Apply is deferred, the Release that follows. A repeat (a worker, incarnation and step seen
// before) is only counted: the first decision stands.
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

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/any.pb.h"
#include "optim/store/group_settings.h"
#include "ps/policy/work_queue.h"

namespace cairn::ps {

// The number of the worker that describes and controls the job.
inline constexpr int kChief = 0;

// Identifies a push. The steps of one incarnation rise, and reach the policy in that order.
struct PushKey {
  int worker = 0;            // the worker's number
  uint64_t incarnation = 0;  // one life of the worker's process
  int64_t step = 0;          // the worker's own count of pushes

  friend auto operator<=>(const PushKey&, const PushKey&) = default;
};

// "push of worker 1 (incarnation 7), step 12"
std::string Describe(const PushKey& key);

// The most groups of variables that a job may have.
inline constexpr int kMaxGroups = 65536;
// Hyperparameters of a group that differ from those of the job.
inline constexpr size_t kMaxHyperparameters = 32;

struct Gradient {
  PushKey key = {};
  int64_t base_version = 0;  // the version of the variables that the gradient was computed from
  int64_t examples = 0;      // the number of examples that the gradient is the mean of
  // The number of batches that the worker has completed, including this gradient's batch. With dynamic
  // sharding: the number of the first example of the gradient's work item, counted through all epochs.
  int64_t position = 0;
  // From the chief: the settings of all groups of variables, [group], from the update with this gradient on.
  // Empty: no change. The policy only passes them on.
  std::vector<optim::GroupSettings> groups{};

  friend bool operator==(const Gradient&, const Gradient&) = default;
};

// Apply the mean of these gradients to all variables on all servers: the version rises by one.
struct Apply {
  int64_t version = 0;                 // the version after this update
  std::vector<Gradient> contributors;  // one per worker, in worker order; not empty
  int64_t staleness = 0;  // updates between the oldest contributor's base version and this update
  bool deferred = false;  // the contributors are not answered yet: a Release follows for each
  bool last = false;      // `version` is the job's last

  friend bool operator==(const Apply&, const Apply&) = default;
};

// Drop this gradient and notify its worker.
struct Refuse {
  enum class Reason {
    kStale,  // computed from a version that is too old: pull and compute again
    // Computed from a version that these servers have not reached, because they were rolled back.
    kAhead,
    // The worker never joined, or has left. Also the reason for a staged gradient whose worker leaves.
    kNotAMember,
    kOldIncarnation,  // a restarted process has replaced this worker
    // The worker already contributes to the open round, or the answer to its last push is deferred.
    kSecondInRound,
    kFinished,  // the job's last update has been applied
  };
  PushKey key;
  Reason reason = Reason::kStale;
  int64_t staleness = 0;  // version - base_version for kStale, else 0

  friend bool operator==(const Refuse&, const Refuse&) = default;
};

// Answer this push now: its gradient is in an earlier update whose answer was deferred.
struct Release {
  PushKey key;

  friend bool operator==(const Release&, const Release&) = default;
};

using Decision = std::variant<Apply, Refuse, Release>;

struct UpdateCounters {
  int64_t accepted = 0;       // gradients that went into an update
  int64_t examples = 0;       // the examples in those gradients
  int64_t stale = 0;          // refused as kStale
  int64_t refused_other = 0;  // refused for any other reason
  int64_t duplicate = 0;      // repeats; the other counters do not include them
  int64_t staleness_max = 0;  // the largest staleness of an accepted gradient
  // Accepted gradients by staleness; the last entry also counts all larger values.
  std::array<int64_t, 16> staleness_histogram{};  // [staleness]

  void Add(const Decision& decision);
  // Adds the counters of another period of the same job.
  void Add(const UpdateCounters& other);
};

// The work items of a worker, with dynamic sharding.
struct Work {
  // The worker's current item, and those ahead for its loader. Empty: the worker waits, or the job is over.
  std::vector<WorkItem> work_items;
  int members = 0;    // number of workers that take part
  bool over = false;  // no more work will come
};

// The workers of the next update, ascending.
struct NextUpdate {
  std::vector<int> waiting_for{};  // empty if it does not wait for particular workers
  std::vector<int> staged{};       // with rounds: those whose gradients are in the open one
};

class UpdatePolicy {
 public:
  virtual ~UpdatePolicy() = default;

  // `worker` now lives as `incarnation`. Gradients staged by an earlier incarnation are refused. The caller
  // knows which incarnation is current: the policy believes the latest call. Repeats have no effect.
  virtual std::vector<Decision> OnJoin(int worker, uint64_t incarnation) = 0;
  // A worker has died or finished: its staged gradient is refused, and rounds no longer wait for it, even if
  // it never joined. Ignored if `worker` now lives as another incarnation. To make rounds wait for the return
  // of a worker, do not call this.
  virtual std::vector<Decision> OnLeave(int worker, uint64_t incarnation) = 0;
  // Called when `gradient` is complete on all servers.
  virtual std::vector<Decision> OnGradient(const Gradient& gradient) = 0;

  // The current version is the job's last: staged gradients are refused, and so are all later ones. Repeats
  // have no effect.
  virtual std::vector<Decision> OnEnd() = 0;

  // Updates decided so far, including those before a restart.
  virtual int64_t version() const = 0;
  virtual NextUpdate next_update() const { return {}; }
  std::vector<int> WaitingFor() const { return next_update().waiting_for; }
  // The number of the worker's gradients that have been applied. A worker that joined later starts from a
  // higher count. 0 if the policy has no clocks.
  virtual int64_t ClockOf(int /*worker*/) const { return 0; }
  // The worker's assignment, if this policy assigns the data.
  virtual std::optional<Work> WorkOf(int /*worker*/) const { return std::nullopt; }
  // Which examples are in the updates that this policy decided, if the policy counts examples.
  virtual std::optional<WorkPosition> position() const { return std::nullopt; }
  virtual const UpdateCounters& counters() const = 0;

  // Everything that the policy knows in addition to its configuration, as a message of its own (policy.proto).
  virtual google::protobuf::Any Save() const = 0;
  // Continues from a state that was saved with the same configuration: the same events then lead to the same
  // decisions. INVALID_ARGUMENT, without effect, for the message of another policy or an impossible state.
  virtual absl::Status Load(const google::protobuf::Any& state) = 0;
};

// The configuration of dynamic sharding.
struct DynamicAssignment {
  WorkQueue::Config queue{};
  WorkPosition resumed{};
  int min_workers = 1;  // below this number of workers, no work is assigned
  // Workers other than the expected ones may join. Work is assigned to the workers that have joined, and the
  // first round waits only for worker 0.
  bool elastic = false;
  // Another server assigns the data; this one only counts the examples of its updates.
  bool elsewhere = false;
};

struct PolicyConfig {
  std::string mode;                                    // "sync", "async" or "ssp"
  int most_workers = std::numeric_limits<int>::max();  // all worker numbers are below this limit
  // At least 1. sync: no round closes before each expected worker has joined once or left. ssp: an expected
  // worker that has not joined counts with its initial clock.
  int expected_workers = 1;
  int replicas_to_aggregate = 0;  // sync: gradients per round; 0: one of every live worker
  // async: gradients with a larger staleness are refused; none: no limit. ssp: the number of clocks that a
  // worker may be ahead of the slowest worker; required.
  std::optional<int64_t> max_staleness = std::nullopt;
  int64_t initial_version = 0;              // the version of restored variables
  std::map<int, int64_t> initial_clocks{};  // ssp: [worker]: the clock in a restored job; 0 if missing
  // The version of the job's last update. A job restored at or beyond it applies nothing. None: no end.
  std::optional<int64_t> final_version = std::nullopt;
  std::optional<DynamicAssignment> data = std::nullopt;  // none: each worker has a fixed share
};

// INVALID_ARGUMENT naming the field, or the mode and the supported modes.
absl::StatusOr<std::unique_ptr<UpdatePolicy>> MakePolicy(const PolicyConfig& config);

}  // namespace cairn::ps
