// Remembers which pushes a shard has seen, so that each counts once, however often it is sent.
//
// A push is identified by (worker, incarnation, step); the steps of an incarnation rise. The ledger keeps
// each worker's newest incarnation, its staged step and the last decision. Not thread-safe: guarded by the
// shard's lock.
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
    int64_t version = 0;  // after the decision
    int64_t staleness = 0;
  };

  enum class Admission {
    kNew,             // collect it
    kUnderWay,        // staged and not decided yet: it gets the same answer
    kDecided,         // answered before: `ruling` is the answer
    kOldIncarnation,  // the worker has been restarted since
  };
  struct Verdict {
    Admission admission;
    Ruling ruling;  // kDecided: of this step, or of the last one if this one is older
  };

  // How to treat a push, before any of its data is kept.
  Verdict Admit(const PushKey& key) const;

  // The push is complete. A newer incarnation replaces the older one. Only after kNew.
  void Stage(const PushKey& key);
  // Also for a push that this server has not seen yet: it will be kDecided when it arrives.
  void Decide(const PushKey& key, v1::Outcome outcome, int64_t version, int64_t staleness);

  // The decisions, for the backup. It learns of undecided pushes from their workers.
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
