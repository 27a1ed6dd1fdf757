// Remembers which pushes a shard has seen, so that each counts once, however often it is sent.
//
// A push is identified by (worker, incarnation, step); the steps of an incarnation rise. The ledger keeps
// each worker's newest incarnation, its staged step and the last decision. Not thread-safe: guarded by the
// PushTable's lock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "cairn/v1/replicate.pb.h"
#include "cairn/v1/session.pb.h"
#include "ps/policy/policy.h"

namespace cairn::ps {

class Ledger {
 public:
  struct Ruling {
    int64_t step = 0;
    v1::Outcome outcome = v1::OUTCOME_UNSPECIFIED;
    int64_t version = 0;  // the version after the decision
    int64_t staleness = 0;
  };

  enum class Admission {
    kNew,             // the push is new: collect its chunks
    kUnderWay,        // staged and not decided yet: the repeat gets the same answer as the first push
    kDecided,         // decided before: `ruling` is the answer
    kOldIncarnation,  // the worker has been restarted since this push
  };
  struct Verdict {
    Admission admission;
    Ruling ruling;  // kDecided: the ruling on this step, or on the worker's last step if this step is older
  };

  // Decides how to treat a push, before any of its data is stored.
  Verdict Admit(const PushKey& key) const;

  // Records that the push is complete. A newer incarnation replaces the older one. To be called only if
  // Admit() returned kNew.
  void Stage(const PushKey& key);
  // Records a decision. A push that has not reached this server yet will be kDecided when it arrives.
  void Decide(const PushKey& key, v1::Outcome outcome, int64_t version, int64_t staleness);

  // Saves the decisions for the backup. Workers send undecided pushes to the backup again.
  void Save(google::protobuf::RepeatedPtrField<v1::LedgerEntry>& entries) const;
  void Restore(const google::protobuf::RepeatedPtrField<v1::LedgerEntry>& entries);

 private:
  struct Entry {
    uint64_t incarnation = 0;
    std::optional<int64_t> staged_step;
    Ruling last;
  };
  std::map<int, Entry> entries_;  // [worker]
};

}  // namespace cairn::ps
